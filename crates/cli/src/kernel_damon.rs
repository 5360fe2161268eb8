//! `--instrument kernel-damon`: the kernel's own DAMON watches, and tierscope records its regions.
//!
//! It is not in the registry of instruments: those run on any machine, this one is a part of Linux.

use tierscope_core::{Instrument, Need, Result, Setting};
use tierscope_instruments::region_source::RegionSource;
use tierscope_instruments::registry::{Common, CostClass, Entry, Variant};
use tierscope_linux::LiveMachine;
use tierscope_linux::kernel_damon::{Config, Goal};

/// Name of the instrument on the command line.
const NAME: &str = "kernel-damon";

/// The instrument, as the registry describes others.
pub static ENTRY: Entry = Entry {
    name: NAME,
    about: "the kernel's own DAMON, driven and read (no module needed)",
    needs: &[Need::RegionSource],
    granularity: "regions",
    variants: &[
        Variant { name: "fixed", about: "limits on regions as given", cost: CostClass::Bounded },
        Variant {
            name: "wide",
            about: "1,000 to 20,000 regions, for terabytes",
            cost: CostClass::Bounded,
        },
        Variant {
            name: "tuned",
            about: "intervals tuned by the kernel (Linux 6.15)",
            cost: CostClass::Bounded,
        },
    ],
    removed: &[],
    make,
};

/// Limits on the number of regions, which upstream's reviewers asked Telescope to be compared with.
const WIDE: (usize, usize) = (1000, 20_000);

/// The kernel's DAMON settings for a variant.
///
/// # Errors
/// The settings contradict.
pub(crate) fn config(variant: Option<&str>, common: &Common) -> Result<Config> {
    let variant = variant.unwrap_or(ENTRY.variants[0].name);
    let default = Config::default();
    let (least, most) = match variant {
        "wide" => WIDE,
        _ => (default.min_regions, default.max_regions),
    };
    let config = Config {
        sampling: common.sampling.unwrap_or(default.sampling),
        window: common.window.unwrap_or(default.window),
        update: common.update.unwrap_or(default.update),
        min_regions: common.min_regions.unwrap_or(least),
        max_regions: common.max_regions.unwrap_or(most),
        goal: (variant == "tuned").then(Goal::default),
    };
    config.check()?;
    Ok(config)
}

/// The instrument: it passes on the kernel's regions.
fn make(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let config = config(Some(variant), common)?;
    let setting = |name, value: String| Setting { name, value };
    let settings = vec![
        setting("variant", variant.into()),
        setting("sampling", format!("{:?}", config.sampling)),
        setting("window", format!("{:?}", config.window)),
        setting("update", format!("{:?}", config.update)),
        setting("min-regions", config.min_regions.to_string()),
        setting("max-regions", config.max_regions.to_string()),
    ];
    Ok(Box::new(RegionSource::new(NAME, settings)))
}

/// Message about windows or regions that the kernel did not deliver; `None` if there were no
/// losses.
#[must_use]
pub fn losses(machine: &LiveMachine) -> Option<String> {
    let damon = machine.kernel_damon()?;
    let lost = damon.lost_windows();
    let overrun =
        if damon.overrun() { "; events were overwritten before they were read" } else { "" };
    (lost > 0 || damon.overrun())
        .then(|| format!("{lost} windows of the kernel's DAMON are missing{overrun}"))
}
