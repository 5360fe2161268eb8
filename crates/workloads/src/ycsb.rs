//! Requests of YCSB's core workloads (Cooper et al., SoCC 2010; the property files of its
//! distribution), independent of the store.

use tierscope_core::Rng;

use crate::hotspot::unit;
use crate::keys::{Chooser, Law, YCSB_THETA};

/// Longest scan in records; lengths are uniform from 1 (`maxscanlength` of workload E).
pub const LONGEST_SCAN: u32 = 100;

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read the record of a key.
    Read(u64),
    /// Replace the value of a key.
    Update(u64),
    /// Insert a new key.
    Insert,
    /// Read a number of records in key order, from a key on.
    Scan(u64, u32),
    /// Read the record of a key, then write a modified value.
    Modify(u64),
}

/// Shares of the kinds of requests; they add up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Share of reads.
    pub reads: f64,
    /// Share of updates.
    pub updates: f64,
    /// Share of inserts.
    pub inserts: f64,
    /// Share of scans.
    pub scans: f64,
    /// Share of reads that are followed by an update.
    pub modifies: f64,
}

impl Mix {
    const NONE: Mix = Mix { reads: 0.0, updates: 0.0, inserts: 0.0, scans: 0.0, modifies: 0.0 };

    /// Reads with the given share of updates.
    #[must_use]
    pub fn updating(share: f64) -> Self {
        Mix { reads: 1.0 - share, updates: share, ..Self::NONE }
    }

    /// Mix and key distribution of a core workload, `a` to `f`, or of `w`: the write-only workload
    /// that the MULTI-CLOCK paper adds (HPCA 2022, section IV-B).
    #[must_use]
    pub fn of(workload: &str) -> Option<(Self, Law)> {
        let zipf = Law::YCSB;
        Some(match workload {
            "a" => (Mix::updating(0.5), zipf),
            "b" => (Mix::updating(0.05), zipf),
            "c" => (Mix::updating(0.0), zipf),
            "d" => (Mix { reads: 0.95, inserts: 0.05, ..Self::NONE }, Law::Latest(YCSB_THETA)),
            "e" => (Mix { scans: 0.95, inserts: 0.05, ..Self::NONE }, zipf),
            "f" => (Mix { reads: 0.5, modifies: 0.5, ..Self::NONE }, zipf),
            "w" => (Mix::updating(1.0), zipf),
            _ => return None,
        })
    }

    /// Whether any request changes an existing value.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.updates + self.modifies > 0.0
    }
}

/// A client that generates requests.
#[derive(Clone, Debug)]
pub struct Client {
    mix: Mix,
    chooser: Chooser,
    rng: Rng,
}

impl Client {
    /// A client; the same seed gives the same requests.
    #[must_use]
    pub fn new(mix: Mix, chooser: Chooser, seed: u64) -> Self {
        Self { mix, chooser, rng: Rng::seeded(seed) }
    }

    /// Goes on with another workload.
    pub fn turn(&mut self, mix: Mix, chooser: Chooser) {
        (self.mix, self.chooser) = (mix, chooser);
    }

    /// Sets the time since the client began.
    pub fn now(&mut self, since: std::time::Duration) {
        self.chooser.now(since);
    }

    /// The next request, given that `present` keys exist.
    pub fn next(&mut self, present: u64) -> Request {
        let mut draw = unit(&mut self.rng);
        let mut within = |share: f64| {
            draw -= share;
            draw < 0.0
        };
        let mix = self.mix;
        if within(mix.inserts) {
            return Request::Insert;
        }
        let (scans, updates, modifies) =
            (within(mix.scans), within(mix.updates), within(mix.modifies));
        let key = self.chooser.next(&mut self.rng, present);
        if scans {
            Request::Scan(key, 1 + self.rng.below(LONGEST_SCAN.into()) as u32)
        } else if updates {
            Request::Update(key)
        } else if modifies {
            Request::Modify(key)
        } else {
            Request::Read(key)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(workload: &str, count: usize) -> Vec<Request> {
        let (mix, law) = Mix::of(workload).unwrap();
        let mut present = 1000;
        let mut client = Client::new(mix, Chooser::new(law, 1000, 10_000, None), 1);
        let mut next = || {
            let request = client.next(present);
            present += u64::from(request == Request::Insert);
            request
        };
        (0..count).map(|_| next()).collect()
    }

    // 10,000 requests: a half is 5000 ± 50, 5 % are 500 ± 22; six sigma allowed.
    #[test]
    fn workloads_have_their_shares() {
        let share = |workload: &str, what: fn(&Request) -> bool| {
            requests(workload, 10_000).iter().filter(|request| what(request)).count()
        };
        let is_update: fn(&Request) -> bool = |r| matches!(r, Request::Update(_));
        let is_insert: fn(&Request) -> bool = |r| *r == Request::Insert;
        for (workload, what, expected) in [
            ("a", is_update, 5000),
            ("b", is_update, 500),
            ("c", is_update, 0),
            ("d", is_insert, 500),
            ("e", is_insert, 500),
            ("f", |r: &Request| matches!(r, Request::Modify(_)), 5000),
            ("w", is_update, 10_000),
        ] {
            let count = share(workload, what);
            assert!(count.abs_diff(expected) <= expected / 6, "{workload}: {count}");
        }
        assert!(Mix::of("g").is_none());
    }

    // 9500 scans of 50.5 records on average, sd 29: the mean is off by 0.3; six sigma allowed.
    #[test]
    fn scans_are_up_to_a_hundred_records_long() {
        let lengths: Vec<u32> = requests("e", 10_000)
            .iter()
            .filter_map(|r| if let Request::Scan(_, length) = r { Some(*length) } else { None })
            .collect();
        let mean = lengths.iter().sum::<u32>() as f64 / lengths.len() as f64;
        assert!((mean - 50.5).abs() < 1.8, "{mean}");
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&1), Some(&100)));
    }

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        assert_eq!(requests("d", 1000), requests("d", 1000));
    }
}
