//! The checked arguments of `tierscope tier` and `tierscope reclaim`: invalid ones are rejected
//! here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Instrument, Policy, Result, names};
use tierscope_instruments::metronome::Metronome;
use tierscope_linux::LiveMachine;
use tierscope_linux::tiering::{Limits, TierConfig};
use tierscope_policies::registry::{Entry, Need, by_name};

use super::args::TierArgs;
use super::config::Config;
use crate::instrument_args::InstrumentArgs;
use crate::plan::{Plan, check_output};
use crate::target_args::TargetArgs;

/// A placement run to be made.
#[derive(Debug)]
pub(crate) struct TierPlan {
    /// Target, instrument and output, as for a recording. Without an output nothing is recorded.
    pub(crate) watch: Plan,
    /// Whether a target was given.
    pub(crate) has_target: bool,
    /// Directory of the recording, if there is one.
    pub(crate) output: Option<PathBuf>,
    /// The policy with its settings: NAME or NAME:key=value,...
    pub(crate) policy: String,
    /// The policy's entry in the registry.
    pub(crate) entry: &'static Entry,
    /// Tiers to move memory between.
    pub(crate) tiers: TierConfig,
    /// Limits that the mover enforces.
    pub(crate) limits: Limits,
    /// Path and contents of the configuration file.
    pub(crate) config: Option<(PathBuf, Config)>,
    /// Whether an instrument's regions are to guide a policy that also works without.
    pub(crate) guided: bool,
}

/// Instrument, output directory, and duration.
pub(crate) type Watching = (InstrumentArgs, Option<PathBuf>, Option<Duration>);

/// Kinds of evidence that a live machine can provide.
const LIVE: [Need; 5] =
    [Need::Regions, Need::AccessBits, Need::Samples, Need::PageEvents, Need::Pressure];

impl TierPlan {
    /// Checks flags and configuration, but not yet the machine.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] with cause and remedy.
    pub(crate) fn new(args: TierArgs, line: String) -> Result<Self> {
        let config = match &args.config {
            Some(path) => Some((path.clone(), Config::load(path)?)),
            None => None,
        };
        let none = (PathBuf::new(), Config::default());
        let (path, file) = config.as_ref().unwrap_or(&none);
        let policy = args.policy.clone().or_else(|| file.policy.clone()).ok_or_else(no_policy)?;
        let entry = entry(&policy)?;
        let limits = Limits { dry_run: args.dry_run, ..file.limits(path)? };
        let tiers = file.tier_config(path)?;
        let has_target = args.target.is_given();
        if !has_target && !args.check {
            return Err(Error::new(ErrorKind::Usage, "cannot place memory")
                .cause("no target is given")
                .remedy("name one with -p PID, --cgroup PATH, --name PATTERN or --all"));
        }
        let mut how = args.how;
        // The file's variant is one of the file's instrument.
        if how.instrument.is_none() {
            how.instrument.clone_from(&file.instrument);
            how.variant = how.variant.or_else(|| file.variant.clone());
        }
        if entry.reclaims {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("policy {} moves nothing", entry.name),
            )
            .cause("it reclaims memory: that is `tierscope reclaim`")
            .remedy(format!("choose from {}", live_names().join(", "))));
        }
        let watching = (how, args.output, args.duration);
        let plan = Self::without_tiers(policy, limits, args.target, watching, line)?;
        Ok(Self { has_target, tiers, config, ..plan })
    }

    /// A run without tiers and configuration file, as `tierscope reclaim` makes it.
    ///
    /// # Errors
    /// As [`TierPlan::new`].
    pub(crate) fn without_tiers(
        policy: String,
        limits: Limits,
        target: TargetArgs,
        (how, output, duration): Watching,
        line: String,
    ) -> Result<Self> {
        let policy = names::kebab_line(&policy);
        let entry = entry(&policy)?;
        if let Some(output) = &output {
            check_output(output)?;
        }
        let selection = target.selection(Vec::new());
        let mut watch = Plan::watching(selection, how, output.clone().unwrap_or_default(), line)?;
        watch.duration = duration;
        watch.annotations.insert("policy".into(), policy.clone());
        let plan = Self {
            watch: watch.checked()?,
            has_target: true,
            output,
            policy,
            entry,
            tiers: TierConfig::default(),
            limits,
            config: None,
            guided: false,
        };
        plan.make_policy()?;
        Ok(plan)
    }

    /// Builds the policy.
    ///
    /// # Errors
    /// Its settings are invalid.
    pub(crate) fn make_policy(&self) -> Result<Box<dyn Policy>> {
        tierscope_policies::make(&self.policy)
    }

    /// Builds the instrument, if the policy works on regions; otherwise a stub that only marks
    /// windows: the ACCESSED bits belong to the policy then, and no instrument may clear them.
    ///
    /// # Errors
    /// Its settings are invalid.
    pub(crate) fn make_instrument(&self) -> Result<Box<dyn Instrument>> {
        match self.wants_regions() {
            true => self.watch.build_instrument(),
            false => Ok(Box::new(Metronome::new(self.watch.window))),
        }
    }

    /// Whether the policy works on an instrument's regions.
    #[must_use]
    pub(crate) fn wants_regions(&self) -> bool {
        self.guided || self.entry.needs.contains(&Need::Regions)
    }

    /// Chooses the instrument, if the policy works on regions and the machine is to choose.
    ///
    /// # Errors
    /// As [`Plan::settle`].
    pub(crate) fn settle(&mut self) -> Result<()> {
        if self.wants_regions() { self.watch.settle() } else { Ok(()) }
    }

    /// Opens the target with what the run needs.
    ///
    /// # Errors
    /// As [`LiveMachine::for_needs`].
    pub(crate) fn machine(&self) -> Result<LiveMachine> {
        LiveMachine::for_needs(&self.watch.selection, &self.needs(), &self.watch.sources()?)
    }

    /// What the policy needs of the machine, and the instrument if the policy works on regions.
    #[must_use]
    pub(crate) fn needs(&self) -> Vec<Need> {
        let of_instrument: &[Need] = match self.wants_regions() {
            true => self.watch.instrument.needs,
            false => &[],
        };
        [self.entry.needs, of_instrument].concat()
    }
}

/// Registry entry of the policy in `NAME:key=value,...`, if it can work live.
fn entry(line: &str) -> Result<&'static Entry> {
    let name = line.split(':').next().unwrap_or_default();
    let Some(entry) = by_name(name) else {
        // The error of `make` lists the policies.
        return Err(tierscope_policies::make(line).map_or_else(|error| error, |_| no_policy()));
    };
    let lacking: Vec<String> = entry.lacks(&LIVE).map(|need| need.to_string()).collect();
    if lacking.is_empty() {
        return Ok(entry);
    }
    Err(Error::new(
        ErrorKind::Missing,
        format!("policy {} cannot work on a live machine", entry.name),
    )
    .cause(format!(
        "it needs {}, which no program can make in another process",
        lacking.join(" and ")
    ))
    .remedy(format!("choose from {}; or simulate it", live_names().join(", "))))
}

/// Names of the placement policies that can work with a live machine's evidence.
#[must_use]
pub(crate) fn live_names() -> Vec<&'static str> {
    let live = |entry: &&Entry| entry.lacks(&LIVE).next().is_none() && !entry.reclaims;
    tierscope_policies::all().iter().filter(live).map(|entry| entry.name).collect()
}

fn no_policy() -> Error {
    Error::new(ErrorKind::Usage, "cannot decide what to move")
        .cause("no policy is given")
        .remedy(format!("give one with --policy: {}", live_names().join(", ")))
}

/// Reloads the limits from the file, and checks whether other changes need a restart; on `Err`
/// nothing changes.
///
/// # Errors
/// As [`Config::load`].
pub(crate) fn read_again(path: &Path, before: &Config, dry_run: bool) -> Result<(Limits, bool)> {
    let config = Config::load(path)?;
    let limits = Limits { dry_run, ..config.limits(path)? };
    Ok((limits, before.wants_restart(&config)))
}

/// End of the run; `NEVER` without a duration.
pub(crate) fn until(plan: &TierPlan, now: tierscope_core::Time) -> tierscope_core::Time {
    let end = |duration: Duration| now + duration;
    plan.watch.duration.map_or(tierscope_core::Time::NEVER, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};

    fn plan(flags: &str) -> Result<TierPlan> {
        let line = format!("tierscope tier {flags}");
        let cli = parse(line.split_whitespace().map(Into::into)).unwrap();
        let Command::Tier(args) = cli.command else { unreachable!("it says tier") };
        TierPlan::new(*args, line)
    }

    fn refused(flags: &str) -> (ErrorKind, String) {
        let error = plan(flags).unwrap_err();
        (error.kind(), error.to_string())
    }

    #[test]
    fn regions_come_from_the_machines_best_instrument_unless_said_otherwise() {
        assert_eq!(plan("-p 1 --policy hot-region").unwrap().watch.instrument.name, "auto");
        let regions = plan("-p 1 --policy hot-region --instrument rates").unwrap();
        assert_eq!((regions.watch.instrument.name, &regions.watch.variant), ("rates", &None));
        assert_eq!(regions.make_instrument().unwrap().name(), "rates");
        assert_eq!(regions.needs(), [Need::Regions, Need::AccessBits]);
        let other = plan("-p 1 --policy hot-region --instrument pebs").unwrap();
        assert!(other.watch.variant.is_none());
        assert_eq!(other.needs(), [Need::Regions, Need::Samples]);
    }

    #[test]
    fn no_instrument_clears_bits_of_a_policy() {
        let plan = plan("-p 1 --policy multi-clock").unwrap();
        assert_eq!(plan.make_instrument().unwrap().name(), "none");
        assert!(plan.needs().contains(&Need::AccessBits) && !plan.wants_regions());
    }

    #[test]
    fn all_that_the_issue_names_work_live() {
        let names = live_names();
        for name in
            ["static", "multi-clock", "nimble-selection", "nimble", "hot-region", "hemem", "memtis"]
        {
            assert!(names.contains(&name), "{name}");
        }
        assert!(!names.contains(&"autonuma") && !names.contains(&"thermostat"));
    }

    #[test]
    fn contradictory_flags_are_refused() {
        for (flags, kind, cause) in [
            ("-p 1", ErrorKind::Usage, "no policy is given"),
            ("--policy static", ErrorKind::Usage, "no target is given"),
            ("-p 1 --policy poem", ErrorKind::Usage, "poem"),
            ("-p 1 --policy hot-region:share=2", ErrorKind::Usage, "share"),
            ("-p 1 --policy hot-region --variant loose", ErrorKind::Usage, "loose"),
            ("-p 1 --policy hot-region --variant guided", ErrorKind::Usage, "use instrument rates"),
            ("-p 1 --policy static --config /no/such/file", ErrorKind::Usage, "/no/such/file"),
            ("-p 1 --policy autonuma", ErrorKind::Missing, "hint faults"),
            ("-p 1 --policy static --duration 1ms", ErrorKind::Usage, "not one window"),
        ] {
            let (found, text) = refused(flags);
            assert!(
                found == kind && text.contains(cause) && text.contains("; "),
                "{flags}: {text}"
            );
        }
        assert!(plan("--check --policy static").is_ok());
    }

    #[test]
    fn a_removed_variant_in_a_file_has_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tier.toml");
        for text in ["variant = \"guided\"\n", "instrument = \"telescope\"\nvariant = \"guided\"\n"]
        {
            std::fs::write(&path, format!("policy = \"hot-region\"\n{text}")).unwrap();
            let (kind, said) = refused(&format!("-p 1 --config {}", path.display()));
            assert!(kind == ErrorKind::Usage && said.contains("use instrument rates"), "{said}");
        }
    }

    #[test]
    fn flags_override_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tier.toml");
        let text = "policy = \"static\"\ninstrument = \"damon\"\n[limits]\nstalled = 0.5\n";
        std::fs::write(&path, text).unwrap();
        let of = |flags: &str| plan(&format!("-p 1 --config {} {flags}", path.display())).unwrap();
        let file = of("--dry-run");
        assert_eq!((&*file.policy, file.watch.instrument.name), ("static", "damon"));
        assert_eq!((file.limits.stalled, file.limits.dry_run), (0.5, true));
        assert_eq!(of("--instrument telescope").watch.instrument.name, "telescope");
        assert_eq!(of("--instrument rates").watch.instrument.name, "rates");
        assert_eq!(of("--policy hot-region").policy, "hot-region");
        assert_eq!(of("--policy hot_region:verify_pages=4").policy, "hot-region:verify-pages=4");
        let before = &file.config.as_ref().unwrap().1;
        std::fs::write(&path, text.replace("0.5", "0.7").replace("damon", "scan")).unwrap();
        let (limits, restart) = read_again(&path, before, true).unwrap();
        assert_eq!((limits.stalled, limits.dry_run, restart), (0.7, true, true));
    }
}
