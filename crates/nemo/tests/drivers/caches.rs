//! The telemetry region behind a cache that prefetches and evicts at random.

use std::collections::BTreeMap;

use tierscope_core::{BusObserver, Counters, Rng};
use tierscope_nemo::{
    At, Control, Driver, Engine, Functional, Geometry, Line, Memory, Region, Status,
};

use super::{BYTES, HUGE, finish, per_huge_page, reads};

/// A host cache in front of the region. It is filled by loads and random prefetches, and lines are
/// evicted at any time.
struct Cached {
    engine: Functional,
    lines: BTreeMap<(usize, u64), Line>,
    rng: Rng,
    /// Whether it executes the driver's invalidations.
    obeys: bool,
    prefetched: u64,
}

impl Cached {
    fn new(obeys: bool) -> Self {
        let engine = Functional::new(Memory::single(BYTES, 2).unwrap(), 2, 16).unwrap();
        Self { engine, lines: BTreeMap::new(), rng: Rng::seeded(86), obeys, prefetched: 0 }
    }

    /// Random prefetches and evictions, as other programs cause them between two instructions.
    fn stir(&mut self, near: u64) {
        for _ in 0..self.rng.below(6) {
            let lines = Region::of(self.engine.geometry()).lines();
            let line = match self.rng.below(2) {
                0 => (near + self.rng.below(8)).min(lines - 1),
                _ => self.rng.below(lines),
            };
            if self.rng.below(3) == 0 {
                self.lines.remove(&(0, line));
            } else if !self.lines.contains_key(&(0, line)) {
                self.prefetched += 1;
                let held = self.engine.load(0, line);
                self.lines.insert((0, line), held);
            }
        }
    }
}

impl Engine for Cached {
    fn geometry(&self) -> Geometry {
        self.engine.geometry()
    }

    fn memory(&self) -> &Memory {
        self.engine.memory()
    }

    fn control(&mut self, at: At, control: Control) {
        self.stir(Region::of(self.geometry()).captured(0, 0));
        self.engine.control(at, control);
        self.stir(Region::of(self.geometry()).captured(0, 0));
    }

    fn invalidate(&mut self, controller: usize, line: u64) {
        if self.obeys {
            self.lines.remove(&(controller, line));
        }
    }

    fn load(&mut self, controller: usize, line: u64) -> Line {
        self.stir(line);
        let (engine, key) = (&mut self.engine, (controller, line));
        let held = *self.lines.entry(key).or_insert_with(|| engine.load(controller, line));
        self.stir(line);
        held
    }

    fn status(&mut self, at: At, channel: usize) -> Status {
        self.engine.status(at, channel)
    }

    fn pending(&mut self, controller: usize) -> u64 {
        self.engine.pending(controller)
    }
}

/// Counts requests to 1,000 huge pages and reads the counters, repeatedly; returns the totals of
/// requests and of values read.
fn counted_and_read(obeys: bool) -> (u64, u64) {
    let mut driver = Driver::new(Cached::new(obeys));
    let id = driver.register(&finish(per_huge_page())).unwrap();
    (0..1000).for_each(|key| driver.translate(id, key, Some(key as u32)).unwrap());
    let mut rng = Rng::seeded(87);
    let (mut counted, mut read) = (0, 0);
    for _ in 0..50 {
        let batch = reads((0..400).map(|_| rng.below(1000 * HUGE)));
        counted += batch.len() as u64;
        driver.engine_mut().engine.observe(&batch);
        let mut states = vec![0; 1000];
        driver.read(id, &mut states).unwrap();
        read += states.iter().sum::<u64>();
    }
    assert!(driver.engine().prefetched > 10_000);
    (counted, read)
}

#[test]
fn prefetches_reset_nothing_and_nothing_is_read_twice() {
    assert_eq!(counted_and_read(true), (20_000, 20_000));
}

#[test]
fn without_invalidation_old_lines_would_be_read() {
    let (counted, read) = counted_and_read(false);
    assert_ne!(counted, read);
}
