//! `--instrument kernel-damon`: the kernel watches, we write it down.
//!
//! It stands beside the instruments of the registry, not among them: those run on any machine, this
//! one is a part of Linux.

use tierscope_core::{Error, ErrorKind, Missing, Result, Setting, SpaceId};
use tierscope_instruments::region_source::RegionSource;
use tierscope_linux::kernel_damon::{Config, Goal, KernelDamon, Roots, WithKernelDamon};
use tierscope_linux::{LiveMachine, Selection};

use crate::plan::Plan;

/// Its name.
pub const NAME: &str = "kernel-damon";
/// One line for people.
pub const ABOUT: &str = "the kernel's own DAMON, driven and read (no module needed)";
/// Ways to run it: the limits given, limits fit for terabytes, intervals tuned by the kernel.
pub const VARIANTS: [&str; 3] = ["fixed", "wide", "tuned"];

/// Limits on regions that upstream's reviewers asked Telescope to be compared with.
const WIDE: (usize, usize) = (1000, 20_000);

/// The kernel's settings for a plan.
///
/// # Errors
/// [`ErrorKind::Usage`]: no such variant, limits or targets that the kernel's DAMON cannot have.
pub fn config(plan: &Plan) -> Result<Config> {
    let variant = variant(plan)?;
    let Config { min_regions, max_regions, .. } = Config::default();
    let (least, most) = if variant == "wide" { WIDE } else { (min_regions, max_regions) };
    let config = Config {
        sampling: plan.sampling,
        window: plan.window,
        update: plan.update,
        min_regions: plan.min_regions.unwrap_or(least),
        max_regions: plan.max_regions.unwrap_or(most),
        goal: (variant == "tuned").then(Goal::default),
    };
    config.check()?;
    pid(plan)?;
    Ok(config)
}

/// The instrument: it hands on what the kernel says.
///
/// # Errors
/// As [`config`].
pub fn instrument(plan: &Plan) -> Result<RegionSource> {
    let config = config(plan)?;
    let setting = |name, value: String| Setting { name, value };
    let settings = vec![
        setting("variant", variant(plan)?.into()),
        setting("sampling", format!("{:?}", config.sampling)),
        setting("window", format!("{:?}", config.window)),
        setting("update", format!("{:?}", config.update)),
        setting("min-regions", config.min_regions.to_string()),
        setting("max-regions", config.max_regions.to_string()),
    ];
    Ok(RegionSource::new(NAME, settings))
}

/// The target's machine with a kdamond that watches it.
///
/// # Errors
/// As [`LiveMachine::open`] and [`KernelDamon::start`].
pub fn machine(plan: &Plan) -> Result<WithKernelDamon> {
    let machine = LiveMachine::open(&plan.selection, Err(not_wanted()))?;
    let targets = [(pid(plan)?, SpaceId(0))];
    let now = tierscope_core::Clock::now(&machine);
    let damon = KernelDamon::start(&Roots::default(), config(plan)?, &targets, now)?;
    Ok(WithKernelDamon::new(machine, damon))
}

/// What the kernel could not tell, for people; `None` if it told all.
#[must_use]
pub fn losses(machine: &WithKernelDamon) -> Option<String> {
    let damon = machine.damon();
    let lost = damon.lost_windows();
    let overrun =
        if damon.overrun() { "; events were overwritten before they were read" } else { "" };
    (lost > 0 || damon.overrun())
        .then(|| format!("{lost} windows of the kernel's DAMON are missing{overrun}"))
}

fn variant(plan: &Plan) -> Result<&str> {
    let asked = plan.variant.as_deref().unwrap_or(VARIANTS[0]);
    if VARIANTS.contains(&asked) {
        return Ok(asked);
    }
    Err(Error::new(ErrorKind::Usage, format!("no variant of {NAME} is called {asked}"))
        .remedy(format!("choose one of {}", VARIANTS.join(", "))))
}

/// Its targets are told once, at the start.
fn pid(plan: &Plan) -> Result<u32> {
    match plan.selection {
        Selection::Process { pid, children: false } => Ok(pid),
        _ => Err(Error::new(ErrorKind::Usage, format!("{NAME} watches one process"))
            .cause("the kernel is told its targets once, at the start")
            .remedy("give it -p PID without --children")),
    }
}

/// Two that clear the same bits are no use to each other.
fn not_wanted() -> Error {
    Missing {
        port: "access bits",
        cause: "the kernel's DAMON uses them".into(),
        remedy: "choose another instrument".into(),
    }
    .into()
}
