//! The keys of an experiment's file.

use std::num::NonZeroU32;

use serde::Deserialize;
use tierscope_hw::PageSize;
use toml::Spanned;

use super::Mode;
use crate::config::Event;
use crate::density::{Start, Swap};
use crate::exact::Detail;

/// The keys of a file, not yet checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct File {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) source: String,
    pub(super) time: Spanned<String>,
    pub(super) window: Option<Spanned<String>>,
    pub(super) seed: Option<u64>,
    #[serde(default)]
    pub(super) instruments: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) instrument: Vec<Spanned<Instrument>>,
    #[serde(default)]
    pub(super) policies: Vec<Spanned<String>>,
    pub(super) warm_up: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) machine: Machine,
    pub(super) process: Vec<Spanned<Process>>,
    pub(super) telemetry: Option<Spanned<toml::Table>>,
    #[serde(default)]
    pub(super) simulation: Simulation,
    /// Changes of hardware and costs.
    #[serde(skip)]
    pub(super) changes: Vec<super::Change>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Instrument {
    pub(super) name: String,
    pub(super) instrument: String,
    pub(super) variant: Option<String>,
    pub(super) sampling: Option<Spanned<String>>,
    pub(super) update: Option<Spanned<String>>,
    pub(super) min_regions: Option<usize>,
    pub(super) max_regions: Option<usize>,
    pub(super) cpu: Option<f64>,
    pub(super) may_flush: Option<bool>,
    #[serde(default)]
    pub(super) samples: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Machine {
    pub(super) hardware: Option<Spanned<String>>,
    pub(super) cpus: Option<Spanned<u32>>,
    pub(super) levels: Option<Spanned<u8>>,
    pub(super) llc_slices: Option<Spanned<u32>>,
    pub(super) second_tlb: Option<Spanned<u32>>,
    pub(super) memory_cores: Option<Spanned<u32>>,
    pub(super) memory_mode: bool,
    pub(super) flush: Option<Spanned<String>>,
    pub(super) watermark_scale_factor: Option<Spanned<u32>>,
    pub(super) min_free: Option<Spanned<String>>,
    pub(super) tier: Vec<Spanned<Tier>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Tier {
    pub(super) name: Spanned<String>,
    pub(super) size: Option<Spanned<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Process {
    pub(super) name: Option<String>,
    pub(super) workload: Spanned<String>,
    pub(super) threads: Option<u32>,
    pub(super) cpu: Option<u32>,
    pub(super) seed: Option<u64>,
    pub(super) pages: Option<PageSize>,
    #[serde(default)]
    pub(super) area_pages: std::collections::BTreeMap<String, PageSize>,
    pub(super) placement: Option<Spanned<Placement>>,
    pub(super) populate: Option<bool>,
    #[serde(default)]
    pub(super) written: bool,
    pub(super) repeats: Option<bool>,
    #[serde(default)]
    pub(super) non_temporal: bool,
    #[serde(default)]
    pub(super) simulation: Own,
}

/// Keys of a process that apply only to simulated machines.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Own {
    pub(super) overlap: Option<u32>,
    pub(super) uncached_tables: bool,
    pub(super) watched: Vec<String>,
    pub(super) trapped: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) enum Placement {
    FirstTouch,
    Bind(String),
    Interleave(Vec<String>),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Simulation {
    pub(super) mode: Mode,
    pub(super) costs: Option<Spanned<String>>,
    pub(super) exact: Exact,
    pub(super) density: Density,
    pub(super) sampling: Sampling,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Exact {
    pub(super) detail: Option<Detail>,
    pub(super) tick: Option<Spanned<String>>,
    pub(super) quantum: Option<Spanned<String>>,
    pub(super) profiler_cpu: Option<Spanned<u32>>,
    pub(super) table_region: Option<Spanned<String>>,
    pub(super) swap: Option<Swap>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Density {
    pub(super) rate: Option<f64>,
    pub(super) visit: Option<Spanned<String>>,
    pub(super) pause: Option<Spanned<String>>,
    pub(super) start: Option<Start>,
    pub(super) late: Option<Spanned<String>>,
    pub(super) swap: Option<Swap>,
    pub(super) reclaimers: Option<NonZeroU32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Sampling {
    pub(super) events: Option<Vec<Event>>,
    pub(super) every: Option<u64>,
}
