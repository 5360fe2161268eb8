//! Flags that select and configure the instrument, shared by all commands that watch a target.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command};
use tierscope_core::names::kebab;
use tierscope_instruments::registry::Entry;

use crate::{instruments, units};

/// The instrument and its settings.
#[derive(Clone, Debug, Args)]
pub struct InstrumentArgs {
    /// Instrument to watch with
    ///
    /// [default: auto]
    #[arg(long, value_name = "NAME", value_parser = names())]
    pub instrument: Option<String>,

    /// Variant of the instrument; the help text lists them.
    #[arg(long, value_name = "NAME", help = variants())]
    pub variant: Option<String>,

    /// Sampling interval: time between two probes of a region
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = units::time)]
    pub sampling: Duration,

    /// Window: time from one snapshot to the next
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = units::time)]
    pub window: Duration,

    /// Interval at which processes and mappings are read again
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::time)]
    pub update: Duration,

    /// For telescope and damon: no region grows beyond the mapped bytes divided by this number
    ///
    /// [default: 10; 1000 for kernel-damon wide]
    #[arg(long, value_name = "N")]
    pub min_regions: Option<usize>,

    /// For telescope and damon: regions are not split beyond this number
    ///
    /// [default: 1000; 20000 for kernel-damon wide]
    #[arg(long, value_name = "N")]
    pub max_regions: Option<usize>,

    /// For rates: limit on the CPU time of watching, as a share of one CPU; more memory then takes
    /// longer
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = units::share)]
    pub cpu: f64,

    /// For rates: never flush the target's TLB entries; memory whose translations stay cached
    /// cannot be judged then
    #[arg(long)]
    pub no_flush: bool,

    /// Watch processes of which another session of tierscope clears the ACCESSED bits, too: each
    /// sees fewer accesses then, and records how many bits the others cleared
    #[arg(long)]
    pub share_bits: bool,

    /// Seed of the random sampling addresses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Parser of instrument names, for clap.
fn names() -> Names {
    let value = |entry: &'static Entry| PossibleValue::new(entry.name).help(entry.about);
    let all = [&instruments::AUTO].into_iter().chain(instruments::all());
    Names(all.map(value).collect::<Vec<_>>().into())
}

/// Parser of names, each in any spelling that [`kebab`] makes the same.
#[derive(Clone)]
struct Names(PossibleValuesParser);

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        flag: Option<&Arg>,
        text: &OsStr,
    ) -> Result<String, clap::Error> {
        let name = text.to_str().map(|text| OsString::from(kebab(text)));
        self.0.parse_ref(command, flag, name.as_deref().unwrap_or(text))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// Help text of `--variant`: the variants of every instrument.
fn variants() -> String {
    let line = |entry: &'static Entry| {
        let names: Vec<&str> = entry.variants.iter().map(|variant| variant.name).collect();
        format!("{}: {}", entry.name, names.join(", "))
    };
    let lines: Vec<String> = instruments::all().map(line).collect();
    format!("Variant of the instrument; the first is the default ({})", lines.join("; "))
}
