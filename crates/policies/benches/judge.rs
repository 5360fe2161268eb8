//! Benchmark: pages that a policy judges per second of CPU time: probe requests, answers, list
//! updates.
//!
//! 4 Mi pages (16 GiB), whose lists are far larger than any cache: listed in the order of their
//! numbers, as a program fills its memory, and in random order, as hours of accesses leave them.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tierscope_core::{
    Backing, Evidence, Mapping, Mappings, Orders, PAGE_SHIFT, PAGE_SIZE, PageEvent, PageEventKind,
    PageId, PlacementView, Policy, Range, Rng, SpaceId, State, Tier, TierUse, Time,
};

const PAGES: u64 = 1 << 22;
const START: u64 = 1 << 40;
/// Pages per list and run that are scanned: MULTI-CLOCK's default.
const SCAN: u64 = 1024;
/// Pages that AutoTiering's hand passes per tick.
const PASSED: u64 = 1 << 16;

/// A placement with all pages in the slow tier.
struct Slow([TierUse; 2]);

impl Slow {
    fn new() -> Self {
        let capacity = PAGES * PAGE_SIZE * 2;
        let tier = |tier, used| TierUse { tier: Tier(tier), capacity, used };
        Self([tier(0, capacity), tier(1, capacity / 2)])
    }
}

fn range(first: u64, pages: u64) -> Range {
    let start = START + first * PAGE_SIZE;
    Range::new(SpaceId(0), start, start + pages * PAGE_SIZE)
}

impl PlacementView for Slow {
    fn tiers(&self) -> &[TierUse] {
        &self.0
    }

    fn tier_of(&self, _: PageId) -> Option<Tier> {
        Some(Tier(1))
    }

    fn page_at(&self, range: &Range) -> Option<PageId> {
        Some(PageId(((range.start - START) >> PAGE_SHIFT) as u32))
    }

    fn range_of(&self, page: PageId) -> Option<Range> {
        Some(range(page.0.into(), 1))
    }

    fn resident(&self, range: &Range, tier: Tier) -> u64 {
        if tier == Tier(1) { range.bytes() } else { 0 }
    }
}

/// A policy that tracks all pages; its lists are in address order or shuffled.
fn policy(line: &str, shuffled: bool) -> Box<dyn Policy> {
    let mut policy = tierscope_policies::make(line).expect("it can be made");
    let mut orders = Orders::default();
    let mapping = Mapping {
        range: range(0, PAGES),
        backing: Backing::Anonymous,
        name: "".into(),
        writable: true,
        object: None,
    };
    let mappings = Mappings { mappings: vec![mapping], ..Mappings::default() };
    let mut numbers: Vec<u64> = (0..PAGES).collect();
    if shuffled {
        let mut rng = Rng::seeded(1);
        (1..numbers.len()).rev().for_each(|at| numbers.swap(at, rng.below(at as u64 + 1) as usize));
    }
    // These allocation events precede the mappings, so their order becomes the order of the lists.
    for some in numbers.chunks(1 << 16) {
        let event = |page: &u64| PageEvent {
            time: Time(0),
            range: range(*page, 1),
            kind: PageEventKind::Allocated(Tier(1)),
        };
        let events: Vec<PageEvent> = some.iter().map(event).collect();
        policy.observe(Evidence::PageEvents(&events), &mut orders);
    }
    policy.observe(Evidence::Mappings(&mappings), &mut orders);
    policy.tick(Time(0), &Slow::new(), &mut orders);
    policy
}

/// One run: pages are probed and answered, one in eight of them young. Returns the number of pages
/// judged, and the CPU time of the policy alone.
fn run(
    policy: &mut dyn Policy,
    now: &mut Time,
    view: &Slow,
    orders: &mut Orders,
) -> (u64, Duration) {
    *now += Duration::from_secs(1);
    let began = cpu_time();
    policy.tick(*now, view, orders);
    let asked = cpu_time() - began;
    let mut probes = std::mem::take(&mut orders.probes);
    let mut seed = now.0;
    for probe in &mut probes {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        probe.answer.state = if seed >> 61 == 0 { State::Young } else { State::Old };
    }
    let began = cpu_time();
    policy.observe(Evidence::Bits(&probes), orders);
    let judged = cpu_time() - began;
    orders.clear();
    let count = probes.len() as u64;
    probes.clear();
    orders.probes = probes;
    (count, asked + judged)
}

/// CPU time of `pages` judgements, scaled from as many runs as they take.
fn judge(policy: &mut dyn Policy, now: &mut Time, pages: u64) -> Duration {
    let (view, mut orders) = (Slow::new(), Orders::default());
    let (mut judged, mut spent) = (0, Duration::ZERO);
    while judged < pages {
        let (count, time) = run(policy, now, &view, &mut orders);
        judged += count.max(1);
        spent += time;
        black_box(&orders);
    }
    spent.mul_f64(pages as f64 / judged as f64)
}

/// CPU time of this thread, so that other load on the machine does not count.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn judging(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("judge");
    group.throughput(Throughput::Elements(SCAN));
    group.sample_size(20);
    for line in ["multi-clock", "nimble-selection"] {
        for (order, shuffled) in [("in order", false), ("shuffled", true)] {
            let mut policy = policy(&format!("{line}:scan={SCAN}"), shuffled);
            let mut now = Time(0);
            group.bench_function(BenchmarkId::new(line, order), |bencher| {
                bencher.iter_custom(|rounds| judge(&mut *policy, &mut now, rounds * SCAN));
            });
        }
    }
    group.finish();
}

/// Benchmark of AutoTiering's hand passing over all pages: histories are shifted, pages change
/// lists.
fn passing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pass");
    group.throughput(Throughput::Elements(PASSED));
    group.sample_size(20);
    for (order, shuffled) in [("in order", false), ("shuffled", true)] {
        let mut policy =
            policy(&format!("autotiering-opm:scan-size={}", PASSED * PAGE_SIZE), shuffled);
        let (view, mut orders, mut now) = (Slow::new(), Orders::default(), Time(0));
        group.bench_function(BenchmarkId::new("autotiering-opm", order), |bencher| {
            bencher.iter_custom(|rounds| {
                let began = cpu_time();
                for _ in 0..rounds {
                    now += Duration::from_secs(1);
                    policy.tick(now, &view, &mut orders);
                    orders.clear();
                }
                cpu_time() - began
            });
        });
    }
    group.finish();
}

criterion_group!(benches, judging, passing);
criterion_main!(benches);
