//! Latency of memory under load, reads and writes apart.
//!
//! A tier has `C` channels over which lines are spread evenly, each with `K` banks. At `r` lines
//! read and `w` written per nanosecond and channel:
//!
//! ```text
//! busy    u = r·s_r + w·s_w + turns          share of the time that the bus of a channel is busy
//! turns     = min(r, w) · turn / drain       a channel turns once for `drain` writes
//! rows    b = (r + w) · bank / (K·n)         share of it that a bank is busy; units of n lines
//! read wait = u·s/(2(1−u)) + b·bank/(2(1−b)) + d·(drain·s_w + turn)/2
//! drain   d = w·s_w + turns, if there are reads: share of the time in which writes are drained
//! ```
//!
//! `s_r` and `s_w` are the times of a line at the tier's bandwidths for reads and for writes alone,
//! `s` their mean. The first two terms are the mean waits of a queue with random arrivals and fixed
//! service (M/D/1; Pollaczek and Khinchine), of the bus and of one bank, every request opening a
//! row; the third is the rest of a drain that a read finds under way. A write waits for the bus and
//! a bank only. Behind a link whose directions are independent, reads and writes do not turn: each
//! has its own bus, and both share one of `duplex_mib_s`.
//!
//! Sources: DRAM timing and controllers with drained writes: Hansson et al., Simulating DRAM
//! controllers for future system architecture exploration (ISPASS 2014); M/D/1: Kleinrock, Queueing
//! Systems, volume 1, section 5.6.
//!
//! Left out: rows that stay open (streams hit them), refresh, unequal channels and banks, what the
//! mesh and the last-level cache add under load, priorities among reads, and arrivals that are less
//! random than Poisson's.

use crate::memory_tier::MemoryTier;

/// Bytes of a cache line.
const LINE: f64 = 64.0;
/// Highest load of a queue.
const FULL: f64 = 1.0 - 1.0 / 64.0;

/// The loaded latency of a tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loaded {
    /// Nanoseconds of a line on the bus of a channel: read, written.
    service: [f64; 2],
    channels: f64,
    bank_ns: f64,
    banks: f64,
    /// Lines of a unit of the medium.
    unit: f64,
    turn_ns: f64,
    drain: f64,
    /// Nanoseconds of a line on what both directions share, behind a link.
    shared: Option<f64>,
}

/// Lines a nanosecond of a tier: read, written.
pub type Load = [f64; 2];

impl Loaded {
    /// The model of a tier.
    #[must_use]
    pub fn new(tier: &MemoryTier) -> Self {
        let medium = &tier.medium;
        let channels = f64::from(medium.channels);
        let of = |mib_s: u64| LINE * 1e9 / (mib_s << 20) as f64;
        Self {
            service: [tier.read_mib_s, tier.write_mib_s].map(|mib_s| channels * of(mib_s)),
            channels,
            bank_ns: medium.bank_ns.into(),
            banks: medium.banks.into(),
            unit: medium.unit.map_or(1.0, |unit| f64::from(unit.bytes) / LINE),
            turn_ns: medium.turn_ns.into(),
            drain: medium.drain.into(),
            shared: medium.duplex_mib_s.map(|mib_s| channels * of(mib_s)),
        }
    }

    /// Nanoseconds of the tier's bus that a line takes: read, written. A write takes part of a
    /// turn, as long as there are reads.
    #[must_use]
    pub fn cost(&self, load: Load) -> [f64; 2] {
        let [read, write] = self.service;
        [read / self.channels, (write + self.turn(load)) / self.channels]
    }

    /// Nanoseconds of what both directions share that a line takes, behind a link.
    #[must_use]
    pub fn shared(&self) -> Option<f64> {
        self.shared.map(|shared| shared / self.channels)
    }

    /// Nanoseconds that a write costs for turning the bus.
    fn turn(&self, [read, written]: Load) -> f64 {
        if self.shared.is_some() || written == 0.0 {
            return 0.0;
        }
        self.turn_ns / self.drain * (read / written).min(1.0)
    }

    /// Share of the time that the busiest part of the tier's bus is busy.
    #[must_use]
    pub fn utilisation(&self, load: Load) -> f64 {
        let [read, write] = self.cost(load);
        let [read, write] = [load[0] * read, load[1] * write];
        match self.shared {
            None => read + write,
            Some(shared) => read.max(write).max((load[0] + load[1]) * shared / self.channels),
        }
    }

    /// Mean nanoseconds that a read and a write wait.
    #[must_use]
    pub fn waits(&self, load: Load) -> [f64; 2] {
        let [read, written] = load.map(|lines| lines / self.channels);
        let rows = (read + written) / self.unit * self.bank_ns / self.banks;
        let bank = wait(self.bank_ns, rows);
        let [of_read, of_write] = self.service;
        if let Some(shared) = self.shared {
            let both = wait(shared, (read + written) * shared) + bank;
            return [
                wait(of_read, read * of_read) + both,
                wait(of_write, written * of_write) + both,
            ];
        }
        let turned = self.turn(load);
        let draining = if read > 0.0 { (written * (of_write + turned)).min(FULL) } else { 0.0 };
        let busy = read * of_read + written * (of_write + turned);
        let lines = (read + written).max(f64::MIN_POSITIVE);
        let bus = wait(busy / lines, busy);
        let rest = draining * (self.drain * of_write + self.turn_ns) / 2.0;
        [bus + bank + rest, bus + bank]
    }
}

/// Mean wait of M/D/1.
fn wait(service: f64, load: f64) -> f64 {
    let load = load.min(FULL);
    service * load / (2.0 * (1.0 - load))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Machine;
    use crate::memory_tier::Medium;

    /// Two channels of 64 bytes in 10 ns each, whether read or written.
    fn tier(medium: Medium) -> Loaded {
        let mut tier = Machine::ready_made("laptop").expect("it is there").tiers.remove(0);
        (tier.read_mib_s, tier.write_mib_s) = (12_207, 12_207);
        tier.medium = Medium { channels: 2, ..medium };
        Loaded::new(&tier)
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 0.01 * b.abs().max(0.01), "{a} is not {b}");
    }

    // 0.1 lines a ns are 0.05 a channel, half of its bus: M/D/1 waits 10 x 0.5 / (2 x 0.5) = 5 ns.
    #[test]
    fn a_bus_waits_like_a_queue() {
        let tier = tier(Medium::plain());
        near(tier.utilisation([0.1, 0.0]), 0.5);
        near(tier.waits([0.1, 0.0])[0], 5.0);
        assert_eq!(tier.waits([0.0, 0.0]), [0.0, 0.0]);
    }

    // 0.05 lines a channel on 4 banks of 40 ns: half busy, 40 x 0.5 / (2 x 0.5) = 20 ns more.
    #[test]
    fn a_bank_is_busy_for_a_row() {
        let tier = tier(Medium { banks: 4, bank_ns: 40, ..Medium::plain() });
        near(tier.waits([0.1, 0.0])[0], 25.0);
    }

    // As many writes as reads, 20 ns for a turn each 4 writes: a write costs 10 + 5 ns. At 0.02
    // and 0.02 a channel the bus is busy for 0.2 + 0.3; a read finds a drain of 4 x 10 + 20 ns in
    // 0.3 of the cases, and waits for half of it: 9 ns.
    #[test]
    fn reads_wait_for_drained_writes() {
        let tier = tier(Medium { turn_ns: 20, drain: 4, ..Medium::plain() });
        near(tier.utilisation([0.04, 0.04]), 0.5);
        let [read, write] = tier.waits([0.04, 0.04]);
        near(read - write, 9.0);
        near(tier.utilisation([0.0, 0.04]), 0.2);
    }

    // Behind a link, reads take half of their direction and of what is shared; as many writes fill
    // the latter, but neither direction.
    #[test]
    fn directions_of_a_link_are_independent() {
        let tier = tier(Medium { duplex_mib_s: Some(12_207), ..Medium::plain() });
        near(tier.utilisation([0.1, 0.0]), 0.5);
        near(tier.utilisation([0.1, 0.1]), 1.0);
        let [read, _] = tier.cost([0.1, 0.1]);
        near(0.1 * read, 0.5);
    }
}
