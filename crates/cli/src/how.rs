//! How to watch: the flags that every command which watches a target has.

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use tierscope_instruments::registry::{self, Entry};

use crate::{kernel_damon, units};

/// The instrument and its settings.
#[derive(Clone, Debug, Args)]
pub struct HowArgs {
    /// Technique to watch with
    #[arg(long, value_name = "NAME", default_value = "rates", value_parser = instruments())]
    pub instrument: String,

    /// How the instrument goes about it.
    #[arg(long, value_name = "NAME", help = variants())]
    pub variant: Option<String>,

    /// Time between two looks at a region
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = units::duration)]
    pub sampling: Duration,

    /// Time from one snapshot to the next
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = units::duration)]
    pub window: Duration,

    /// Time after which processes and mappings are looked up anew
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub update: Duration,

    /// For telescope and damon: no region grows beyond the mapped bytes over this
    ///
    /// [default: 10; 1000 for kernel-damon wide]
    #[arg(long, value_name = "N")]
    pub min_regions: Option<usize>,

    /// For telescope and damon: regions never split beyond this many
    ///
    /// [default: 1000; 20000 for kernel-damon wide]
    #[arg(long, value_name = "N")]
    pub max_regions: Option<usize>,

    /// For rates: most CPU time that watching may take, of one CPU; more memory then takes longer
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = units::share)]
    pub cpu: f64,

    /// For rates: never flush the target's translations; what TLBs hold then cannot be judged
    #[arg(long)]
    pub no_flush: bool,

    /// Seed of the random addresses to look at
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Names of the instruments, for clap.
fn instruments() -> PossibleValuesParser {
    let value = |entry: &Entry| PossibleValue::new(entry.name).help(entry.about);
    let kernels = PossibleValue::new(kernel_damon::NAME).help(kernel_damon::ABOUT);
    registry::list().iter().map(value).chain([kernels]).collect::<Vec<_>>().into()
}

/// What `--variant` says of itself: the variants of every instrument.
fn variants() -> String {
    let line = |entry: &Entry| {
        let names: Vec<&str> = entry.variants.iter().map(|variant| variant.name).collect();
        format!("{}: {}", entry.name, names.join(", "))
    };
    let kernels = format!("{}: {}", kernel_damon::NAME, kernel_damon::VARIANTS.join(", "));
    let lines: Vec<String> = registry::list().iter().map(line).chain([kernels]).collect();
    format!("How the instrument goes about it; the first is the default ({})", lines.join("; "))
}
