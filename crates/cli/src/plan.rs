//! The checked arguments of `tierscope record`: invalid values are rejected here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args};
use tierscope_core::{Error, ErrorKind, Instrument, Result};
use tierscope_instruments::pebs;
use tierscope_instruments::registry::{Common, Entry};
use tierscope_linux::doctor::{self, Best, Scene};
use tierscope_linux::module::Sharing;
use tierscope_linux::{Selection, Sources, check_needs};
use tierscope_record::Access;
use tierscope_record::series::Retention;

use crate::instrument_args::InstrumentArgs;
use crate::print::note;
use crate::retention_args::RetentionArgs;
use crate::target_args::{TARGETS, TargetArgs};
use crate::units::{self, exact_time};
use crate::{instruments, kernel_damon, retention_args};

/// Shortest sampling interval: below it a probe of a region takes longer than the interval.
const LEAST_SAMPLING: Duration = Duration::from_micros(100);
/// Longest sampling interval, window and update interval.
const LONGEST: Duration = Duration::from_secs(3600);

/// Flags of `tierscope record`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").required(true).multiple(true).args(TARGETS).arg("program")))]
pub struct RecordArgs {
    /// The processes to watch.
    #[command(flatten)]
    pub target: TargetArgs,

    /// Start COMMAND and watch it with all its descendants; if it is still running at the end, it
    /// is ended with SIGTERM
    #[arg(last = true, value_name = "COMMAND")]
    #[arg(conflicts_with_all = TARGETS, conflicts_with = "children")]
    pub program: Vec<OsString>,

    /// Directory to write the recording to; must be new or empty, or hold a series to continue
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// The instrument and its settings.
    #[command(flatten)]
    pub how: InstrumentArgs,

    /// Duration of the recording; by default until the target ends, or until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub duration: Option<Duration>,

    /// How the recording is kept.
    #[command(flatten)]
    pub keep: RetentionArgs,

    /// An annotation to store in the recording; can be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
    pub annotate: Vec<(String, String)>,

    /// Print a summary of the recording as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

fn annotation(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("give it like KEY=VALUE".into()),
    }
}

/// A recording to be made.
#[derive(Debug)]
pub struct Plan {
    /// The processes to watch.
    pub selection: Selection,
    /// Instrument to watch it with.
    pub instrument: &'static Entry,
    /// Variant of the instrument; `None` for its first.
    pub variant: Option<String>,
    /// Sampling interval.
    pub sampling: Duration,
    /// Length of a window: time between two snapshots.
    pub window: Duration,
    /// Interval at which mappings are read again.
    pub update: Duration,
    /// Smallest number of regions; `None` for the instrument's default.
    pub min_regions: Option<usize>,
    /// Largest number of regions; `None` for the instrument's default.
    pub max_regions: Option<usize>,
    /// Limit on the CPU time of watching, as a share of one CPU.
    pub cpu: f64,
    /// Whether the target's TLB entries are never flushed.
    pub no_flush: bool,
    /// Whether other sessions may clear the target's ACCESSED bits.
    pub sharing: Sharing,
    /// Seed of all random choices.
    pub seed: u64,
    /// Duration; `None` records until the target ends.
    pub duration: Option<Duration>,
    /// Output directory.
    pub output: PathBuf,
    /// Retention of a series; `None` for a single recording.
    pub retention: Option<Retention>,
    /// Access to the files.
    pub access: Access,
    /// Annotations to store in the recording.
    pub annotations: BTreeMap<String, String>,
    /// The command line, to store in the recording.
    pub command: String,
}

impl Plan {
    /// Checks the arguments, but not yet whether the target and the kernel module exist.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] with cause and remedy.
    pub fn new(args: RecordArgs, command: String) -> Result<Self> {
        let selection = args.target.selection(args.program);
        let plan = Self {
            duration: args.duration,
            retention: args.keep.retention(),
            access: args.keep.access()?,
            annotations: args.annotate.into_iter().collect(),
            ..Self::watching(selection, args.how, args.output, command)?
        };
        plan.checked()
    }

    /// A plan to record until the target ends, not yet checked.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if there is no such instrument.
    pub fn watching(
        selection: Selection,
        how: InstrumentArgs,
        output: PathBuf,
        command: String,
    ) -> Result<Self> {
        Ok(Self {
            selection,
            instrument: instruments::asked(how.instrument.as_deref(), how.variant.as_deref())?,
            variant: how.variant,
            sampling: how.sampling,
            window: how.window,
            update: how.update,
            min_regions: how.min_regions,
            max_regions: how.max_regions,
            cpu: how.cpu,
            no_flush: how.no_flush,
            sharing: if how.share_bits { Sharing::Shared } else { Sharing::Alone },
            seed: how.seed,
            duration: None,
            output,
            retention: None,
            access: Access::default(),
            annotations: BTreeMap::new(),
            command,
        })
    }

    /// Checks the plan.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn checked(self) -> Result<Self> {
        check_intervals(&self)?;
        match &self.retention {
            None => check_output(&self.output)?,
            // `SeriesRecorder` checks the directory of a series itself.
            Some(retention) => retention_args::check(retention, self.window)?,
        }
        check_needs(&format!("instrument {}", self.instrument.name), self.instrument.needs)?;
        self.build_instrument()?;
        Ok(self)
    }

    /// Chooses the instrument if that is left to the machine, and prints what it misses if it is
    /// not the first choice.
    ///
    /// # Errors
    /// No instrument can work on this machine; or the settings are invalid for the choice.
    pub fn settle(&mut self) -> Result<()> {
        if self.instrument.name != instruments::AUTO.name {
            return Ok(());
        }
        let best = doctor::best_way(&Scene::here())?;
        if let Some(text) = second_best(&best) {
            note!("{text}");
        }
        self.instrument = instruments::by_name(best.way.instrument)?;
        self.variant = best.variant.map(str::to_owned);
        self.build_instrument().map(drop)
    }

    /// How evidence is taken for the instrument.
    ///
    /// # Errors
    /// The settings are invalid for the kernel's DAMON, and it is the instrument.
    pub(crate) fn sources(&self) -> Result<Sources> {
        let (default, variant) = (Sources::default(), self.variant.as_deref());
        let damon = match self.instrument.name == kernel_damon::ENTRY.name {
            true => kernel_damon::config(variant, &self.common())?,
            false => default.damon,
        };
        let frequency = match self.instrument.name == pebs::ENTRY.name {
            true => pebs::frequency(variant),
            false => default.frequency,
        };
        Ok(Sources { sharing: self.sharing, damon, frequency })
    }

    /// Builds the instrument.
    ///
    /// # Errors
    /// The settings are invalid for the instrument.
    pub fn build_instrument(&self) -> Result<Box<dyn Instrument>> {
        self.instrument.make(self.variant.as_deref(), &self.common())
    }

    /// Settings that instruments share.
    pub(crate) fn common(&self) -> Common {
        Common {
            sampling: Some(self.sampling),
            window: Some(self.window),
            update: Some(self.update),
            min_regions: self.min_regions,
            max_regions: self.max_regions,
            seed: Some(self.seed),
            cpu: Some(self.cpu),
            flush: Some(!self.no_flush),
        }
    }
}

/// What the choice misses, and why it is not the first one; `None` if it is.
fn second_best(best: &Best) -> Option<String> {
    let instead = best.instead.as_ref()?;
    let way = &best.way;
    Some(format!(
        "watching by {} instead of {}, because of the {} ({}): {}",
        way.instrument,
        doctor::WAYS[0].instrument,
        instead.title,
        instead.finding.found,
        way.misses
    ))
}

fn check_intervals(plan: &Plan) -> Result<()> {
    let Plan { sampling, window, update, duration, .. } = plan;
    let refuse = |what: &str, time: &Duration, cause: String, remedy: &str| {
        Err(Error::new(
            ErrorKind::Usage,
            format!("cannot record with {what} {}", exact_time(*time)),
        )
        .cause(cause)
        .remedy(remedy))
    };
    for (what, time) in [("--sampling", sampling), ("--window", window), ("--update", update)] {
        if *time > LONGEST {
            return refuse(what, time, "that is more than an hour".into(), "choose a shorter time");
        }
    }
    if *sampling < LEAST_SAMPLING {
        let cause = "a look takes time itself: the least is 100us".into();
        return refuse("--sampling", sampling, cause, "try --sampling 5ms");
    }
    if *window < 2 * *sampling {
        let cause = format!("it has to hold two sampling intervals of {}", exact_time(*sampling));
        return refuse("--window", window, cause, "make it 40 sampling intervals");
    }
    if update.is_zero() {
        let cause = "mappings cannot be read without pause".into();
        return refuse("--update", update, cause, "try --update 1s");
    }
    match duration {
        Some(duration) if duration < window => {
            let cause = format!("not one window of {} would end", exact_time(*window));
            refuse("--duration", duration, cause, "record longer, or with a shorter --window")
        }
        _ => Ok(()),
    }
}

/// Refuses an existing output early, before anything is started: a recording is never appended to.
pub(crate) fn check_output(path: &Path) -> Result<()> {
    let refuse = |cause: &str| {
        Err(Error::new(ErrorKind::Usage, format!("cannot create recording {}", path.display()))
            .cause(cause)
            .remedy("choose a new directory, or remove this one first"))
    };
    match path.read_dir().map(|entries| entries.count()) {
        Ok(1..) => refuse("the directory is not empty"),
        Err(_) if path.exists() && !path.is_dir() => refuse("it is not a directory"),
        // Other problems with the path are reported when the recording is created.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Need;

    use crate::args::{Command, parse};

    fn plan(flags: &str) -> Result<Plan> {
        let line = format!("tierscope record -p 1 -o /nowhere/yet {flags}");
        let cli = parse(line.split_whitespace().map(Into::into)).unwrap();
        let Command::Record(args) = cli.command else { unreachable!("it says record") };
        Plan::new(args, line)
    }

    /// The instrument's own name for a setting.
    fn setting(plan: &Plan, name: &str) -> String {
        let settings = plan.build_instrument().unwrap().settings();
        settings.into_iter().find(|setting| setting.name == name).unwrap().value
    }

    #[test]
    fn an_instrument_that_no_live_machine_can_feed_is_refused() {
        let error = plan("--instrument hint-fault").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.to_string().contains("user space cannot arm them"), "{error}");
        assert_eq!(plan("--instrument hint_fault").unwrap_err(), error);
    }

    #[test]
    fn instruments_need_their_evidence() {
        let needs = |name: &str| plan(&format!("--instrument {name}")).unwrap().instrument.needs;
        assert_eq!(needs("rates"), [Need::AccessBits]);
        assert_eq!((needs("pebs"), needs("nemo")), (&[Need::Samples][..], &[Need::Counters][..]));
        assert_eq!(needs("kernel-damon"), [Need::RegionSource]);
    }

    #[test]
    fn the_choice_is_left_to_the_machine_unless_said_otherwise() {
        assert_eq!(plan("").unwrap().instrument.name, "auto");
        assert_eq!(plan("--instrument auto").unwrap().instrument.name, "auto");
        assert_eq!(plan("--instrument scan").unwrap().instrument.name, "scan");
        // A variant is one of the first choice.
        assert!(plan("--variant guided").unwrap_err().to_string().contains("variant of rates"));
    }

    #[test]
    fn a_choice_that_is_not_the_first_says_what_it_misses() {
        let best = |way: usize, instead| Best { way: doctor::WAYS[way], variant: None, instead };
        assert_eq!(second_best(&best(0, None)), None);
        let finding = doctor::Finding {
            verdict: doctor::Verdict::Missing,
            found: "not loaded".into(),
            remedy: String::new(),
        };
        let module = doctor::Answer { id: "module", group: "", title: "kernel module", finding };
        let text = second_best(&best(2, Some(module))).unwrap();
        assert!(
            text.starts_with(
                "watching by kernel-damon instead of rates, because of the kernel module (not loaded): \
                 it reports regions"
            ),
            "{text}"
        );
    }

    #[test]
    fn rates_stay_within_a_hundredth_of_a_cpu() {
        let plan = plan("").unwrap();
        assert_eq!(plan.duration, None);
        assert_eq!(plan.build_instrument().unwrap().name(), "rates");
        for (name, value) in
            [("sampling", "5ms"), ("window", "200ms"), ("cpu", "1%"), ("flush", "yes")]
        {
            assert_eq!(setting(&plan, name), value);
        }
    }

    #[test]
    fn telescope_s_defaults_are_the_papers() {
        let plan = plan("--instrument telescope").unwrap();
        for (name, value) in [
            ("variant", "bounded"),
            ("sampling", "5ms"),
            ("window", "200ms"),
            ("min-regions", "10"),
            ("max-regions", "1000"),
        ] {
            assert_eq!(setting(&plan, name), value);
        }
    }

    #[test]
    fn flags_reach_the_instrument() {
        let plan = plan(
            "--instrument telescope --variant flexible --sampling 10ms --window 1s --seed 9 --max-regions 50 --annotate a=b=c",
        );
        let plan = plan.unwrap();
        for (name, value) in
            [("variant", "flexible"), ("sampling", "10ms"), ("seed", "9"), ("max-regions", "50")]
        {
            assert_eq!(setting(&plan, name), value);
        }
        assert_eq!(plan.annotations["a"], "b=c");
    }

    #[test]
    fn a_variant_of_another_instrument_is_refused() {
        let text = plan("--instrument damon --variant bounded").unwrap_err().to_string();
        assert!(text.contains("choose one of fixed"), "{text}");
    }

    #[test]
    fn a_removed_variant_in_a_service_has_a_remedy() {
        for flags in ["--variant guided", "--instrument telescope --variant guided"] {
            let text = plan(flags).unwrap_err().to_string();
            assert!(text.contains("it was removed; use instrument rates"), "{text}");
        }
    }

    #[test]
    fn the_kernels_damon_has_limits_of_its_own() {
        let limits = |flags: &str| {
            let plan = plan(&format!("--instrument kernel-damon {flags}")).unwrap();
            ["min-regions", "max-regions"].map(|name| setting(&plan, name))
        };
        assert_eq!(limits(""), ["10", "1000"]);
        assert_eq!(limits("--variant wide"), ["1000", "20000"]);
        assert_eq!(limits("--variant wide --max-regions 5000"), ["1000", "5000"]);
    }

    #[test]
    fn the_kernels_damon_refuses_unsupported_flags() {
        for (flags, cause) in [
            ("--variant narrow", "choose one of fixed, wide, tuned"),
            ("--min-regions 2", "3 <= min-regions"),
        ] {
            let error = plan(&format!("--instrument kernel-damon {flags}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{flags}");
            assert!(error.to_string().contains(cause), "{flags}: {error}");
        }
    }

    #[test]
    fn absurd_intervals_are_refused_with_cause_and_remedy() {
        for (flags, cause) in [
            ("--sampling 0s", "the least is 100us"),
            ("--sampling 1ns", "the least is 100us"),
            ("--window 1ms", "two sampling intervals of 5ms"),
            ("--window 9ms", "two sampling intervals"),
            ("--sampling 2h --window 3h", "more than an hour"),
            ("--window 61min", "more than an hour"),
            ("--update 0s", "without pause"),
            ("--duration 100ms", "not one window of 200ms"),
            ("--instrument telescope --min-regions 0", "1 <= min <= max"),
            ("--instrument telescope --min-regions 10 --max-regions 9", "1 <= min <= max"),
        ] {
            let error = plan(flags).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{flags}");
            let text = error.to_string();
            assert!(text.contains(cause) && text.contains("; "), "{flags}: {text}");
        }
    }

    #[test]
    fn the_output_must_be_new_or_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(check_output(dir.path()), Ok(()));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(check_output(dir.path()).unwrap_err().to_string().contains("not empty"));
        assert!(check_output(&file).unwrap_err().to_string().contains("not a directory"));
    }
}
