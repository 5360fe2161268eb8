//! Compares one workload on a real kernel in the virtual machine with the exact simulated machine.
//!
//! The simulation copies these properties of the real run: areas and hot ranges; the amount of cold
//! memory around them that an instrument's regions span; a stack, whose hits make DAMON judge which
//! regions are alike; the actual period of the lab's TLB flusher; the toucher's actual access rate;
//! and the recorder's actual sampling rate and number of windows. The last two matter because an
//! emulated processor delays the recorder, and because DAMON's regions multiply from window to
//! window, the faster the more rarely a page is found young. The reports must agree. The tolerance
//! was fixed before any comparison:
//!
//! - statistic: precision and recall by the bytes of the last [`LATE`] windows of a run, and the
//!   median number of regions in these windows; of each, the median over all boots, and over as
//!   many seeds;
//! - precision and recall differ by at most [`SHARE_TOLERANCE`]; a run that reports nothing has no
//!   precision;
//! - regions differ by at most [`REGION_TOLERANCE`] of the larger number, of [`FEW_REGIONS`] at
//!   least.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use tierscope_workloads::description::{Access, Area, Mix, Pattern};
use tierscope_workloads::truth_dir::TruthDir;
use tierscope_workloads::{Workload, file};

use crate::bench::outputs::{self, tierscope};
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch::{self, Tree};
use crate::paths;
use crate::progress::say;
use crate::run::{self, Options};
use crate::scenario::Scenario;

/// The kernel that is booted.
const KERNEL: &str = "6.12";
/// Budget of `rates`: what Telescope bounded takes on an emulated CPU, some twenty times slower
/// than a real one. With a hundredth, its first window is the only one of a run.
const CPU: &str = "40%";
/// Number of windows at the end of a run that are judged.
const LATE: usize = 10;
/// Maximum difference of precision and recall (0..1).
const SHARE_TOLERANCE: f64 = 0.05;
/// Maximum difference of numbers of regions, relative to the larger one.
const REGION_TOLERANCE: f64 = 0.25;
/// Minimum divisor for relative differences: among fewer regions, one or two would exceed the
/// tolerance.
const FEW_REGIONS: f64 = 20.0;

/// An instrument, by its name for the recorder and for `tierscope bench`.
#[derive(Debug, Clone, Copy)]
struct Instrument {
    recorded: &'static str,
    simulated: &'static str,
    /// Sampling intervals between two looks at a region, on a machine without delays.
    intervals: f64,
}

const fn instrument(recorded: &'static str, simulated: &'static str, intervals: f64) -> Instrument {
    Instrument { recorded, simulated, intervals }
}

static INSTRUMENTS: [Instrument; 5] = [
    instrument("rates:bayes", "rates", 1.0),
    instrument("telescope:bounded", "bounded", 1.0),
    instrument("telescope:flexible", "flexible", 1.0),
    instrument("damon:fixed", "damon-moderate", 1.0),
    instrument("scan:plain", "scan", 5.0),
];

/// A comparison: workload, machine and number of runs.
struct Case {
    name: &'static str,
    workload: &'static str,
    memory_mb: u64,
    instruments: &'static [Instrument],
    /// Seconds that each instrument runs.
    seconds: u32,
    /// Number of boots, and of seeds.
    runs: u32,
}

/// 64 MiB hot in 1 GiB.
pub(super) fn small(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let workload = "contiguous:space=1GiB,hot=64MiB,at=512MiB";
    let name = "64mb-of-1gb";
    let instruments = &INSTRUMENTS;
    compare(inputs, &Case { name, workload, memory_mb: 1024, instruments, seconds: 10, runs: 5 })
}

/// 1 GiB hot in 8 GiB.
pub(super) fn medium(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let workload = "contiguous:space=8GiB,hot=1GiB,at=3GiB";
    let name = "1gb-of-8gb";
    let instruments = &INSTRUMENTS;
    compare(inputs, &Case { name, workload, memory_mb: 1024, instruments, seconds: 10, runs: 5 })
}

/// 10 GiB hot in 256 GiB, without the scan, which would not finish a pass within a run.
pub(super) fn large(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let workload = "contiguous:space=256GiB,hot=10GiB,at=102737MiB";
    let name = "10gb-of-256gb";
    let (instruments, _) = INSTRUMENTS.split_at(4);
    compare(inputs, &Case { name, workload, memory_mb: 1536, instruments, seconds: 10, runs: 3 })
}

/// Figures of an instrument's run, real or simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figures {
    /// NaN if nothing was reported.
    precision: f64,
    recall: f64,
    regions: f64,
    /// Looks at the most sampled region of a window.
    samples: f64,
}

/// Selects one of the figures.
type Figure = fn(&Figures) -> f64;

/// Figures and properties of a run on the real kernel.
#[derive(Debug, Clone, PartialEq)]
struct Recorded {
    figures: Figures,
    workload: Workload,
    /// Accesses per second.
    rate: f64,
    /// Microseconds between two TLB flushes.
    flush_us: f64,
    /// Mean seconds between the ends of two windows.
    window_seconds: f64,
    /// Looks per window, as in [`Figures::samples`].
    looks: f64,
    /// Number of windows.
    windows: usize,
    /// Bytes outside of the workload's areas that the instrument's regions span.
    around: u64,
}

fn compare(inputs: &Inputs<'_>, case: &Case) -> Result<Vec<Row>> {
    let tree = fetch::tree(inputs.matrix.kernel(KERNEL)?)?;
    let outs = (1..=case.runs).map(|seed| boot(case, seed, &tree)).collect::<Result<Vec<_>>>()?;
    let scenario = scenario(case, 1)?;
    let mut rows = Vec::new();
    let mut page = head(case, outs.len());
    for instrument in case.instruments.iter().copied() {
        let real = outs.iter().map(|out| recorded(out, instrument)).collect::<Result<Vec<_>>>()?;
        let simulated = simulate(&scenario, instrument, &real, inputs.work)?;
        let pair = Pair::of(&real, &simulated);
        page.push_str(&pair.line(instrument));
        rows.extend(pair.rows(case, instrument));
    }
    print!("{page}");
    let path = inputs.work.join(format!("same-{}.txt", case.name));
    fs::write(&path, page).at(path.display())?;
    Ok(rows)
}

/// The scenario `accuracy` with this case's parameters.
fn scenario(case: &Case, seed: u32) -> Result<Scenario> {
    let mut scenario = Scenario::load("accuracy")?;
    scenario.memory_mb = case.memory_mb;
    let instruments: Vec<&str> = case.instruments.iter().map(|each| each.recorded).collect();
    for (key, value) in [
        ("scenario", format!("same-{}", case.name)),
        ("workload", case.workload.to_owned()),
        ("instruments", instruments.join(" ")),
        ("seconds", case.seconds.to_string()),
        ("seed", seed.to_string()),
        ("cpu", CPU.to_owned()),
    ] {
        scenario.assign(&format!("{key}={value}"))?;
    }
    Ok(scenario)
}

fn boot(case: &Case, seed: u32, tree: &Tree) -> Result<PathBuf> {
    let out = paths::cache().join("out").join(format!("same-{}-{seed}", case.name));
    let _ = fs::remove_dir_all(&out);
    say(format!("{}: boot {seed} of {}", case.name, case.runs));
    let options = Options { out: Some(out), ..Options::default() };
    let done = run::run(&scenario(case, seed)?, KERNEL, tree, &options)?;
    run::judge(case.name, &done)?;
    Ok(done.out)
}

/// Check of `make test`: precision and recall of `rates` and Telescope bounded in the output of
/// the scenario `accuracy` agree with those of a simulated run. Numbers of regions are only
/// printed: they spread from ten to hundreds because other load delays the emulated machine.
///
/// # Errors
/// They do not agree.
pub fn check(out: &Path, scenario: &Scenario) -> Result<()> {
    let work = out.join("simulated");
    fs::create_dir_all(&work).at(work.display())?;
    for instrument in &INSTRUMENTS[..2] {
        let real = [recorded(out, *instrument)?];
        let pair = Pair::of(&real, &simulate(scenario, *instrument, &real, &work)?);
        say(format!("real and simulated: {}", pair.line(*instrument).trim_end()));
        if let Some(what) = pair.shares_disagree() {
            let name = format!("{} on the kernel and simulated", instrument.simulated);
            return Err(Error::new(Kind::Job, name, what));
        }
    }
    Ok(())
}

/// One window of a real or simulated run.
#[derive(Debug, Clone, Copy)]
struct Window {
    changed: bool,
    /// Bytes that are reported, true, and both.
    bytes: [u64; 3],
    regions: usize,
    samples: u32,
}

fn figures(windows: &[Window]) -> Figures {
    let late: Vec<&Window> =
        windows.iter().rev().filter(|window| !window.changed).take(LATE).collect();
    let sum = |at: usize| late.iter().map(|window| window.bytes[at]).sum::<u64>() as f64;
    let share = |of: f64, none: f64| if of > 0.0 { sum(2) / of } else { none };
    Figures {
        precision: share(sum(0), f64::NAN),
        recall: share(sum(1), 0.0),
        regions: median(late.iter().map(|window| window.regions as f64)),
        samples: median(late.iter().map(|window| f64::from(window.samples))),
    }
}

/// The median: the mean of the two middle values of an even number; 0 without values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    match all.len() {
        0 => 0.0,
        n => f64::midpoint(all[(n - 1) / 2], all[n / 2]),
    }
}

/// Output of `tierscope compare --json`.
#[derive(Deserialize)]
struct Compared {
    windows: Vec<ComparedWindow>,
}

#[derive(Deserialize)]
struct ComparedWindow {
    end_seconds: f64,
    changed: bool,
    figures: Kinds,
    regions: usize,
    samples: u32,
    observed_bytes: u64,
    touches_per_second: Option<f64>,
}

#[derive(Deserialize)]
struct Kinds {
    region: Bytes,
}

#[derive(Deserialize)]
struct Bytes {
    reported_bytes: u64,
    true_bytes: u64,
    both_bytes: u64,
}

fn recorded(out: &Path, instrument: Instrument) -> Result<Recorded> {
    let recording = out.join(instrument.recorded.replace(':', "-")).join("recording");
    let mut command = Command::new(tierscope()?);
    command.args(["compare", "--json", "--no-pages"]).arg(&recording).arg(out.join("truth"));
    let what = recording.display().to_string();
    let compared: Compared = parse(&what, &capture(&mut command)?)?;
    let window = |w: &ComparedWindow| {
        let Bytes { reported_bytes, true_bytes, both_bytes } = w.figures.region;
        let bytes = [reported_bytes, true_bytes, both_bytes];
        Window { changed: w.changed, bytes, regions: w.regions, samples: w.samples }
    };
    let windows: Vec<Window> = compared.windows.iter().map(window).collect();
    let truth = TruthDir::open(&out.join("truth"))
        .map_err(|e| Error::new(Kind::Job, out.display().to_string(), e))?;
    let workload = truth.workload().clone();
    let observed = compared.windows.last().map_or(0, |w| w.observed_bytes);
    let rates: Vec<f64> = compared.windows.iter().filter_map(|w| w.touches_per_second).collect();
    if rates.is_empty() {
        return Err(Error::new(Kind::Job, what, "no window has the toucher's rate"));
    }
    let figures = figures(&windows);
    let ends = compared.windows.first().zip(compared.windows.last());
    let span = ends.map_or(0.0, |(first, last)| last.end_seconds - first.end_seconds);
    if span <= 0.0 || figures.samples < 1.0 {
        return Err(Error::new(Kind::Job, what, "it has no two windows with samples"));
    }
    Ok(Recorded {
        figures,
        window_seconds: span / (windows.len() - 1) as f64,
        looks: figures.samples,
        windows: windows.len(),
        rate: rates.iter().sum::<f64>() / rates.len() as f64,
        flush_us: flush_us(out, &truth)?,
        around: observed.saturating_sub(workload.bytes()) >> 12 << 12,
        workload,
    })
}

/// Mean time between flushes, from the flusher's own count.
fn flush_us(out: &Path, truth: &TruthDir) -> Result<f64> {
    let path = out.join("flusher.txt");
    let text = fs::read_to_string(&path).at(path.display())?;
    let count = text.split_whitespace().nth(2).and_then(|word| word.parse::<f64>().ok());
    let span = truth.span().map(|(first, last)| last.since(first).as_secs_f64() * 1e6);
    match count.zip(span) {
        Some((count, span)) if count > 0.0 => Ok(span / count),
        _ => Err(Error::new(Kind::Job, path.display().to_string(), "no flush was counted")),
    }
}

fn parse<T: for<'de> Deserialize<'de>>(what: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| {
        Error::new(Kind::Job, what, format!("not what was expected: {e}"))
            .remedy("are `lab` and `tierscope` built from the same tree?")
    })
}

/// Output of `tierscope bench accuracy --json`.
#[derive(Deserialize)]
struct Report {
    outcomes: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    windows: Vec<SimulatedWindow>,
}

#[derive(Deserialize)]
struct SimulatedWindow {
    changed: bool,
    regions: usize,
    samples: u32,
    #[serde(flatten)]
    bytes: Bytes,
}

/// Simulates each real run, at its access rate and with a different seed.
fn simulate(
    scenario: &Scenario,
    instrument: Instrument,
    real: &[Recorded],
    work: &Path,
) -> Result<Vec<Figures>> {
    let mut command = Command::new(tierscope()?);
    command.args(["bench", "accuracy", "--json"]);
    for (seed, run) in (1..).zip(real) {
        let name = format!("{}-{}-{seed}", set(scenario, "scenario"), instrument.simulated);
        let path = work.join(format!("{name}.toml"));
        let workload = work.join(format!("{name}.workload.toml"));
        fs::write(&workload, file::to_toml(&surrounded(run))).at(workload.display())?;
        let text = description(&name, instrument, run, seed, outputs::text(&workload)?);
        fs::write(&path, text).at(path.display())?;
        command.arg(outputs::text(&path)?);
    }
    let reports: Vec<Report> = parse("tierscope bench accuracy", &capture(&mut command)?)?;
    let of = |report: &Report| {
        let window = |w: &SimulatedWindow| {
            let Bytes { reported_bytes, true_bytes, both_bytes } = w.bytes;
            let bytes = [reported_bytes, true_bytes, both_bytes];
            Window { changed: w.changed, bytes, regions: w.regions, samples: w.samples }
        };
        let windows: Vec<Window> =
            report.outcomes.iter().flat_map(|outcome| &outcome.windows).map(window).collect();
        figures(&windows)
    };
    Ok(reports.iter().map(of).collect())
}

/// A parameter of the job as text.
fn set(scenario: &Scenario, key: &str) -> String {
    let value = scenario.set.get(key);
    value.map_or_else(String::new, |v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
}

/// Initial size of a stack, without its guard page (setup_arg_pages, fs/exec.c: 128 KiB and a
/// page).
const STACK: u64 = 132 << 10;
const PAGE: u64 = 4096;

/// The workload of a run at its actual rate, with as much untouched memory around it as in the real
/// process, and a mapping for the stack, of which the toucher uses one page per burst. That page is
/// not declared hot.
fn surrounded(run: &Recorded) -> Workload {
    let mut workload = run.workload.clone();
    if run.around > STACK {
        let name = "around".to_owned();
        workload.areas.push(Area { name, bytes: run.around - STACK, content: None });
    }
    let area = workload.areas.len();
    workload.areas.push(Area { name: "stack".to_owned(), bytes: STACK, content: None });
    let share = 1.0 / f64::from(workload.burst.max(1));
    for phase in &mut workload.phases {
        phase.rate = Some((run.rate * (1.0 + share)) as u64);
        phase.accesses.push(Access {
            area,
            from: STACK - 2 * PAGE,
            bytes: PAGE,
            pattern: Pattern::Random,
            weight: share * phase.accesses.iter().map(|access| access.weight).sum::<f64>(),
            mix: Mix::Writes(0.0),
            chase: false,
            hot: Some(false),
        });
    }
    workload
}

/// Scenario for `tierscope bench` that corresponds to a real run.
fn description(
    name: &str,
    instrument: Instrument,
    run: &Recorded,
    seed: u32,
    workload: &str,
) -> String {
    let (kind, variant) = instrument.recorded.split_once(':').unwrap_or((instrument.recorded, ""));
    let window = run.window_seconds;
    format!(
        "name = \"{name}\"\nabout = \"as in the lab's machine\"\n\
         source = \"lab/scenarios/accuracy.toml; rate: of the toucher on the real kernel\"\n\
         time = \"{:.0}ms\"\nwindow = \"{:.0}us\"\nseed = {seed}\n\
         [[instrument]]\nname = \"{}\"\ninstrument = \"{kind}\"\nvariant = \"{variant}\"\n\
         sampling = \"{:.0}us\"\n\
         [machine]\nhardware = \"qemu-tcg\"\nflush = \"{:.0}us\"\n\
         [[process]]\nworkload = \"{workload}\"\n",
        window * (run.windows as f64 + 0.5) * 1e3,
        window * 1e6,
        instrument.simulated,
        window / run.looks / instrument.intervals * 1e6,
        run.flush_us,
    )
}

/// Both sides of a comparison: medians and extremes over the runs.
struct Pair {
    real: Side,
    simulated: Side,
    rate: f64,
    flush_us: f64,
}

struct Side {
    median: Figures,
    least: Figures,
    most: Figures,
}

impl Side {
    fn of(runs: &[Figures]) -> Self {
        let precisions: Vec<f64> =
            runs.iter().map(|run| run.precision).filter(|precision| !precision.is_nan()).collect();
        let each = |of: &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64| Figures {
            precision: if precisions.is_empty() {
                f64::NAN
            } else {
                of(&mut precisions.iter().copied())
            },
            recall: of(&mut runs.iter().map(|run| run.recall)),
            regions: of(&mut runs.iter().map(|run| run.regions)),
            samples: of(&mut runs.iter().map(|run| run.samples)),
        };
        Self {
            median: each(&|values| median(values)),
            least: each(&|values| values.fold(f64::INFINITY, f64::min)),
            most: each(&|values| values.fold(f64::NEG_INFINITY, f64::max)),
        }
    }
}

impl Pair {
    fn of(real: &[Recorded], simulated: &[Figures]) -> Self {
        let figures: Vec<Figures> = real.iter().map(|run| run.figures).collect();
        Self {
            real: Side::of(&figures),
            simulated: Side::of(simulated),
            rate: median(real.iter().map(|run| run.rate)),
            flush_us: median(real.iter().map(|run| run.flush_us)),
        }
    }

    fn off(&self, of: Figure) -> f64 {
        (of(&self.real.median) - of(&self.simulated.median)).abs()
    }

    /// Difference of the numbers of regions, relative to the larger one.
    fn regions_off(&self) -> f64 {
        let larger = self.real.median.regions.max(self.simulated.median.regions);
        self.off(|f| f.regions) / larger.max(FEW_REGIONS)
    }

    /// Describes the share that differs by more than the tolerance, if any.
    fn shares_disagree(&self) -> Option<String> {
        let all = [("precision", self.off(|f| f.precision)), ("recall", self.off(|f| f.recall))];
        let (what, off) = all.into_iter().find(|(_, off)| *off > SHARE_TOLERANCE)?;
        Some(format!("{what} differs by {off:.3}, more than {SHARE_TOLERANCE}"))
    }

    fn line(&self, instrument: Instrument) -> String {
        let mut line = format!("{:16}", instrument.simulated);
        let columns: [Figure; 4] = [|f| f.precision, |f| f.recall, |f| f.regions, |f| f.samples];
        for (at, of) in columns.into_iter().enumerate() {
            for side in [&self.real, &self.simulated] {
                let digits = if at < 2 { 3 } else { 0 };
                let [m, a, b] = [&side.median, &side.least, &side.most].map(of);
                // Writing to a string does not fail.
                let _ = write!(line, " {m:>6.digits$} ({a:.digits$}..{b:.digits$})");
            }
        }
        let _ = writeln!(line, " {:.2} M/s", self.rate / 1e6);
        line
    }

    fn rows(&self, case: &Case, instrument: Instrument) -> Vec<Row> {
        let command = format!("target/debug/lab bench sim --only '{}'", chapter(case));
        let named = |what: String| format!("{}, {}, {what}", chapter(case), instrument.simulated);
        let mut rows = Vec::new();
        let mut add = |what: String, value: f64, unit: &str, bar: Bar| {
            if !value.is_nan() {
                rows.push(row(named(what), value, unit, bar, &command));
            }
        };
        let columns: [(&str, &str, Figure); 4] = [
            ("precision", "share", |f| f.precision),
            ("recall", "share", |f| f.recall),
            ("regions", "regions", |f| f.regions),
            ("looks in a window", "looks", |f| f.samples),
        ];
        for (what, unit, of) in columns {
            for (where_, side) in [("real kernel", &self.real), ("exact mode", &self.simulated)] {
                add(format!("{what}, {where_}"), of(&side.median), unit, Bar::None);
                let spread = of(&side.most) - of(&side.least);
                add(format!("{what}, {where_}, spread over runs"), spread, unit, Bar::None);
            }
            match what {
                "regions" => {
                    let bar = Bar::Most(REGION_TOLERANCE);
                    add(
                        "regions, difference over the larger".into(),
                        self.regions_off(),
                        unit,
                        bar,
                    );
                }
                "looks in a window" => {}
                _ => add(
                    format!("{what}, difference"),
                    self.off(of),
                    unit,
                    Bar::Most(SHARE_TOLERANCE),
                ),
            }
        }
        add("rate of both".into(), self.rate / 1e6, "M accesses/s", Bar::None);
        add("flushes of both, from one to the next".into(), self.flush_us, "µs", Bar::None);
        rows
    }
}

/// Name of the chapter, as in [`super::CHAPTERS`].
fn chapter(case: &Case) -> String {
    format!("same: {}", case.name)
}

fn head(case: &Case, runs: usize) -> String {
    format!(
        "{}, median of {runs} (least..most): real kernel, exact mode\n{:16} {:>40} {:>40} {:>30} {:>24}\n",
        case.workload, "", "precision", "recall", "regions", "looks in a window"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_workloads::generate::from_spec;

    fn window(bytes: [u64; 3], regions: usize) -> Window {
        Window { changed: false, bytes, regions, samples: 40 }
    }

    fn run() -> Recorded {
        let figures = Figures { precision: 1.0, recall: 1.0, regions: 1.0, samples: 1.0 };
        let workload = from_spec("contiguous:space=1GiB,hot=1MiB").unwrap();
        let (rate, flush_us, window_seconds) = (1234.5, 5000.4, 0.1);
        let (looks, windows, around) = (16.0, 29, 8192);
        Recorded { figures, workload, rate, flush_us, window_seconds, looks, windows, around }
    }

    // Eleven windows, the first of which is too early: 10 x 10 bytes reported, 10 x 20 true, 10 x 5
    // both.
    #[test]
    fn late_windows_are_pooled() {
        let mut windows = vec![window([0, 20, 0], 900)];
        windows.extend((0..10).map(|i| window([10, 20, 5], 10 + i)));
        let found = figures(&windows);
        assert_eq!((found.precision, found.recall, found.regions), (0.5, 0.25, 14.5));
        assert!(figures(&[]).precision.is_nan() && figures(&[]).recall == 0.0);
    }

    // One of three runs reported nothing.
    #[test]
    fn an_empty_report_has_no_precision() {
        let of = |precision| Figures { precision, recall: 0.0, regions: 1.0, samples: 1.0 };
        let side = Side::of(&[of(f64::NAN), of(0.5), of(1.0)]);
        assert_eq!((side.least.precision, side.median.precision), (0.5, 0.75));
        let nothing = Recorded { figures: of(f64::NAN), ..run() };
        let pair = Pair::of(&[nothing], &[of(1.0)]);
        assert_eq!(pair.shares_disagree(), None);
        let case =
            Case { name: "x", workload: "", memory_mb: 1, instruments: &[], seconds: 1, runs: 1 };
        let rows = pair.rows(&case, INSTRUMENTS[0]);
        let named = |what: &str| rows.iter().any(|row| row.name.contains(what));
        assert!(named("precision, exact mode") && named("recall, difference"));
        assert!(!named("precision, difference") && !named("precision, real kernel"));
    }

    #[test]
    fn differences_beyond_the_tolerance_are_reported() {
        let some = Figures { precision: 0.9, recall: 1.0, regions: 40.0, samples: 40.0 };
        let pair = |a, b| Pair::of(&[Recorded { figures: a, ..run() }], &[b]);
        let difference = |other| pair(some, other).shares_disagree();
        assert_eq!(difference(Figures { precision: 0.86, regions: 90.0, ..some }), None);
        assert_eq!(
            difference(Figures { recall: 0.9, ..some }).as_deref(),
            Some("recall differs by 0.100, more than 0.05")
        );
        // 30 against 40 regions; and three against eight, relative to the minimum of twenty.
        assert_eq!(pair(some, Figures { regions: 30.0, ..some }).regions_off(), 0.25);
        let few = Figures { regions: 8.0, ..some };
        assert_eq!(pair(few, Figures { regions: 3.0, ..some }).regions_off(), 0.25);
    }

    #[test]
    fn every_case_can_be_given_to_the_scenario_and_to_the_bench() {
        let case = Case {
            name: "x",
            workload: "contiguous:space=1GiB",
            memory_mb: 512,
            instruments: &INSTRUMENTS,
            seconds: 3,
            runs: 1,
        };
        let scenario = scenario(&case, 4).unwrap();
        let text = description("x-rates-2", INSTRUMENTS[0], &run(), 2, "w.toml");
        for line in [
            "workload = \"w.toml\"",
            "time = \"2950ms\"",
            "window = \"100000us\"",
            "sampling = \"6250us\"",
            "flush = \"5000us\"",
            "seed = 2",
            "name = \"rates\"\ninstrument = \"rates\"\nvariant = \"bayes\"",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert_eq!(set(&scenario, "seed"), "4");
        let workload = surrounded(&run());
        assert!(workload.check().is_ok());
        // 8 KiB around the areas are less than a stack; the stack gets one access per burst of 64.
        assert_eq!(workload.bytes(), (1 << 30) + STACK);
        assert_eq!(workload.phases[0].rate, Some(1234 + 1234 / 64));
        let around = surrounded(&Recorded { around: STACK + 8192, ..run() });
        assert_eq!(around.bytes(), (1 << 30) + STACK + 8192);
    }
}
