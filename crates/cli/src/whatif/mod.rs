//! `tierscope whatif`: estimates how policies would have performed with other fast-tier sizes.
//!
//! A trace is replayed through the exact machine, access by access, under any policy. A recording
//! feeds its windows to policies that work on regions; other policies are refused, because it lacks
//! the evidence that they need.

mod replayed;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tierscope_core::drive::{Course, Sink, Window, tier};
use tierscope_core::{Budget, Error, ErrorKind, Result};
use tierscope_instruments::region_source::RegionSource;
use tierscope_policies::registry::{Entry, Need, all, by_name, make};
use tierscope_record::Recording;
use tierscope_sim::config::Costs;
use tierscope_sim::experiment::Mode;

use crate::bench::race::{side_by_side, stop_flag};
use crate::report::print_report;
use crate::sim::tier::contestant::{Contestant, contestants};
use crate::sim::tier::outcome::{Moves, place};
use crate::sim::tier::{Report as Placed, Told, publish, sized};
use crate::sim::{Otherwise, experiment_of};
use crate::units::{self, show_bytes};

use replayed::Replayed;

/// Flags of `tierscope whatif`.
#[derive(Debug, Args)]
pub struct WhatifArgs {
    /// A recording, or a trace that `tierscope trace convert` wrote
    #[arg(value_name = "RECORDING|TRACE")]
    pub what: PathBuf,

    /// Sizes of the fast tier, like 64G,128G
    #[arg(long, value_name = "SIZES", required = true, value_delimiter = ',', value_parser = units::bytes)]
    pub fast: Vec<u64>,

    /// A policy, as NAME:key=value,…, or all; can be given more than once
    #[arg(long = "policy", value_name = "P", default_value = "all")]
    pub policies: Vec<String>,

    /// With a trace: the hardware, ready-made or a file; its fastest tier is set to the given sizes
    #[arg(long, value_name = "M", default_value = "xeon-gold-6238m")]
    pub machine: String,

    /// With a trace: overrides of the default settings.
    #[command(flatten)]
    pub otherwise: Otherwise,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// With a trace: write a page with tables and charts into this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Runs `tierscope whatif`.
///
/// # Errors
/// The input is neither a recording nor a trace, a policy is unknown, a size is zero, or the input
/// lacks a policy's evidence. All of these are reported before any run.
pub fn run(args: &WhatifArgs) -> Result<()> {
    if args.fast.iter().any(|bytes| *bytes < 2 << 20) {
        return Err(Error::new(ErrorKind::Usage, "a fast tier is too small")
            .cause("it does not hold 2 MiB")
            .remedy("give sizes like --fast 64G,128G"));
    }
    if args.what.is_dir() {
        return of_recording(args);
    }
    of_trace(args)
}

/// Replays a trace under all policies and sizes.
fn of_trace(args: &WhatifArgs) -> Result<()> {
    if !args.what.exists() {
        return Err(Error::new(ErrorKind::Io, format!("cannot read {}", args.what.display()))
            .cause("there is no such file or directory")
            .remedy("name a recording or a trace"));
    }
    let workload = format!("{}{}", tierscope_workloads::work::TRACE, args.what.display());
    let told = Told {
        workload: &workload,
        machine: &args.machine,
        tiers: &[],
        threads: None,
        mode: Mode::Exact,
        populate: false,
    };
    let text = told.text().replace("populate = false", "populate = false\nrepeats = false");
    let name = "the command line";
    let usual = experiment_of(name, &text, &args.otherwise, &[])?;
    let fastest = usual.setup.hardware.tiers[0].name.clone();
    let mut runs = Vec::new();
    for bytes in &args.fast {
        let change = sized(&fastest, *bytes);
        let mut experiment = experiment_of(name, &text, &args.otherwise, &[change])?;
        experiment.name =
            format!("{} with {} of {fastest}", args.what.display(), show_bytes(*bytes));
        let placers = contestants(&experiment, &args.policies)?;
        runs.push((experiment, placers));
    }
    let stop = stop_flag()?;
    let jobs: Vec<(usize, &Contestant)> = runs
        .iter()
        .enumerate()
        .flat_map(|(run, (_, placers))| placers.iter().map(move |placer| (run, placer)))
        .collect();
    let nanos: Vec<u64> = jobs.iter().map(|(run, _)| runs[*run].0.time.as_nanos() as u64).collect();
    let outcomes = side_by_side(&nanos, &stop, |index: usize, reached: &AtomicU64| {
        let (run, placer) = jobs[index];
        place(&runs[run].0, placer, None, &stop, reached)
    })?;
    tell_if_stopped(&stop);
    let mut outcomes = outcomes.into_iter();
    let reports: Vec<Placed> = runs
        .iter()
        .map(|(experiment, placers)| {
            Placed::new(experiment, outcomes.by_ref().take(placers.len()).flatten().collect())
        })
        .collect();
    publish(&reports, args.json, None, args.html.as_ref())
}

fn tell_if_stopped(stop: &AtomicBool) {
    if stop.load(Ordering::Relaxed) {
        eprintln!("tierscope: stopped; what was measured until then is kept");
    }
}

/// Result of one policy on a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    /// The policy, as on the command line.
    pub policy: String,
    /// Bytes of the fast tier.
    pub fast_bytes: u64,
    /// Duration of the recording, in seconds.
    pub seconds: f64,
    /// Share of the accessed bytes of all windows that were in the fast tier at that time.
    pub fast_tier_share: Option<f64>,
    /// Moves that the policy would have made.
    pub moves: Moves,
    /// CPU time of the policy relative to the recorded time, 1 is one CPU.
    pub policy_cpu: f64,
    /// CPU time of moves relative to the recorded time, at cited costs.
    pub mover_cpu: f64,
}

/// Results of all policies on a recording, and the policies refused.
#[derive(Clone, Debug, Serialize)]
pub struct Replays {
    /// Path of the recording.
    pub recording: String,
    /// Instrument that made its regions.
    pub instrument: String,
    /// Ordered by size, then policy; replays not begun when the user stopped are missing.
    pub replays: Vec<Replay>,
    /// Policies that need other evidence than a recording has.
    pub refused: Vec<Refused>,
}

/// A policy that needs evidence that a recording lacks.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// Name of the policy.
    pub policy: String,
    /// The missing evidence.
    pub cause: String,
}

/// Evidence that a recording provides.
const HELD: &[Need] = &[Need::Regions];

/// The evidence that a policy needs and a recording lacks.
fn refusal(entry: &Entry) -> Option<String> {
    // A policy without needs is not refused.
    let lacks: Vec<String> = entry.lacks(HELD).map(|need| need.to_string()).collect();
    (!lacks.is_empty())
        .then(|| format!("it needs {}, and a recording holds regions", lacks.join(" and ")))
}

/// Policies to replay, and policies refused. A policy given by name must not be refused.
fn chosen(texts: &[String]) -> Result<(Vec<String>, Vec<Refused>)> {
    let (mut lines, mut refused) = (Vec::new(), Vec::new());
    for text in texts {
        if text == "all" {
            for entry in all() {
                match refusal(entry) {
                    Some(cause) => refused.push(Refused { policy: entry.name.into(), cause }),
                    None => lines.push(entry.name.to_owned()),
                }
            }
            continue;
        }
        make(text)?;
        let name = text.split_once(':').map_or(text.as_str(), |(name, _)| name);
        if let Some(cause) = by_name(name).and_then(refusal) {
            let what = format!("{name} cannot be judged by a recording");
            return Err(Error::new(ErrorKind::Missing, what)
                .cause(cause)
                .remedy("replay a trace, or simulate it with `tierscope sim tier`"));
        }
        lines.push(text.clone());
    }
    Ok((lines, refused))
}

fn of_recording(args: &WhatifArgs) -> Result<()> {
    let recording = Recording::open(&args.what)?;
    if recording.commits().is_empty() {
        return Err(Error::new(ErrorKind::Data, format!("{} is empty", args.what.display()))
            .cause("it holds no window")
            .remedy("record for longer"));
    }
    if args.html.is_some() {
        return Err(Error::new(ErrorKind::Usage, "there is no page of a recording's replay")
            .cause("it tells no rate over time")
            .remedy("take --json"));
    }
    let (lines, refused) = chosen(&args.policies)?;
    let jobs: Vec<(u64, &String)> =
        args.fast.iter().flat_map(|bytes| lines.iter().map(move |line| (*bytes, line))).collect();
    let stop = stop_flag()?;
    let time = recording.time().map_or(Duration::ZERO, |time| time.end - time.start);
    let nanos = vec![time.as_nanos() as u64; jobs.len()];
    let replays = side_by_side(&nanos, &stop, |index: usize, reached: &AtomicU64| {
        let (bytes, line) = jobs[index];
        replay(&recording, bytes, line, &stop, reached)
    })?;
    tell_if_stopped(&stop);
    let report = Replays {
        recording: args.what.display().to_string(),
        instrument: recording.meta().instrument.clone(),
        replays: replays.into_iter().flatten().collect(),
        refused,
    };
    print_report(&report, args.json, write_text)
}

/// Sink that publishes the progress of a replay.
struct Far<'a> {
    reached: &'a AtomicU64,
    start: tierscope_core::Time,
}

impl Sink for Far<'_> {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let since = window.snapshot.end.since(self.start);
        self.reached.store(since.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }
}

fn replay(
    recording: &Recording,
    bytes: u64,
    line: &str,
    stop: &Arc<AtomicBool>,
    reached: &AtomicU64,
) -> Result<Replay> {
    let costs = Costs::ready_made("linux")?;
    let mut machine = Replayed::new(recording, bytes, &costs, Arc::clone(stop))?;
    let mut mover = machine.mover();
    let start = recording.time().unwrap_or_default().start;
    let poll = (recording.meta().window / 4).max(Duration::from_millis(1));
    let mut instrument = RegionSource::new("recording", Vec::new()).with_poll(poll);
    let mut policy = make(line)?;
    // One nanosecond more, so that the last window, which ends at `end`, is included.
    let course = Course::until(machine.end() + Duration::from_nanos(1));
    let budget = Budget { bytes: u64::MAX };
    let (ports, told) = (&mut machine, &mut instrument);
    tier(ports, told, &mut *policy, &mut mover, budget, &course, &mut Far { reached, start })?;
    let seconds = tierscope_core::Clock::now(&machine).since(start).as_secs_f64();
    let (moved, moving) = machine.moved();
    let [seen, fast] = machine.seen;
    let share = |time: Duration| time.as_secs_f64() / seconds.max(1e-9);
    Ok(Replay {
        policy: line.into(),
        fast_bytes: bytes,
        seconds,
        fast_tier_share: (seen > 0.0).then(|| fast / seen),
        moves: moved.into(),
        policy_cpu: share(machine.policy),
        mover_cpu: share(moving),
    })
}

fn write_text(report: &Replays, out: &mut dyn Write) -> io::Result<()> {
    let Replays { recording, instrument, replays, refused } = report;
    writeln!(out, "{recording}: regions by {instrument}, replayed\n")?;
    let width = replays.iter().map(|r| r.policy.chars().count()).max().unwrap_or(0).max(18);
    writeln!(
        out,
        "{:width$} {:>10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>9} {:>9}",
        "",
        "fast tier",
        "fast %",
        "promoted",
        "demoted",
        "failed",
        "wasted",
        "to and fro",
        "re-used",
        "policy %",
        "moving %"
    )?;
    let percent =
        |share: Option<f64>| share.map_or("-".into(), |share| format!("{:.1}", share * 100.0));
    for replay in replays {
        let moves = &replay.moves;
        let bytes = [
            replay.fast_bytes,
            moves.promoted_bytes,
            moves.demoted_bytes,
            moves.failed_bytes,
            moves.wasted_bytes,
            moves.ping_pong_bytes,
        ];
        let [fast, promoted, demoted, failed, wasted, pingpong] = bytes.map(show_bytes);
        writeln!(
            out,
            "{:width$} {fast:>10} {:>8} {promoted:>10} {demoted:>10} {failed:>10} {wasted:>10} {pingpong:>10} \
             {:>8} {:>9.3} {:>9.3}",
            replay.policy,
            percent(replay.fast_tier_share),
            percent(moves.reaccess_share),
            replay.policy_cpu * 100.0,
            replay.mover_cpu * 100.0
        )?;
    }
    if !refused.is_empty() {
        writeln!(out, "\nnot judged:")?;
    }
    for Refused { policy, cause } in refused {
        writeln!(out, "{policy:width$} {cause}")?;
    }
    writeln!(
        out,
        "\nAll mapped memory begins in the slow tier. Fast: of the bytes that windows found accessed, the share that \
         lay in\nthe fast tier then; a region counts by the share of looks that found it accessed. Wasted: promoted \
         and not seen\naccessed before it moved back or the recording ended; to and fro: moved twice within 60 s. \
         Moving at cited costs."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_that_need_more_than_regions_are_refused_by_name() {
        let (_, refused) = chosen(&["all".into()]).expect("all are known");
        let refused: Vec<String> = refused.into_iter().map(|refused| refused.policy).collect();
        assert!(refused.contains(&"multi_clock".to_owned()) && refused.contains(&"hemem".into()));
        assert!(!refused.contains(&"hot_region".to_owned()) && !refused.contains(&"static".into()));
        let error = chosen(&["tpp".into()]).expect_err("it needs faults").to_string();
        assert!(error.contains("tpp cannot be judged") && error.contains("hint faults"), "{error}");
    }
}
