//! The operations of a load on a server: read a drawn key, update a drawn key, or read the next key
//! of a scan over all keys.

use tierscope_core::Rng;
use tierscope_workloads::hotspot::{Hotspot, unit};
use tierscope_workloads::keys::Chooser;

/// One operation of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Number of the key that the operation uses.
    pub key: u32,
    /// Whether the operation reads, updates or scans.
    pub kind: Kind,
}

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read the value.
    Read,
    /// Set the value again, to the same bytes.
    Update,
    /// Read the value as the next one of the scan.
    Scan,
}

/// Shares of the kinds of operations; the rest are reads of drawn keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// Updates of drawn keys, to the same bytes.
    pub updates: f64,
    /// Reads by the scan.
    pub scans: f64,
}

impl Shares {
    /// Whether both are shares, and add up to at most 1.
    #[must_use]
    pub fn fit(&self) -> bool {
        self.updates >= 0.0 && self.scans >= 0.0 && self.updates + self.scans <= 1.0
    }
}

/// The distribution by which keys are drawn.
#[derive(Clone, Debug)]
pub enum Draw {
    /// A share of the operations goes to a share of the keys.
    Hotspot(Hotspot),
    /// One of the distributions of [`tierscope_workloads::keys`].
    Law(Chooser),
}

/// An endless sequence of operations; the same seed gives the same sequence.
#[derive(Clone, Debug)]
pub struct Operations {
    keys: u32,
    draw: Draw,
    shares: Shares,
    scan: u32,
    rng: Rng,
}

impl Operations {
    /// Operations on keys `0..keys`. The scan begins with key 0 and wraps around.
    #[must_use]
    pub fn new(keys: u32, draw: Draw, shares: Shares, seed: u64) -> Self {
        Self { keys, draw, shares, scan: 0, rng: Rng::seeded(seed) }
    }

    /// The next operation.
    pub fn next_operation(&mut self) -> Operation {
        let kind = self.kind();
        let key = if kind == Kind::Scan { self.scanned() } else { self.drawn() };
        Operation { key, kind }
    }

    /// The kind of the next operation. Loads of reads only draw nothing here, so that their
    /// sequence of keys depends on the key draws alone.
    fn kind(&mut self) -> Kind {
        if self.shares == Shares::default() {
            return Kind::Read;
        }
        let drawn = unit(&mut self.rng);
        if drawn < self.shares.scans {
            Kind::Scan
        } else if drawn < self.shares.scans + self.shares.updates {
            Kind::Update
        } else {
            Kind::Read
        }
    }

    fn scanned(&mut self) -> u32 {
        let key = self.scan;
        self.scan = (key + 1) % self.keys;
        key
    }

    fn drawn(&mut self) -> u32 {
        let key = match &mut self.draw {
            Draw::Hotspot(spot) => spot.next(&mut self.rng),
            Draw::Law(chooser) => chooser.next(&mut self.rng, self.keys.into()),
        };
        key as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_workloads::hotspot::Layout;
    use tierscope_workloads::keys::Law;

    fn spot(keys: u32) -> Draw {
        Draw::Hotspot(Hotspot::new(keys.into(), 0.1, 0.9, Layout::Run(0.5)))
    }

    fn drawn(mut operations: Operations, count: usize) -> Vec<Operation> {
        (0..count).map(|_| operations.next_operation()).collect()
    }

    #[test]
    fn a_scan_takes_all_keys_in_order_round_and_round() {
        let shares = Shares { updates: 0.0, scans: 1.0 };
        let operations = drawn(Operations::new(3, spot(3), shares, 1), 7);
        assert!(operations.iter().all(|operation| operation.kind == Kind::Scan));
        assert_eq!(
            operations.iter().map(|operation| operation.key).collect::<Vec<_>>(),
            [0, 1, 2, 0, 1, 2, 0]
        );
    }

    // Of 10,000 operations 500 ± 22 are updates and 2000 ± 40 belong to the scan; six sigma
    // allowed.
    #[test]
    fn kinds_have_their_shares_and_the_scan_misses_no_key() {
        let operations = Operations::new(1000, spot(1000), Shares { updates: 0.05, scans: 0.2 }, 1);
        let operations = drawn(operations, 10_000);
        let keys = |kind| {
            operations
                .iter()
                .filter(move |operation| operation.kind == kind)
                .map(|operation| operation.key)
        };
        let updates = keys(Kind::Update).count();
        assert!(updates.abs_diff(500) < 132, "{updates}");
        let scanned: Vec<u32> = keys(Kind::Scan).collect();
        assert!(scanned.len().abs_diff(2000) < 240, "{}", scanned.len());
        assert!(scanned.iter().enumerate().all(|(turn, key)| *key as usize == turn % 1000));
    }

    // A load of reads only draws exactly the keys of the distribution with the same seed.
    #[test]
    fn reads_alone_are_the_law_s_own_draws() {
        let chooser = || Chooser::new(Law::YCSB, 100, 0, None);
        let operations = Operations::new(100, Draw::Law(chooser()), Shares::default(), 7);
        let (mut law, mut rng) = (chooser(), Rng::seeded(7));
        for operation in drawn(operations, 1000) {
            assert_eq!(
                operation,
                Operation { key: law.next(&mut rng, 100) as u32, kind: Kind::Read }
            );
        }
    }

    #[test]
    fn shares_fit_into_one() {
        assert!(Shares { updates: 0.5, scans: 0.5 }.fit());
        assert!(!Shares { updates: 0.6, scans: 0.5 }.fit());
        assert!(!Shares { updates: -0.1, scans: 0.5 }.fit());
        assert!(!Shares { updates: f64::NAN, scans: 0.0 }.fit());
    }
}
