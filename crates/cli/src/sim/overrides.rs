//! Experiments by name, with overrides by flags.

use std::time::Duration;

use clap::Args;
use tierscope_core::Result;
use tierscope_evaluate::catalogue::{self, Kind};
use tierscope_evaluate::experiments::{Overrides, change, load};
use tierscope_sim::experiment::{Change, Experiment};

use crate::units;

/// Overrides of an experiment's settings.
#[derive(Debug, Args)]
pub struct OverrideArgs {
    /// Simulate for this time instead of the experiment's
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub time: Option<Duration>,

    /// Seed of all draws instead of the experiment's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Change a parameter, as simulation.exact.tick=1ms, costs.access_bits.probe_ns=100 or
    /// hardware.tiers.optane.read_ns=170; can be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = change)]
    pub changes: Vec<Change>,
}

impl OverrideArgs {
    /// The overrides that the flags describe.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides { time: self.time, seed: self.seed, changes: self.changes.clone() }
    }
}

/// Loads an experiment by name, with overrides and further changes applied.
///
/// # Errors
/// It cannot be read, it is invalid, or an override is.
pub(crate) fn experiment(name: &str, wanted: &OverrideArgs, more: &[Change]) -> Result<Experiment> {
    load(name, &wanted.overrides(), more)
}

/// Help text of an argument that takes an experiment.
pub(super) fn experiments() -> String {
    let names: Vec<&str> = catalogue::of(Kind::Exact).map(|entry| entry.name).collect();
    format!("A ready-made experiment ({}) or a TOML file", names.join(", "))
}
