//! Estimates how policies would have performed with other fast-tier sizes.
//!
//! A trace is replayed through the exact machine, access by access, under any policy. A recording
//! feeds its windows to policies that work on regions; other policies are refused, because it lacks
//! the evidence that they need.

mod bounds;
mod replayed;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tierscope_core::drive::{Course, Sink, Window};
use tierscope_core::session::{Placing, Session};
use tierscope_core::units::{about_size, about_time};
use tierscope_core::{Budget, Error, ErrorKind, Need, Result, Time, names};
use tierscope_instruments::region_source::RegionSource;
use tierscope_policies::registry::{Entry, all, by_name, make};
use tierscope_record::Recording;
use tierscope_sim::config::Costs;
use tierscope_sim::experiment::{Experiment, Mode};
use tierscope_trace::compact::Index;
use tierscope_workloads::work::TRACE;

use crate::contest::{Bound, Contestant, Moves, Report as Placed, contestants, place, sized};
use crate::experiments::{Overrides, Plain, parse};
use crate::runner::Runner;

use bounds::{Begin, begin, interleaved};
use replayed::Replayed;

/// What to estimate.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// A recording, or a trace that `tierscope trace convert` wrote.
    pub what: &'a Path,
    /// Sizes of the fast tier, in bytes.
    pub fast: &'a [u64],
    /// Policies, as `NAME:key=value,…`, or `all`.
    pub policies: &'a [String],
}

impl Settings<'_> {
    fn check(&self) -> Result<()> {
        if self.fast.iter().any(|bytes| *bytes < 2 << 20) {
            return Err(Error::new(ErrorKind::Usage, "a fast tier is too small")
                .cause("it does not hold 2 MiB")
                .remedy("give sizes like --fast 64G,128G"));
        }
        Ok(())
    }
}

/// Replays a trace under all policies and sizes, on this hardware: ready-made or a file, its
/// fastest tier set to the given sizes.
///
/// # Errors
/// There is no such trace, a policy is unknown, or a size too small: reported before any run.
pub fn trace(
    settings: &Settings<'_>,
    machine: &str,
    overrides: &Overrides,
    runner: &Runner<'_>,
) -> Result<Vec<Placed>> {
    settings.check()?;
    let what = settings.what.display();
    if !settings.what.exists() {
        return Err(Error::new(ErrorKind::Io, format!("cannot read {what}"))
            .cause("there is no such file or directory")
            .remedy("name a recording or a trace"));
    }
    let runs = contests(settings, machine, overrides)?;
    let jobs: Vec<(usize, &Contestant)> = runs
        .iter()
        .enumerate()
        .flat_map(|(run, (_, placers))| placers.iter().map(move |placer| (run, placer)))
        .collect();
    let nanos: Vec<u64> = jobs.iter().map(|(run, _)| runs[*run].0.time.as_nanos() as u64).collect();
    let outcomes = runner.side_by_side(&nanos, |index: usize, reached: &AtomicU64| {
        let (run, placer) = jobs[index];
        place(&runs[run].0, placer, None, runner.stop(), reached)
    })?;
    let mut outcomes = outcomes.into_iter();
    let reports = runs.iter().map(|(experiment, placers)| {
        Placed::new(experiment, outcomes.by_ref().take(placers.len()).flatten().collect())
    });
    Ok(reports.collect())
}

/// The trace as an experiment for each size, with its policies.
fn contests(
    settings: &Settings<'_>,
    machine: &str,
    overrides: &Overrides,
) -> Result<Vec<(Experiment, Vec<Contestant>)>> {
    let workload = format!("{TRACE}{}", settings.what.display());
    let (mode, populate) = (Mode::Exact, false);
    let plain = Plain { workload: &workload, machine, tiers: &[], threads: None, mode, populate };
    let text = plain.text().replace("populate = false", "populate = false\nrepeats = false");
    let name = "the command line";
    let usual = parse(name, &text, overrides, &[])?;
    let fastest = &usual.setup.hardware.tiers[0].name;
    let length = Index::open(settings.what)?.summary.last.since(Time(0));
    let (time, part) = match overrides.time {
        None => (enough(length), String::new()),
        Some(time) if time < length => {
            (time, format!("the first {} of {} of ", about_time(time), about_time(length)))
        }
        Some(time) => (time, String::new()),
    };
    let of = |bytes: &u64| {
        let mut experiment = parse(name, &text, overrides, &[sized(fastest, *bytes)])?;
        experiment.time = time;
        let (what, size) = (settings.what.display(), about_size(*bytes));
        experiment.name = format!("{part}{what} with {size} of {fastest}");
        let placers = contestants(&experiment, settings.policies)?;
        Ok((experiment, placers))
    };
    settings.fast.iter().map(of).collect()
}

/// Simulated time in which a trace of this length ends, also on a machine that is somewhat slower
/// than the traced one; an hour for traces without times, which end when their accesses do.
fn enough(length: Duration) -> Duration {
    match length {
        Duration::ZERO => Duration::from_secs(3600),
        _ => Duration::from_secs((length + length / 10).as_secs() + 1),
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
        let text = names::kebab_line(text);
        if Bound::named(&text).is_some() {
            lines.push(text);
            continue;
        }
        make(&text)?;
        let name = text.split_once(':').map_or(text.as_str(), |(name, _)| name);
        if let Some(cause) = by_name(name).and_then(refusal) {
            let what = format!("{name} cannot be judged by a recording");
            return Err(Error::new(ErrorKind::Missing, what)
                .cause(cause)
                .remedy("replay a trace, or simulate it with `tierscope sim tier`"));
        }
        lines.push(text);
    }
    Ok((lines, refused))
}

/// Replays a recording under all policies and sizes.
///
/// # Errors
/// It cannot be read or is empty, a policy is unknown or needs evidence that a recording lacks, or
/// a size is too small: reported before any run.
pub fn recording(settings: &Settings<'_>, runner: &Runner<'_>) -> Result<Replays> {
    settings.check()?;
    let what = settings.what.display();
    let recording = Recording::open(settings.what)?;
    if recording.commits().is_empty() {
        return Err(Error::new(ErrorKind::Data, format!("{what} is empty"))
            .cause("it holds no window")
            .remedy("record for longer"));
    }
    let (mut lines, refused) = chosen(settings.policies)?;
    lines.retain(|line| Bound::named(line).is_none());
    lines.extend(Bound::ALL.map(|bound| bound.name().to_owned()));
    let of = |bytes: &u64| {
        let bytes = *bytes;
        lines.iter().map(move |line| (bytes, line))
    };
    let jobs: Vec<(u64, &String)> = settings.fast.iter().flat_map(of).collect();
    let time = recording.time().map_or(Duration::ZERO, |time| time.end - time.start);
    let nanos = vec![time.as_nanos() as u64; jobs.len()];
    let replays = runner.side_by_side(&nanos, |index: usize, reached: &AtomicU64| {
        let (bytes, line) = jobs[index];
        replay(&recording, bytes, line, runner.stop(), reached)
    })?;
    Ok(Replays {
        recording: what.to_string(),
        instrument: recording.meta().instrument.clone(),
        replays: replays.into_iter().flatten().collect(),
        refused,
    })
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
    let Begin { capacity, begins_fast, mut policy } = begin(recording, bytes, line)?;
    let mut machine = Replayed::new(recording, (capacity, begins_fast), &costs, Arc::clone(stop))?;
    let mut mover = machine.mover();
    let start = recording.time().unwrap_or_default().start;
    let poll = (recording.meta().window / 4).max(Duration::from_millis(1));
    let mut instrument = RegionSource::new("recording", Vec::new()).with_poll(poll);
    // One nanosecond more, so that the last window, which ends at `end`, is included.
    let course = Course::until(machine.end() + Duration::from_nanos(1));
    let budget = Budget { bytes: u64::MAX };
    let session = Session {
        ports: &mut machine,
        instrument: &mut instrument,
        placing: Some(Placing { policy: &mut *policy, mover: &mut mover, budget }),
        course,
    };
    session.open(|_, _| Ok(()))?.run(&mut Far { reached, start })?;
    let seconds = tierscope_core::Clock::now(&machine).since(start).as_secs_f64();
    let (moved, moving) = machine.moved();
    let [seen, mut fast] = machine.seen;
    if line == Bound::Interleave.name() {
        fast = seen * interleaved(&machine, bytes);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{
        Level, Mapping, Mappings, Range, Rate, Region, Snapshot, Space, SpaceId, Unknown,
    };
    use tierscope_record::{Memory, Meta, Recorder};

    #[test]
    fn policies_that_need_more_than_regions_are_refused_by_name() {
        let (_, refused) = chosen(&["all".into()]).expect("all are known");
        let refused: Vec<String> = refused.into_iter().map(|refused| refused.policy).collect();
        assert!(refused.contains(&"multi-clock".to_owned()) && refused.contains(&"hemem".into()));
        assert!(!refused.contains(&"hot-region".to_owned()) && !refused.contains(&"static".into()));
        let error = chosen(&["tpp".into()]).expect_err("it needs faults").to_string();
        assert!(error.contains("tpp cannot be judged") && error.contains("hint faults"), "{error}");
    }

    const MIB: u64 = 1 << 20;

    /// What a recording was made of.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Kind {
        /// Regions of DAMON's: all memory.
        Regions,
        /// Memory samples: accessed blocks only.
        Samples,
        /// ACCESSED bits at upper levels of the page table, with rates; of the rest, too little is
        /// known.
        Bits,
    }

    /// 60 windows of 200 ms over 64 MiB: from 16 to 24 MiB, most looks find accesses; with or
    /// without mappings.
    fn recorded(kind: Kind, mapped: bool) -> Recording {
        let range = |from: u64, to: u64| Range::new(SpaceId(0), from * MIB, to * MIB);
        let region = |from, to, hits| Region::sampled(range(from, to), hits, 40);
        let bits = |from, to, hits: f32| {
            let rate = Rate { low: hits / 2.0, mean: hits, high: hits * 2.0 };
            Region { level: Some(Level::PMD), rate: Some(rate), ..region(from, to, hits) }
        };
        let unknown = |region| Region { unknown: Some(Unknown::Evidence), ..region };
        let regions = match kind {
            Kind::Samples => vec![region(16, 24, 30.0)],
            Kind::Regions => vec![region(0, 16, 0.0), region(16, 24, 30.0), region(24, 64, 1.0)],
            Kind::Bits => vec![bits(0, 16, 0.0), bits(16, 24, 30.0), unknown(bits(24, 64, 3.0))],
        };
        let spaces = vec![Space { id: SpaceId(0), name: "toy".into() }];
        let mappings = if mapped { vec![Mapping::anonymous(range(0, 64))] } else { Vec::new() };
        let layout = Mappings { spaces, mappings, ..Mappings::default() };
        let mut memory = Memory::default();
        let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
        for number in 0..60 {
            let time = |number: u64| Time(number * 200_000_000);
            let (start, end) = (time(number), time(number + 1));
            let snapshot = Snapshot { start, end, samples: 40, regions: regions.clone() };
            let mappings = (number == 0).then_some(&layout);
            recorder.window(&Window { mappings, ..Window::of(&snapshot) }).unwrap();
        }
        recorder.finish().unwrap();
        Recording::from_source(Box::new(memory)).unwrap()
    }

    // The hot 8 MiB and 8 MiB of the rest fit: by the oracle nearly all accesses are fast, evenly
    // filled a quarter of them.
    #[test]
    fn bounds_of_a_recording_are_in_order() {
        let (stop, reached) = (Arc::default(), AtomicU64::new(0));
        let recording = recorded(Kind::Regions, true);
        let share = |bound: Bound| {
            let replay = replay(&recording, 16 * MIB, bound.name(), &stop, &reached).unwrap();
            replay.fast_tier_share.expect("accesses were seen")
        };
        let shares = Bound::ALL.map(share);
        println!("{shares:?}");
        let [fast, slow, even, oracle, clairvoyant] = shares;
        assert_eq!((fast, slow, even), (1.0, 0.0, 0.25));
        // 8 x 0.75 and 8 x 0.025 of 6 and 40 x 0.025 MiB.
        assert!((oracle - 6.2 / 7.0).abs() < 1e-6 && (clairvoyant - oracle).abs() < 1e-6);
    }

    #[test]
    fn a_trace_is_simulated_to_its_end() {
        let seconds = Duration::from_secs;
        let expected = [seconds(3600), seconds(23), seconds(7921)];
        assert_eq!([0, 20, 7200].map(|length| enough(seconds(length))), expected);
    }

    // Every policy that works on regions, on every kind of recording: as tierscope makes them, and
    // as imported from damo and from samples of perf, which have no mappings. Accesses are seen in
    // all of them, and policies by heat have their memory in the fast tier for most of the time.
    // A trace is judged in crates/cli/tests/tier.rs.
    #[test]
    fn every_policy_is_judged_by_every_kind_of_recording() {
        let (lines, _) = chosen(&["all".into()]).expect("all are known");
        let (stop, reached) = (Arc::default(), AtomicU64::new(0));
        use Kind::{Bits, Regions, Samples};
        let kinds =
            [(Regions, true), (Regions, false), (Samples, false), (Bits, true), (Bits, false)];
        for (kind, mapped) in kinds {
            let recording = recorded(kind, mapped);
            for line in &lines {
                let replay = replay(&recording, 16 * MIB, line, &stop, &reached).unwrap();
                let share = replay.fast_tier_share.expect("accesses were seen");
                let moved = replay.moves.promoted_bytes > 0;
                let at = format!("{line}, {kind:?}, mapped {mapped}: {replay:?}");
                assert!(!moved || share > 0.0, "{at}");
                assert!(line != "hot-region" || share > 0.5 && moved, "{at}");
            }
        }
    }
}
