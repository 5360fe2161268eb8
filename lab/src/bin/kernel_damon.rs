//! `kernel-damon`: measures the accuracy and the cost of the kernel's DAMON on a process whose hot
//! set is known.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;
use tierscope_core::drive::{Course, Sink, Window, profile};
use tierscope_core::metrics::rates::{GRANULE, TrueRates, oracle_share};
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY, hot};
use tierscope_core::{
    Clock, Error, ErrorKind, Need, PAGE_SIZE, Range, RangeSet, Result, SpaceId, Target, Time,
};
use tierscope_instruments::region_source::RegionSource;
use tierscope_linux::kernel_damon::{Config, Roots};
use tierscope_linux::{LiveMachine, Selection, Sources};

/// Observe a process with the kernel's DAMON. Exit codes: 0 the threshold is met, 1 it is not, 2
/// wrong use.
#[derive(Parser)]
struct Cli {
    /// Process to observe.
    pid: u32,
    /// Start address of the hot set.
    start: u64,
    /// End address of the hot set (exclusive).
    end: u64,
    /// Seconds to observe.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Minimum number of regions.
    #[arg(long, default_value_t = 10)]
    min_regions: usize,
    /// Maximum number of regions.
    #[arg(long, default_value_t = 1000)]
    max_regions: usize,
    /// Sampling interval in milliseconds.
    #[arg(long, default_value_t = 5)]
    sampling: u64,
    /// Aggregation interval in milliseconds.
    #[arg(long, default_value_t = 200)]
    window: u64,
    /// Let DAMON split giant regions at hints (patches/damon-split-hints).
    #[arg(long)]
    hints: bool,
    /// Percentage of the touches that go to any of the memory from `--first` to `--last`.
    #[arg(long, default_value_t = 0.0)]
    background: f64,
    /// Start address of all memory; by default of the hot set.
    #[arg(long)]
    first: Option<u64>,
    /// End address of all memory; by default of the hot set.
    #[arg(long)]
    last: Option<u64>,
    /// Minimum for the mean recall and precision over the second half of the windows.
    #[arg(long, default_value_t = 0.0)]
    bar: f64,
}

/// Results of the measurement.
#[derive(Debug, Serialize)]
struct Report {
    windows: usize,
    regions_mean: f64,
    /// Mean over the second half of the windows.
    recall: f64,
    precision: f64,
    /// Share of the accesses that as many bytes as are hot serve, chosen by DAMON, over the share
    /// of the hot set.
    oracle: f64,
    /// Windows until precision and recall are both at least 0.9 for the first time.
    found_after: Option<usize>,
    window_ms: f64,
    /// CPU usage of kdamond and this process; 1 = one CPU.
    profiler_cpu: f64,
    kdamond_cpu: f64,
    lost_windows: u64,
    overrun: bool,
}

/// Accuracy, number of regions and oracle share of each window.
struct Score {
    truth: RangeSet,
    rates: TrueRates,
    windows: Vec<(Accuracy, usize, f64)>,
    first: Option<Time>,
    last: Time,
}

impl Sink for Score {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let snapshot = window.snapshot;
        let accuracy = Accuracy::of(&hot(snapshot, HOT_FREQUENCY), &self.truth);
        let mapped = snapshot.regions.iter().map(|region| region.range.bytes()).sum();
        let hot = self.truth.bytes();
        let oracle = oracle_share(snapshot, &self.rates, mapped, hot, GRANULE).unwrap_or(0.0);
        let regions = snapshot.regions.len();
        self.windows.push((accuracy, regions, oracle));
        self.first.get_or_insert(snapshot.start);
        self.last = snapshot.end;
        Ok(())
    }
}

impl Score {
    /// Mean over the second half of the windows.
    fn late(&self, figure: impl Fn(&(Accuracy, usize, f64)) -> f64) -> f64 {
        mean(self.windows[self.windows.len() / 2..].iter().map(figure))
    }

    fn regions_mean(&self) -> f64 {
        mean(self.windows.iter().map(|(_, regions, _)| *regions as f64))
    }

    fn found_after(&self) -> Option<usize> {
        let enough = |share: Option<f64>| share.is_some_and(|share| share >= 0.9);
        let good =
            |(of, ..): &(Accuracy, usize, f64)| enough(of.precision()) && enough(of.recall());
        self.windows.iter().position(good).map(|before| before + 1)
    }

    fn window_ms(&self) -> f64 {
        let span = self.last.since(self.first.unwrap_or_default());
        span.as_secs_f64() * 1e3 / self.windows.len().max(1) as f64
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1);
    values.sum::<f64>() / count as f64
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match watch(&cli) {
        Ok(report) => {
            println!("{}", serde_json::to_string(&report).unwrap_or_default());
            let holds = report.recall >= cli.bar && report.precision >= cli.bar;
            ExitCode::from(u8::from(!holds || report.windows == 0))
        }
        Err(error) => {
            eprintln!("kernel-damon: {error}");
            ExitCode::FAILURE
        }
    }
}

fn watch(cli: &Cli) -> Result<Report> {
    let space = SpaceId(0);
    let selection = Selection::Process { pid: cli.pid, children: false };
    let config = Config {
        sampling: Duration::from_millis(cli.sampling),
        window: Duration::from_millis(cli.window),
        min_regions: cli.min_regions,
        max_regions: cli.max_regions,
        ..Config::default()
    };
    let (needs, sources) = ([Need::RegionSource], Sources { damon: config, ..Sources::default() });
    let mut machine = LiveMachine::for_needs(&selection, &needs, &sources)?;
    if cli.hints {
        use_hints(&Roots::default().admin)?;
    }
    let truth = [Range::new(space, cli.start, cli.end)].into_iter().collect();
    let rates = rates(cli, space);
    let mut score = Score { truth, rates, windows: Vec::new(), first: None, last: Time(0) };
    let course = Course::until(machine.now() + Duration::from_secs(cli.seconds));
    let began = machine.now();
    let mut instrument = RegionSource::new("kernel-damon", Vec::new());
    profile(&mut machine, &mut instrument, &course, &mut score)?;
    let wall = machine.now().since(began).as_secs_f64();
    let damon = machine.kernel_damon().expect("it was needed");
    Ok(Report {
        windows: score.windows.len(),
        regions_mean: score.regions_mean(),
        recall: score.late(|(of, ..)| of.recall().unwrap_or(0.0)),
        precision: score.late(|(of, ..)| of.precision().unwrap_or(0.0)),
        oracle: score.late(|(.., oracle)| *oracle),
        found_after: score.found_after(),
        window_ms: score.window_ms(),
        profiler_cpu: machine.cpu_time().profiler.as_secs_f64() / wall,
        kdamond_cpu: damon.cpu_time().as_secs_f64() / wall,
        lost_windows: damon.lost_windows(),
        overrun: damon.overrun(),
    })
}

/// Touches per second and page, of one touch a second.
fn rates(cli: &Cli, space: SpaceId) -> TrueRates {
    let hot = Range::new(space, cli.start, cli.end);
    let all = Range::new(space, cli.first.unwrap_or(cli.start), cli.last.unwrap_or(cli.end));
    let pages = |range: &Range| range.bytes() as f64 / PAGE_SIZE as f64;
    let background = cli.background / 100.0;
    TrueRates::of([(hot, (1.0 - background) / pages(&hot)), (all, background / pages(&all))])
}

/// Turns split hints on, in the kdamond that runs.
fn use_hints(admin: &Path) -> Result<()> {
    let kdamond = admin.join("kdamonds/0");
    let set = |file: &str, value: &str| {
        let path = kdamond.join(file);
        fs::write(&path, value).map_err(|error| {
            Error::new(ErrorKind::Missing, path.display().to_string())
                .cause(error)
                .remedy("boot a kernel with patches/damon-split-hints")
        })
    };
    set("contexts/0/monitoring_attrs/split_hints", "Y")?;
    set("state", "commit")
}
