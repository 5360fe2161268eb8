//! Reports of every instrument for the same workload on both machines: precision, recall, number of
//! regions, and CPU cost.

use tierscope_conformance::instrument::Kept;
use tierscope_core::drive::{Course, Ended, profile};
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY, hot};
use tierscope_core::{Ports, Snapshot};
use tierscope_instruments::registry::{Common, make};
use tierscope_sim::config::Period;

use super::*;

/// An instrument and its variant.
type Which = (&'static str, &'static str);

/// Precision (1 without reports), recall, regions of a window, and CPU share of the profiler.
type Report = [f64; 4];

const SECONDS: Duration = Duration::from_millis(2400);

pub(super) fn run(case: &Case, machine: &mut impl Ports, which: Which, seed: u64) -> Report {
    let window = Some(Duration::from_millis(200));
    let common = Common { window, seed: Some(seed), ..Common::default() };
    let mut instrument = make(which.0, Some(which.1), &common).unwrap();
    let mut kept = Kept::default();
    let course = Course::until(Time(0) + SECONDS);
    let ended = profile(machine, &mut *instrument, &course, &mut kept).unwrap();
    assert_eq!(ended, Ended::Deadline);
    // The second half of the run, by bytes; windows in which the truth changes are excluded.
    let settled = |snapshot: &&Snapshot| {
        let [start, end] = [snapshot.start, Time(snapshot.end.0 - 1)].map(|at| case.hot_at(at));
        snapshot.end.0 > SECONDS.as_nanos() as u64 / 2 && start == end
    };
    let windows: Vec<&Snapshot> = kept.snapshots.iter().filter(settled).collect();
    let mut sum = Accuracy { reported: 0, truth: 0, both: 0 };
    for window in &windows {
        let a = Accuracy::of(&hot(window, HOT_FREQUENCY), &case.hot_at(window.start));
        sum.reported += a.reported;
        sum.truth += a.truth;
        sum.both += a.both;
    }
    let regions = windows.iter().map(|window| window.regions.len()).sum::<usize>();
    [
        sum.precision().unwrap_or(1.0),
        sum.recall().unwrap_or(0.0),
        regions as f64 / windows.len().max(1) as f64,
        machine.cpu_time().profiler.as_secs_f64() / machine.now().seconds(),
    ]
}

const ALL: [Which; 7] = [
    ("rates", "bayes"),
    ("telescope", "bounded"),
    ("telescope", "flexible"),
    ("scan", "plain"),
    ("scan", "pruned"),
    ("pebs", "aggressive"),
    ("hint-fault", "tiering"),
];

/// Means over seeds on both machines, and by how far the means of two equal machines may be apart:
/// three standard errors of their difference (99.7 %); nothing of a single seed.
struct Both {
    means: [Report; 2],
    chance: Report,
}

impl Both {
    fn of(reports: &[Vec<Report>; 2]) -> Self {
        let column = |machine: usize, at: usize| reports[machine].iter().map(move |one| one[at]);
        let count = reports[0].len() as f64;
        let mean = |machine: usize, at: usize| column(machine, at).sum::<f64>() / count;
        let squares = |machine: usize, at: usize| {
            let mean = mean(machine, at);
            column(machine, at).map(|x| (x - mean).powi(2)).sum::<f64>()
        };
        let each = |of: &dyn Fn(usize) -> f64| std::array::from_fn(of);
        let error = |at: usize| {
            3.0 * ((squares(0, at) + squares(1, at)) / (count * (count - 1.0).max(1.0))).sqrt()
        };
        Self { means: [0, 1].map(|machine| each(&|at| mean(machine, at))), chance: each(&error) }
    }

    fn apart(&self, at: usize) -> f64 {
        (self.means[0][at] - self.means[1][at]).abs()
    }

    /// Whether they differ by this at most, or by chance.
    fn near(&self, at: usize, most: f64) -> bool {
        self.apart(at) <= most.max(self.chance[at])
    }

    fn part(&self, at: usize, part: f64) -> f64 {
        part * self.means[0][at].max(self.means[1][at])
    }
}

/// Reports of both machines, of `seeds` seeds.
fn both(spec: &str, which: Which, seeds: u64) -> Both {
    let mut reports = [Vec::new(), Vec::new()];
    for seed in 1..=seeds {
        let mut case = Case { seed, ..Case::new(spec, [16_384, 1024]) };
        if which.0 == "pebs" {
            case.sampling = Some(Sampling::loads_and_stores(Period::PerSecond(10_000)));
        }
        reports[0].push(run(&case, &mut case.exact(), which, seed));
        reports[1].push(run(&case, &mut case.density(), which, seed));
    }
    let both = Both::of(&reports);
    let ([exact, density], chance) = (both.means, both.chance);
    let (name, variant) = which;
    println!("{spec} {name} {variant}: exact {exact:.4?}  density {density:.4?}  ±{chance:.4?}");
    both
}

/// Whether precision and recall differ by 0.05 at most, regions by a fourth or four, CPU by a fifth
/// or a thousandth of one, or by chance: a pruned scan descends where a top entry is young, and in
/// density mode a tick evicts entries of a set at random and not tick by tick. The number of
/// regions of `rates` and Telescope depends on the chance of their probes and cuts (`rates`,
/// contiguous: 3 to 14 on one machine, 3 to 25 on the other, from seed to seed).
fn same(which: &Which, both: &Both) -> bool {
    both.near(0, 0.05)
        && both.near(1, 0.05)
        && (by_luck(which) || both.near(2, both.part(2, 0.25).max(4.0)))
        && both.near(3, both.part(3, 0.2).max(0.001))
}

/// Seeds of `rates` and Telescope where the hot set moves: whether they follow within the window of
/// the move or in a later one is chance on either machine (`rates`, drift: precision 0.94 or 1.00;
/// stairs: 0.83 or 1.00; means over 24 seeds differ by 0.00 and 0.01).
const MOVING: u64 = 16;

fn by_luck(which: &Which) -> bool {
    ["rates", "telescope"].contains(&which.0)
}

fn agree(spec: &str, seeds: u64, instruments: &[Which]) {
    let moves = spec.contains("every=");
    let seeds = |which: &Which| if moves && by_luck(which) { MOVING } else { seeds };
    let each = instruments.iter().map(|which| (which, both(spec, *which, seeds(which))));
    let wrong: Vec<_> = each.filter(|(which, both)| !same(which, both)).map(|(of, _)| of).collect();
    assert!(wrong.is_empty(), "{spec}: {wrong:?}; samples above");
}

#[test]
fn contiguous() {
    agree("contiguous:space=8GiB,hot=512MiB,at=3GiB,rate=1000000", 1, &ALL);
}

// Flexible keeps a region across the step hot or not, depending on the seed: its precision is 0.99
// or 0.6 on either machine, and three seeds do not allow a tighter bound.
#[test]
fn stairs() {
    let spec = "stairs:space=8GiB,hot=256MiB,steps=2,every=1500ms,rate=1000000";
    let steady = ALL.into_iter().filter(|which| which.1 != "flexible");
    agree(spec, 3, &steady.collect::<Vec<_>>());
    let flexible = both(spec, ("telescope", "flexible"), 3);
    assert!(flexible.near(1, 0.05) && flexible.near(0, 0.4));
}

#[test]
fn zipf() {
    agree("zipf:space=4GiB,item=4096,rate=1000000", 1, &ALL);
}

#[test]
fn scattered() {
    agree("scattered:space=8GiB,ranges=128,range=2MiB,rate=1000000", 1, &ALL);
}

#[test]
fn drifting() {
    agree("drift:space=8GiB,window=256MiB,step=64MiB,every=600ms,rate=1000000", 1, &ALL);
}

// Where an eighth is hot, DAMON's regions find it; their number varies by chance, and the cost with
// their number: by a fourth. Where little is hot, the chance of its first draws decides whether it
// is found at all: the spread between seeds is as large as the figures themselves, so means over
// eight seeds are compared, recall within 0.2 and regions within a half.
#[test]
fn damon() {
    let spec = "contiguous:space=512MiB,hot=64MiB,at=300MiB,rate=1000000";
    let damon = both(spec, ("damon", "fixed"), 3);
    assert!(damon.apart(0) < 0.05 && damon.apart(1) < 0.05);
    assert!(damon.apart(2) < damon.part(2, 0.25) && damon.apart(3) < damon.part(3, 0.25));
    let spec = "contiguous:space=2GiB,hot=64MiB,at=1GiB,rate=1000000";
    let damon = both(spec, ("damon", "fixed"), 8);
    assert!(damon.apart(1) < 0.2 && damon.apart(2) < damon.part(2, 0.5));
}
