//! The load of a tier: lines requested in the time slots before.
//!
//! Slots count by the time at which cores dispatch accesses: their clocks are apart by a quantum at
//! most, while a chain of dependent accesses books memory far ahead of it. A slot is taken once all
//! cores are beyond it, with half the weight of the next: the requests of a closed loop would
//! otherwise swing between a slot with long waits and one with none.

/// Slots after which all cores are beyond one, and slots kept.
const LAG: u64 = 5;
const KEPT: usize = 8;
const _: () = assert!(LAG < KEPT as u64);

/// Lines of the last slots.
#[derive(Default)]
pub(super) struct Meter {
    latest: u64,
    lines: [[u64; 2]; KEPT],
    load: [f64; 2],
}

impl Meter {
    /// Counts lines read or written in a slot. With the first ones of a slot, returns the lines
    /// that a slot has had on average until then, read and written.
    #[inline(always)]
    pub(super) fn count(&mut self, slot: u64, way: usize, lines: u64) -> Option<[f64; 2]> {
        let changed = slot > self.latest;
        if changed {
            self.advance(slot);
        }
        if slot + LAG > self.latest {
            self.lines[slot as usize % KEPT][way] += lines;
        }
        changed.then_some(self.load)
    }

    #[cold]
    fn advance(&mut self, slot: u64) {
        // After a long pause all that is kept is over.
        let from = self.latest.max(slot.saturating_sub(2 * KEPT as u64));
        for next in from + 1..=slot {
            let over = next.checked_sub(LAG).map(|over| self.lines[over as usize % KEPT]);
            let over = over.unwrap_or_default();
            self.load = [0, 1].map(|way| (self.load[way] + over[way] as f64) / 2.0);
            self.lines[next as usize % KEPT] = [0; 2];
        }
        self.latest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Eight lines in each slot: after five slots a half of them, then three quarters, and so on.
    #[test]
    fn load_is_that_of_slots_that_are_over() {
        let mut meter = Meter::default();
        let loads: Vec<f64> = (0..30)
            .filter_map(|slot| {
                let load = meter.count(slot, 0, 5);
                meter.count(slot.saturating_sub(2), 0, 3);
                load.map(|[read, _]| read)
            })
            .collect();
        assert_eq!(loads[..4], [0.0; 4]);
        assert!((loads[28] - 8.0).abs() < 0.01, "{loads:?}");
    }

    #[test]
    fn a_long_pause_forgets_the_load() {
        let mut meter = Meter::default();
        (0..30).for_each(|slot| _ = meter.count(slot, 1, 8));
        let load = meter.count(1_000_000, 1, 1).expect("a new slot");
        assert!(load[1] < 0.1, "{load:?}");
    }
}
