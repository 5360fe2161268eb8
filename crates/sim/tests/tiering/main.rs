//! Every policy on the simulated machine, in both modes: the checks of the policy suite on the toy
//! machine, and agreement with the machine's own account.

mod rig;

use std::time::Duration;

use tierscope_core::{Range, Tier};
use tierscope_policies::all;

use rig::{Case, Mode, Ran, run};
use tierscope_sim::exact::Placement;

const MIB: u64 = 1 << 20;

/// A policy's parameters for a run of seconds, and the share of the hot set that it must promote.
struct Line {
    line: &'static str,
    /// Share of the hot set in the fast tier at the end.
    brings: f64,
}

const fn line(line: &'static str, brings: f64) -> Line {
    Line { line, brings }
}

/// Every policy of the registry.
const LINES: &[Line] = &[
    line("static", 0.0),
    line("multi-clock:scan=16384", 0.5),
    line("nimble:interval=1s", 0.5),
    line("nimble-selection:scan=16384", 0.5),
    line("autotiering-cpm", 0.5),
    line("autotiering-opm", 0.5),
    line("autonuma", 0.5),
    line("tpp", 0.5),
    line("thermostat:interval=2s,slowdown=0.001", 0.5),
    line("hemem:least=0", 0.5),
    line("hemem-first:least=0", 0.5),
    line("hemem-nemo:least=0,every=100", 0.5),
    line("hemem-nemo-all:least=0,every=100", 0.5),
    line("memtis:adapt=1000,cool=20000", 0.5),
    line("memtis-nemo:adapt=1000,cool=20000", 0.5),
    line("memtis-nemo-all:adapt=1000,cool=20000", 0.5),
    line("amp-lru", 0.5),
    line("amp-lfu", 0.5),
    line("amp-random", 0.5),
    line("hot-region", 0.5),
];

const MODES: [Mode; 2] = [Mode::Exact, Mode::Density];

fn each(mut check: impl FnMut(&Line, Mode)) {
    for mode in MODES {
        for line in LINES {
            check(line, mode);
        }
    }
}

/// No page is lost or in two tiers, and no tier exceeds its capacity.
fn assert_sound(ran: &mut Ran, what: &str) {
    let mapped = ran.mapped();
    let view = ran.placement();
    let tiers: Vec<_> = view.tiers().to_vec();
    for of in &tiers {
        assert!(of.used <= of.capacity, "{what}: {of:?}");
    }
    let mut by_page = vec![0; tiers.len()];
    for at in (mapped.start..mapped.end).step_by(4096) {
        let page = view.page_at(&Range { start: at, end: at + 4096, ..mapped });
        let tier = page.and_then(|page| view.tier_of(page));
        let tier = tier.unwrap_or_else(|| panic!("{what}: the page at {at:#x} is lost"));
        by_page[usize::from(tier.0)] += 4096;
    }
    let resident: Vec<u64> = tiers.iter().map(|of| view.resident(&mapped, of.tier)).collect();
    assert_eq!(by_page, resident, "{what}");
    assert_eq!(resident.iter().sum::<u64>(), mapped.bytes(), "{what}");
}

#[test]
fn every_policy_is_tested() {
    let names: Vec<&str> =
        LINES.iter().map(|l| l.line.split_once(':').map_or(l.line, |(name, _)| name)).collect();
    for entry in all().iter().filter(|entry| !entry.reclaims) {
        assert!(names.contains(&entry.name), "{} is not tested here", entry.name);
    }
}

// 4 MiB of 64 are hot; all memory is in the slow tier, and the fast one has room for 32.
#[test]
fn hot_pages_are_promoted_and_all_bytes_accounted_for() {
    each(|Line { line, brings }, mode| {
        let what = format!("{line}, {mode:?}");
        let mut ran = run(line, mode, &Case::default());
        assert_sound(&mut ran, &what);
        let hot = ran.hot();
        let there = ran.placement().resident(&hot, Tier(0)) as f64 / hot.bytes() as f64;
        assert!(there >= *brings, "{what}: {there:.3} of the hot set came over");
        let moved = ran.moved();
        assert_eq!(moved.promoted + moved.demoted, ran.done(), "{what}: outcomes and the account");
        assert_eq!(moved.reaccessed + moved.wasted, moved.promoted, "{what}");
        // The hot memory is accessed again within the remaining seconds.
        let good = moved.reaccess_share().unwrap_or(1.0);
        println!(
            "{what}: {there:.3} over, {:.1} MiB up, {good:.3} touched",
            moved.promoted as f64 / MIB as f64
        );
        assert!(*brings == 0.0 || moved.reaccessed >= hot.bytes() / 2, "{what}: {moved:?}");
    });
}

#[test]
fn work_is_charged_and_the_same_seed_gives_the_same_run() {
    let case = Case { seconds: 2.5, ..Case::default() };
    each(|Line { line, .. }, mode| {
        let what = format!("{line}, {mode:?}");
        let [first, second] = [(); 2].map(|()| run(line, mode, &case));
        assert_eq!(first.actions, second.actions, "{what}");
        assert_eq!(first.account, second.account, "{what}");
        let policy = first.account.spent.policy;
        assert!(*line == "static" || policy > Duration::ZERO, "{what}: nothing is free");
    });
}

#[test]
fn an_idle_target_causes_no_moves() {
    let placement = Placement::Interleave(vec![Tier(0), Tier(1)]);
    let tiers = vec![96, 128];
    let case = Case { idle: true, seconds: 5.0, placement, tiers, ..Case::default() };
    each(|Line { line, .. }, mode| {
        let mut ran = run(line, mode, &case);
        assert_eq!(ran.actions, [], "{line}, {mode:?}");
        assert_sound(&mut ran, line);
    });
}

// The hot set is twice as large as the fast tier, in three tiers.
#[test]
fn a_fast_tier_too_small_is_never_overfilled() {
    let (tiers, placement) = (vec![24, 64, 64], Placement::FirstTouch);
    let case =
        Case { hot: 48 * MIB, rate: 200_000, tiers, placement, seconds: 4.0, ..Case::default() };
    each(|Line { line, .. }, mode| {
        let mut ran = run(line, mode, &case);
        assert_sound(&mut ran, &format!("{line}, {mode:?}, three tiers"));
    });
}

// Half of the memory is hot and would fit into the fast tier, which moves 3.3 million lines a
// second as the slow one does: together they move twice as many, in the end.
#[test]
fn balanced_tiers_serve_more_than_a_full_one() {
    let (mib_s, tiers) = (Some(200), vec![64, 128]);
    let case = Case { hot: 32 * MIB, rate: 0, tiers, mib_s, seconds: 6.0, ..Case::default() };
    for mode in MODES {
        let rate = |line: &str| {
            let ran = run(line, mode, &case);
            ran.account.counts.accesses as f64 / 7.0 / 1e6
        };
        let plain = rate("hemem:least=0");
        let balanced = rate("hemem:least=0,balance=true");
        println!("{mode:?}: {plain:.2} M/s, balanced {balanced:.2} M/s");
        assert!(balanced > 1.2 * plain, "{mode:?}: {balanced} is not above {plain}");
    }
}

#[test]
fn evidence_that_a_machine_lacks_is_refused_by_name() {
    let mut bare = rig::machine(Mode::Density, &Case { sampled: false, ..Case::default() });
    let missing = bare.ports().samples().err().map(|missing| missing.port);
    assert_eq!(missing, Some("samples"));
    let events = bare.ports().page_events().err().map(|missing| missing.cause);
    assert!(events.is_some_and(|cause| cause.contains("all memory is mapped from the beginning")));
}
