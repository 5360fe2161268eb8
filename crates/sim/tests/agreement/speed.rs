//! Speed of the target, and accesses served by caches and tiers: exact mode's clocks and counters
//! compared with the solver.

use tierscope_sim::exact::{Account, Placement};
use tierscope_workloads::description::Mix;

use super::*;

/// Figures of a run: accesses a second; shares of the accesses that walk, that hit the last-level
/// cache, and that go to memory; share of the latter served by the fast tier; entries read for a
/// walk, and lines written back for an access.
struct Figures([f64; 7]);

const NAMES: [&str; 7] =
    ["M accesses/s", "walks", "LLC hits", "misses", "fast share", "reads/walk", "written"];

impl Figures {
    fn of(before: &Account, after: &Account, seconds: f64) -> Self {
        let [a, b] = [&before.counts, &after.counts];
        let accesses = (b.accesses - a.accesses) as f64;
        let misses = (b.llc_misses() - a.llc_misses()) as f64;
        let walks = (b.walks - a.walks) as f64;
        let written = |account: &Account| account.lines_written.iter().sum::<u64>();
        Self([
            accesses / seconds / 1e6,
            walks / accesses,
            (b.llc_hits - a.llc_hits) as f64 / accesses,
            misses / accesses,
            (b.served[0] - a.served[0]) as f64 / misses.max(1.0),
            (b.walk_reads - a.walk_reads) as f64 / walks.max(1.0),
            (written(after) - written(before)) as f64 / accesses,
        ])
    }
}

/// Figures of both machines from `warm` to `warm` plus `measured` milliseconds.
fn figures(case: &Case, warm: u64, measured: u64) -> [Figures; 2] {
    let seconds = measured as f64 / 1e3;
    let mut machine = case.exact();
    pass(&mut machine, warm * MILLISECOND);
    let before = machine.account();
    pass(&mut machine, measured * MILLISECOND);
    let exact = Figures::of(&before, &machine.account(), seconds);
    let mut machine = case.density();
    pass(&mut machine, warm * MILLISECOND);
    let before = machine.account();
    pass(&mut machine, measured * MILLISECOND);
    [exact, Figures::of(&before, &machine.account(), seconds)]
}

/// Prints both and checks that they agree: the rate within three percent, shares within 0.02.
fn agree(name: &str, case: &Case, (warm, measured): (u64, u64)) {
    let [exact, density] = figures(case, warm, measured);
    println!("{name}");
    for ((label, a), b) in NAMES.iter().zip(exact.0).zip(density.0) {
        println!("  {label:14} exact {a:9.4}  density {b:9.4}");
    }
    let ratio = density.0[0] / exact.0[0] - 1.0;
    assert!(ratio.abs() < 0.03, "{name}: the rate differs by {ratio:.3}");
    // A walk that sets a flag makes its line dirty, which density mode does not count: lines
    // written are compared only where the target itself writes.
    let writes = case.workload.phases[0].accesses[0].mix != Mix::Writes(0.0);
    for index in [1, 2, 3, 4, 6].into_iter().filter(|index| writes || *index < 6) {
        let by = (density.0[index] - exact.0[index]).abs();
        assert!(by < 0.02, "{name}: {} differs by {by:.4}", NAMES[index]);
    }
}

fn both() -> Placement {
    Placement::Interleave(vec![FAST, SLOW])
}

#[test]
fn random_accesses_go_as_fast() {
    let case = Case::new("contiguous:space=4GiB,hot=2GiB,at=1GiB", [8192, 8192]);
    agree("uniform in DRAM", &case, (60, 40));
    let case = Case { placement: both(), ..case };
    agree("uniform, interleaved", &case, (60, 40));
    let case = Case { placement: Placement::Bind(SLOW), ..case };
    agree("uniform in Optane", &case, (60, 40));
    let case = Case { overlap: Some(1), ..case };
    agree("one line at a time", &case, (200, 100));
    let case = Case::new("contiguous:space=4GiB,hot=4GiB", [2048, 8192]);
    agree("half overflows", &case, (60, 40));
}

// Links of a list take the whole latency each; next to them, a stream of independent accesses.
#[test]
fn chases_go_as_fast() {
    let case = Case::new("contiguous:space=4GiB,hot=2GiB,at=1GiB,chase=true", [8192, 8192]);
    agree("a chase in DRAM", &case, (200, 100));
    let case = Case { placement: Placement::Bind(SLOW), ..case };
    agree("a chase in Optane", &case, (400, 200));
    let case = Case::new("zipf:space=4GiB,item=4096,chase=true", [8192, 8192]);
    agree("a skewed chase", &Case { placement: both(), ..case }, (200, 100));
}

#[test]
fn skewed_accesses_go_as_fast() {
    let case = Case::new("zipf:space=4GiB,item=4096", [8192, 8192]);
    agree("zipf", &Case { placement: both(), ..case }, (150, 50));
    let case = Case::new("scattered:space=4GiB,ranges=100,range=2MiB,share=0.9", [8192, 8192]);
    agree("scattered", &Case { placement: both(), ..case }, (60, 40));
    let case = Case::new("contiguous:space=4GiB,hot=16MiB,share=0.99", [8192, 8192]);
    agree("hotspot in the cache", &case, (60, 40));
    let case = Case::new("contiguous:space=4GiB,hot=2MiB,share=0.9", [8192, 8192]);
    agree("hotspot in the TLB", &case, (60, 40));
}

#[test]
fn many_threads_meet_the_same_limits() {
    let case = Case::new("contiguous:space=4GiB,hot=2GiB,at=1GiB", [8192, 8192]);
    let case = Case { threads: 8, placement: both(), ..case };
    agree("8 threads, interleaved", &case, (20, 5));
    // A twentieth of Optane's bandwidth: 7500 MiB/s, which four threads can saturate.
    let mut case = Case { threads: 4, placement: Placement::Bind(SLOW), ..case };
    let slow = &mut case.hardware.tiers[1];
    (slow.read_mib_s, slow.write_mib_s, slow.medium.channels) = (1875, 1875, 1);
    agree("a full tier", &case, (40, 10));
}

#[test]
fn writes_and_sweeps_go_as_fast() {
    let case = Case::new("contiguous:space=4GiB,hot=2GiB,writes=0.5", [8192, 8192]);
    agree("half writes", &case, (100, 40));
    for stride in ["64B", "8B", "4KiB"] {
        let spec = format!("contiguous:space=4GiB,hot=1GiB,stride={stride}");
        let case = Case::new(&spec, [8192, 8192]);
        agree(&format!("a sweep by {stride}"), &case, (40, 20));
    }
}
