//! Hot lists of monitoring units, fed from the densities.
//!
//! What a unit reports depends on the order of requests: few counters are given to many units of
//! memory, and lists overflow. So requests are drawn one by one and pass the same device as in
//! exact mode ([`Machine::with_monitors`]): lines read, prefetched ones included, and lines written
//! back (`hits.rs`), at random addresses of each stream. Costs grow with the requests: some 10^7 a
//! second of the host.
//!
//! Draws belong to slices of a millisecond, so that the times of readers do not change them. Within
//! a slice requests are at equal distances. Sequential sweeps are the same number of random
//! requests. Physical addresses are those of `counters.rs`; a page counts in the tier that it has
//! when its requests are drawn, which is before each access to a hot list and each move of a slice.

use std::fmt;

use tierscope_core::{
    BusObserver, BusRecord, Error, ErrorKind, HotLists, Missing, RegisterWork, Result, Time,
};

use super::hash::{Poisson, draw, unit};
use super::machine::Machine;
use super::profile::AccessStream;
use super::samples::Sums;

/// Nanoseconds of a slice.
const SLICE: u64 = 1_000_000;
/// Records in a batch.
const BATCH: usize = 4096;

/// The units, and the requests that they have seen.
pub(super) struct Monitors {
    observer: Box<dyn BusObserver>,
    /// Time up to which requests were drawn, in nanoseconds.
    drawn: u64,
    key: u64,
}

impl fmt::Debug for Monitors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitors").field("drawn", &self.drawn).finish_non_exhaustive()
    }
}

impl Monitors {
    pub(super) fn take_work(&mut self) -> RegisterWork {
        self.observer.take_work()
    }
}

/// Requests of a stream a second, and the share of them that read.
fn requests(stream: &AccessStream) -> (f64, f64) {
    let (reads, writes) = (stream.hits_of.reads, stream.hits_of.writebacks);
    let all = reads + writes;
    (stream.rate * all, if all > 0.0 { reads / all } else { 0.0 })
}

impl Machine {
    /// Attaches monitoring units that observe the memory of [`Machine::physical`].
    ///
    /// # Errors
    /// They have no hot lists.
    pub fn with_monitors(mut self, mut observer: Box<dyn BusObserver>) -> Result<Self> {
        if observer.hot_lists(self.now).is_none() {
            return Err(Error::new(ErrorKind::Usage, "what listens there has no hot lists"));
        }
        let key = draw(self.config.seed, u64::from(u32::MAX) + 2);
        self.monitors = Some(Monitors { observer, drawn: self.now.0, key });
        Ok(self)
    }

    /// Draws the requests up to now.
    pub(super) fn feed_monitors(&mut self) {
        let Some(mut monitors) = self.monitors.take() else { return };
        let now = self.now.0;
        let mut batch = Vec::with_capacity(BATCH);
        while monitors.drawn < now {
            let from = monitors.drawn;
            let profile = self.world.profile_at(from);
            let to = profile.end.min(now);
            let streams: Vec<(&AccessStream, f64)> = profile
                .layers
                .iter()
                .flatten()
                // A process that is too rare is omitted from the world (`profile.rs`).
                .filter(|stream| stream.ranges().next().is_some())
                .map(|stream| (stream, requests(stream).1))
                .collect();
            let below = streams.iter().scan(0.0, |sum, (stream, _)| {
                *sum += requests(stream).0;
                Some(*sum)
            });
            let sums = Sums::new(below.collect());
            let places = self.world.places.index();
            let law = Poisson::of_many(sums.whole() * SLICE as f64 / 1e9);
            for slice in from / SLICE..to.div_ceil(SLICE) {
                let key = draw(monitors.key, slice);
                let count = law(draw(key, u64::MAX));
                let pause = SLICE as f64 / count.max(1) as f64;
                let at = |number: u64| slice * SLICE + (pause * (number as f64 + 0.5)) as u64;
                for number in (0..count).filter(|number| (from..to).contains(&at(*number))) {
                    let bits = draw(key, number);
                    let (stream, read) = streams[sums.part(unit(bits))];
                    let accesses = stream.ranges().next().expect("rare ones were left out");
                    let slot = (u128::from(draw(bits, 1)) * u128::from(accesses.slots)) >> 64;
                    let address = accesses.address(slot as u64, draw(bits, 2));
                    let Some(tier) = places.tier_of(address) else { continue };
                    let write = unit(draw(bits, 3)) >= read;
                    let frame = self.frame(address, tier);
                    batch.push(BusRecord::new(Time(at(number)), frame, write));
                    if batch.len() == BATCH {
                        monitors.observer.observe(&batch);
                        batch.clear();
                    }
                }
            }
            monitors.observer.observe(&batch);
            batch.clear();
            monitors.drawn = to;
        }
        self.monitors = Some(monitors);
    }

    /// Lets time pass up to `until`, or until a hot list waits for its reader; returns whether one
    /// does.
    pub(super) fn pass_until_interrupt(&mut self, until: u64) -> bool {
        let enabled = |machine: &mut Self| {
            let now = machine.now;
            machine.monitors.as_mut().and_then(|monitors| monitors.observer.interrupt(now))
        };
        if enabled(self).is_none() {
            self.pass(until);
            return false;
        }
        while self.now.0 < until {
            self.pass(until.min((self.now.0 / SLICE + 1) * SLICE));
            self.feed_monitors();
            if enabled(self) == Some(true) {
                return true;
            }
        }
        false
    }

    /// The hot lists as of now.
    ///
    /// # Errors
    /// No units are attached.
    pub(super) fn hot_lists_now(&mut self) -> Result<&mut dyn HotLists, Missing> {
        self.feed_monitors();
        let now = self.now;
        let lists = self.monitors.as_mut().and_then(|monitors| monitors.observer.hot_lists(now));
        lists.ok_or_else(|| Missing {
            port: "hot lists",
            cause: "no monitoring unit was attached to this machine's memory".into(),
            remedy: "attach one, as `chmu` does".into(),
        })
    }
}
