//! Extensions of the prototype: sketches, top-K, variance, sweeps, on both models.

use std::collections::BTreeMap;

use tierscope_core::{
    BusObserver, BusRecord, Cell, Counters, Filter, Key, Loss, ReadEffect, RequestKind, Rng, Rule,
    RuleLimits, Time,
};
use tierscope_nemo::driver::Sweep;
use tierscope_nemo::program::Chain;
use tierscope_nemo::{
    CountMin, Cycle, Driver, Engine, Functional, Memory, Moments, Spec, TopK, Zone,
};

const BYTES: u64 = 1 << 30;

fn memory(granule: u64) -> Memory {
    let zone = Zone { start: 0, end: BYTES, first: 0, controllers: 2, granule };
    Memory::new(vec![zone], 2).expect("a memory")
}

fn fast() -> Driver<Functional> {
    Driver::new(Functional::new(memory(256), 8, 64).expect("an engine"))
}

/// Counts requests by regions of 2^shift bytes, reset on read.
fn per_region(shift: u8) -> Rule {
    let rule = Rule::build().key(Key::ALL_MEMORY, shift).on_read(ReadEffect::Reset(0));
    rule.finish(&RuleLimits::of_memory(BYTES)).expect("a rule")
}

fn at(address: u64) -> BusRecord {
    BusRecord::new(Time(0), address & !63, false)
}

/// Zipf-distributed requests: the n-th page gets about 1/n of the first one's requests; ranks are
/// scattered over addresses.
fn zipf(rng: &mut Rng, requests: usize) -> Vec<BusRecord> {
    let pages = BYTES >> 12;
    let one = |_| {
        let rank = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let rank = (pages as f64).powf(rank) as u64;
        at((rank.wrapping_mul(0x9e37_79b1) % pages) << 12 | rng.below(4096))
    };
    (0..requests).map(one).collect()
}

fn truth(batch: &[BusRecord]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    batch.iter().for_each(|record| *counts.entry(record.address() >> 12).or_default() += 1);
    counts
}

// 262,144 pages in 4 x 8,192 states. An estimate may exceed the true count by 4·N/w for 1 of 16
// keys: checks that share over all keys, without a margin.
#[test]
fn a_sketch_never_falls_short_and_seldom_exceeds() {
    let mut driver = fast();
    let spec = Spec::from(per_region(12));
    let sketch = CountMin::install(&mut driver, &spec, 4, 13, 5).unwrap();
    let batch = zipf(&mut Rng::seeded(88), 400_000);
    driver.observe(&batch);
    let estimates = sketch.read(&mut driver).unwrap();
    let counts = truth(&batch);
    let (mut over, bound) = (0, 4 * batch.len() as u64 / 8192);
    for page in 0..BYTES >> 12 {
        let (count, estimate) = (counts.get(&page).copied().unwrap_or(0), estimates.of(page));
        assert!(estimate >= count, "page {page:#x}: {estimate} of {count}");
        over += u64::from(estimate > count + bound);
    }
    assert!(over * 16 <= BYTES >> 12, "{over} estimates exceed by more than {bound}");
    assert_eq!(sketch.key_of(0x5fff), 5);
    assert_eq!(sketch.read(&mut driver).unwrap().of(0), 0, "reset");
    let free = driver.free();
    sketch.uninstall(&mut driver).unwrap();
    assert!(driver.free() > free);
}

#[test]
fn hashes_are_refused_by_name() {
    let mut driver = fast();
    let spec = Spec::from(per_region(12));
    let mut why = |spec: &Spec, multiplier, bits| {
        driver.install_hashed(spec, multiplier, bits).unwrap_err().to_string()
    };
    assert!(why(&spec, 2, 5).contains("`multiplier`"));
    assert!(why(&spec, 3, 14).contains("`bits`") && why(&spec, 3, 0).contains("`bits`"));
    let offset = Rule { offset: Key { mask: 0xfff, shift: 6 }, ..spec.rule };
    assert!(why(&Spec { rule: offset, ..spec }, 3, 5).contains("`offset`"));
    let free = driver.free();
    assert!(CountMin::install(&mut driver, &spec, 9, 13, 5).is_err(), "there are eight pipelines");
    assert_eq!(driver.free(), free, "nothing is left of what does not fit");
    let id = driver.install_hashed(&spec, 3, 5).unwrap();
    assert!(driver.translate(id, 0, Some(0)).unwrap_err().to_string().contains("no table"));
}

// 16,384 regions of 64 KiB in 4 x 1,024 states of the sketch; 64 exact counters, whose keys take
// two tables.
#[test]
fn the_hottest_are_found_in_two_passes() {
    let mut driver = fast();
    let spec = Spec::from(per_region(16));
    let mut top = TopK::install(&mut driver, &spec, (4, 10), 64, 5).unwrap();
    let regions = 0..BYTES >> 16;
    assert_eq!(top.advance(&mut driver, regions.clone(), 16).unwrap(), []);
    let mut rng = Rng::seeded(89);
    driver.observe(&zipf(&mut rng, 200_000));
    assert_eq!(top.advance(&mut driver, regions.clone(), 16).unwrap(), [], "not counted yet");
    let batch = zipf(&mut rng, 200_000);
    driver.observe(&batch);
    let found = top.advance(&mut driver, regions, 16).unwrap();
    let mut counts = BTreeMap::new();
    batch.iter().for_each(|record| *counts.entry(record.address() >> 16).or_default() += 1);
    let mut all: Vec<(u64, u64)> = counts.into_iter().collect();
    all.sort_unstable_by_key(|(region, count)| (std::cmp::Reverse(*count), *region));
    assert_eq!(found, all[..16]);
    let (free, whole) = (driver.free(), fast().free());
    top.uninstall(&mut driver).unwrap();
    assert!(driver.free() == whole && free != whole);
}

/// Requests to 16 pages of region 3, n requests to the n-th page; and others elsewhere.
fn uneven() -> Vec<BusRecord> {
    let page = |n: u64| (0..n).map(move |line| at((3 << 16) + (n << 12) + line * 64));
    (0..16).flat_map(page).chain((0..50).map(|n| at((9 << 16) + n * 64))).collect()
}

fn spread<E: Engine + BusObserver>(driver: &mut Driver<E>) -> (f64, f64, f64) {
    let filter = Filter { kind: RequestKind::All, start: 0, end: BYTES / 2 };
    let rule = Rule { offset: Key { mask: 0xffff, shift: 12 }, filter, ..per_region(16) };
    let moments = Moments::install(driver, rule, 4).unwrap();
    moments.watch(driver, 3, Some(2)).unwrap();
    driver.observe(&uneven());
    let all = moments.read(driver).unwrap();
    assert_eq!((all[0].sum, all[2].sum, all[2].parts), (0, 120, 16));
    let (low, high) = all[2].variance();
    assert_eq!(moments.read(driver).unwrap()[2].sum, 0, "reset");
    let mean = all[2].mean();
    moments.uninstall(driver).unwrap();
    (mean, low, high)
}

// 0 to 15 requests to 16 pages: mean 7.5, variance (16² − 1) / 12 = 21.25.
#[test]
fn variance_lies_within_its_bounds_and_is_exact_in_one_bank() {
    let (mean, low, high) = spread(&mut fast());
    assert_eq!(mean, 7.5);
    assert!(low <= 21.25 && 21.25 <= high, "{low}..{high}");
    let single = || Memory::single(BYTES, 1).unwrap();
    let mut one = Driver::new(Functional::new(single(), 4, 32).unwrap());
    assert_eq!(spread(&mut one), (7.5, 21.25, 21.25));
    // A page is no larger than the interleaving between controllers: only the 2 channels remain.
    let mut cycle = Driver::new(Cycle::new(memory(4096), 4).unwrap());
    let mut beside = Driver::new(Functional::new(memory(4096), 4, 32).unwrap());
    assert_eq!(spread(&mut cycle), spread(&mut beside), "both models");
}

#[test]
fn a_chain_is_installed_and_removed_as_one() {
    let mut driver = fast();
    let whole = driver.free();
    let spec = Spec { states: Some(64), ..Spec::from(per_region(21)) };
    let ids = driver.install_chain(&spec, &[(spec, Chain::SquareStep)]).unwrap();
    assert!(driver.losses(ids[1]).unwrap().contains(&Loss::Chain));
    assert!(driver.uninstall(ids[1]).unwrap_err().to_string().contains("chained"));
    driver.uninstall(ids[0]).unwrap();
    assert_eq!(driver.free(), whole);
    let wide = Spec { states: Some(20_000), ..spec };
    let said = driver.install_chain(&wide, &[]).unwrap_err().to_string();
    assert!(said.contains("`chain`") && said.contains("3 pipelines"), "{said}");
    let nine = vec![(spec, Chain::Value); 8];
    let said = driver.install_chain(&spec, &nine).unwrap_err().to_string();
    assert!(said.contains("9 pipelines in a row"), "{said}");
    assert_eq!(driver.free(), whole);
}

#[test]
fn saturating_bytes_distinguish_warm_from_hot() {
    let mut driver = fast();
    let cell = Cell::new(1, true).unwrap();
    let id = driver.install(&Spec { cell, states: Some(1000), rule: per_region(20) }).unwrap();
    (0..3).for_each(|key| driver.translate(id, key, Some(key as u32 * 499)).unwrap());
    let hot = (0..1000).map(|n| at(n * 64));
    driver.observe(&hot.chain((0..17).map(|n| at((1 << 20) + n * 64))).collect::<Vec<_>>());
    let mut states = [0; 1000];
    driver.read(id, &mut states).unwrap();
    assert_eq!((states[0], states[499], states[998]), (255, 17, 0));
}

// 40 regions, 16 states: 3 periods, each of which counts its own requests only.
#[test]
fn a_sweep_visits_every_region_once() {
    let mut driver = fast();
    let id = driver.register_states(&per_region(20), 16).unwrap();
    let keys: Vec<u64> = (100..140).collect();
    let mut sweep = Sweep::new(id, keys.clone(), 16, 1);
    assert_eq!(sweep.periods(), 3);
    let mut seen = BTreeMap::new();
    for period in 0..4u64 {
        sweep
            .advance(&mut driver, |key, states| assert_eq!(seen.insert(key, states[0]), None))
            .unwrap();
        let each = |key: u64| vec![at(key << 20); (period + 1) as usize];
        driver.observe(&keys.iter().flat_map(|key| each(*key)).collect::<Vec<_>>());
    }
    let expected = keys.iter().map(|key| (*key, 1 + (key - 100) / 16));
    assert_eq!(seen, expected.collect());
}
