//! `kernel-damon`: measures the accuracy and the cost of the kernel's DAMON on a process whose hot
//! set is known.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;
use tierscope_core::drive::{Course, Sink, Window, profile};
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY, hot};
use tierscope_core::{Clock, Need, Range, RangeSet, Result, SpaceId, Target, Time};
use tierscope_instruments::region_source::RegionSource;
use tierscope_linux::kernel_damon::Config;
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
    window_ms: f64,
    /// CPU usage of kdamond and this process; 1 = one CPU.
    profiler_cpu: f64,
    kdamond_cpu: f64,
    lost_windows: u64,
    overrun: bool,
}

/// Accuracy and number of regions of each window.
struct Score {
    truth: RangeSet,
    windows: Vec<(Accuracy, usize)>,
    first: Option<Time>,
    last: Time,
}

impl Sink for Score {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let snapshot = window.snapshot;
        let accuracy = Accuracy::of(&hot(snapshot, HOT_FREQUENCY), &self.truth);
        self.windows.push((accuracy, snapshot.regions.len()));
        self.first.get_or_insert(snapshot.start);
        self.last = snapshot.end;
        Ok(())
    }
}

impl Score {
    /// Mean over the second half of the windows.
    fn late(&self, share: impl Fn(&Accuracy) -> Option<f64>) -> f64 {
        let late = &self.windows[self.windows.len() / 2..];
        late.iter().map(|(accuracy, _)| share(accuracy).unwrap_or(0.0)).sum::<f64>()
            / late.len().max(1) as f64
    }

    fn regions_mean(&self) -> f64 {
        let sum: usize = self.windows.iter().map(|(_, regions)| regions).sum();
        sum as f64 / self.windows.len().max(1) as f64
    }

    fn window_ms(&self) -> f64 {
        let span = self.last.since(self.first.unwrap_or_default());
        span.as_secs_f64() * 1e3 / self.windows.len().max(1) as f64
    }
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
    let config =
        Config { min_regions: cli.min_regions, max_regions: cli.max_regions, ..Config::default() };
    let (needs, sources) = ([Need::RegionSource], Sources { damon: config, ..Sources::default() });
    let mut machine = LiveMachine::for_needs(&selection, &needs, &sources)?;
    let truth = [Range::new(space, cli.start, cli.end)].into_iter().collect();
    let mut score = Score { truth, windows: Vec::new(), first: None, last: Time(0) };
    let course = Course::until(machine.now() + Duration::from_secs(cli.seconds));
    let began = machine.now();
    let mut instrument = RegionSource::new("kernel-damon", Vec::new());
    profile(&mut machine, &mut instrument, &course, &mut score)?;
    let wall = machine.now().since(began).as_secs_f64();
    let damon = machine.kernel_damon().expect("it was needed");
    Ok(Report {
        windows: score.windows.len(),
        regions_mean: score.regions_mean(),
        recall: score.late(Accuracy::recall),
        precision: score.late(Accuracy::precision),
        window_ms: score.window_ms(),
        profiler_cpu: machine.cpu_time().profiler.as_secs_f64() / wall,
        kdamond_cpu: damon.cpu_time().as_secs_f64() / wall,
        lost_windows: damon.lost_windows(),
        overrun: damon.overrun(),
    })
}
