//! Counters and times, settled whenever the flow of accesses changes.

use std::time::Duration;

use tierscope_core::RegisterWork;

use super::flow::Flow;
use super::machine::Machine;
use crate::account::{Account, Counts, Spent, TIERS};

/// Counts of accesses and of CPU time, added up since the machine was made.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Time up to which counters are settled, in nanoseconds.
    settled: u64,
    /// Time stolen from the target since then, in nanoseconds.
    stolen: f64,
    pub(super) spent: Spent,
    /// Probes of page-table entries, and entries visited by scans.
    pub(super) looks: u64,
    pub(super) scanned: u64,
    pub(super) samples: u64,
    pub(super) armed: u64,
    pub(super) registers: RegisterWork,
    pub(super) counts: Sums,
}

/// Nanoseconds by which counters that policies read may be late.
const SETTLED: u64 = 1_000_000_000;

/// Counters before they are rounded.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    accesses: f64,
    second: f64,
    walks: f64,
    walk_reads: f64,
    walk_misses: f64,
    llc: f64,
    served: [f64; TIERS],
    /// Nanoseconds for which these were outstanding, and for which cores stalled.
    outstanding: [f64; TIERS],
    stalled: f64,
    lines: [[f64; TIERS]; 2],
    pub(super) hint_faults: u64,
    pub(super) swap_ins: u64,
    pub(super) shootdowns: u64,
    pub(super) flushes: u64,
}

impl Sums {
    fn add(&mut self, flow: &Flow, accesses: f64) {
        let each = &flow.counted;
        self.accesses += accesses;
        self.second += accesses * each.second;
        self.walks += accesses * each.walks;
        self.walk_reads += accesses * each.walk_reads;
        self.walk_misses += accesses * each.walk_misses;
        self.llc += accesses * each.llc;
        self.stalled += accesses * flow.stalled_ns;
        for tier in 0..TIERS {
            self.served[tier] += accesses * each.served[tier];
            self.outstanding[tier] += accesses * each.outstanding[tier];
            self.lines[0][tier] += accesses * flow.lines[0][tier];
            self.lines[1][tier] += accesses * flow.lines[1][tier];
        }
    }
}

impl Ledger {
    /// Steals time from the target.
    pub(super) fn steal(&mut self, nanos: u64) {
        self.stolen += nanos as f64;
    }

    /// Records a flush that made pages walk once more, for `nanos` ns of the target's time.
    pub(super) fn refilled(&mut self, walks: f64, nanos: f64) {
        self.counts.flushes += 1;
        self.counts.walks += walks;
        self.counts.walk_reads += walks;
        self.stolen += nanos;
    }

    /// Counts lines copied between tiers.
    pub(super) fn copied(&mut self, way: usize, tier: usize, lines: u64) {
        self.counts.lines[way][tier] += lines as f64;
    }
}

impl Machine {
    /// Settles the target's work until now.
    pub(super) fn settle(&mut self) {
        let (mut at, to) = (self.ledger.settled, self.now.0);
        if at >= to {
            return;
        }
        let all = (to - at) as f64 * f64::from(self.config.cores);
        let share = (std::mem::take(&mut self.ledger.stolen) / all).min(1.0);
        while at < to {
            let profile = self.world.profile_at(at);
            let end = profile.end.min(to);
            let flow = self.world.flow(&profile, share, &self.moves.lines);
            let seconds = (end - at) as f64 / 1e9;
            self.ledger.counts.add(&flow, flow.rate * seconds);
            let busy = flow.rate * seconds * flow.access_ns / 1e9;
            self.ledger.spent.target += Duration::from_secs_f64(busy);
            at = end;
        }
        self.ledger.settled = to;
    }

    /// Settles the target's work if that was last done [`SETTLED`] ago: a speed takes a moment to
    /// compute.
    pub(super) fn settle_seldom(&mut self) {
        if self.now.0 - self.ledger.settled >= SETTLED {
            self.settle();
        }
    }

    /// Counters and times so far.
    #[must_use]
    pub fn account(&mut self) -> Account {
        self.settle();
        self.settled_account()
    }

    /// Counters and times up to the last settlement.
    pub(super) fn settled_account(&self) -> Account {
        let sums = &self.ledger.counts;
        let whole = |sum: f64| sum.round() as u64;
        Account {
            counts: Counts {
                accesses: whole(sums.accesses),
                second_tlb_hits: whole(sums.second),
                walks: whole(sums.walks),
                walk_reads: whole(sums.walk_reads),
                walk_misses: whole(sums.walk_misses),
                llc_hits: whole(sums.llc),
                served: sums.served.map(whole),
                outstanding: sums.outstanding.map(|ns| whole(1e3 * ns)),
                stalled: whole(1e3 * sums.stalled),
                hint_faults: sums.hint_faults,
                swap_ins: sums.swap_ins,
                shootdowns: sums.shootdowns,
                ..Counts::default()
            },
            lines_read: sums.lines[0].map(whole),
            lines_written: sums.lines[1].map(whole),
            spent: self.ledger.spent,
            flushes: sums.flushes,
            looks: self.ledger.looks,
            scanned: self.ledger.scanned,
            samples: self.ledger.samples,
            armed: self.ledger.armed,
            registers: self.ledger.registers,
            table_bytes: self.world.mappings.bytes() / 512,
            ..Account::default()
        }
    }

    /// Current speed of the target with the present placement; `stolen` is the share of its time
    /// lost to others.
    #[must_use]
    pub fn flow(&mut self, stolen: f64) -> Flow {
        let profile = self.world.profile_at(self.now.0);
        self.world.flow(&profile, stolen, &self.moves.lines)
    }
}
