//! Hint faults: armed pages, and their first accesses.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tierscope_core::{
    Access, Addr, HintFault, HintFaults, Level, Lost, PAGE_SHIFT, PAGE_SIZE, Range, RangeSet,
    Result, Time,
};

use super::hash::{mix, unit};
use super::machine::Machine;
use super::space::{SPACE, first_overlap};

/// Pages that a table maps.
const PAGES: usize = Level::FANOUT as usize;

/// The armed pages of one table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// One bit a page.
    armed: [u64; PAGES / 64],
    /// Time of arming, by page.
    since: Box<[u64; PAGES]>,
}

/// Armed pages; pages that are never accessed are omitted.
#[derive(Clone, Debug, Default)]
pub(super) struct Armed {
    /// Tables with armed pages, by table number.
    pub(super) tables: BTreeMap<u64, Table>,
    /// Time up to which accesses were searched.
    seen: u64,
    /// Faults not read yet.
    found: Vec<HintFault>,
}

impl Armed {
    pub(super) fn arm(&mut self, range: &Range, now: u64) {
        for page in range.start >> PAGE_SHIFT..range.end.div_ceil(PAGE_SIZE) {
            let (table, index) = (page / Level::FANOUT, (page % Level::FANOUT) as usize);
            let blank = || Table { armed: [0; PAGES / 64], since: Box::new([0; PAGES]) };
            let table = self.tables.entry(table).or_insert_with(blank);
            if table.armed[index / 64] >> (index % 64) & 1 == 0 {
                table.armed[index / 64] |= 1 << (index % 64);
                table.since[index] = now;
            }
        }
    }
}

impl Table {
    /// Whether no page is armed.
    pub(super) fn is_empty(&self) -> bool {
        self.armed.iter().all(|word| *word == 0)
    }

    /// Notes an access to an armed page, and keeps the first one of each page.
    fn note(&mut self, fault: HintFault, faults: &mut BTreeMap<usize, HintFault>) {
        let index = ((fault.at.at >> PAGE_SHIFT) % Level::FANOUT) as usize;
        let armed = self.armed[index / 64] >> (index % 64) & 1 == 1;
        if armed && fault.time.0 >= self.since[index] {
            let known = faults.entry(index).or_insert(fault);
            if fault.time < known.time {
                *known = fault;
            }
        }
    }
}

impl Machine {
    /// Finds the faults up to now.
    fn look_for_faults(&mut self) {
        let mut tables = std::mem::take(&mut self.armed.tables);
        let mut found = Vec::new();
        for (number, table) in &mut tables {
            found.extend(self.faults_of(*number, table, self.armed.seen));
        }
        tables.retain(|_, table| !table.is_empty());
        found.sort_by_key(|fault| (fault.time, fault.at));
        self.disturb(found.len() as u64 * self.config.costs.faults.hint_ns);
        self.ledger.counts.hint_faults += found.len() as u64;
        self.armed.tables = tables;
        self.armed.found.append(&mut found);
        self.armed.seen = self.now.0;
    }

    pub(super) fn faults_of(
        &mut self,
        number: u64,
        table: &mut Table,
        seen: u64,
    ) -> Vec<HintFault> {
        let range = Range::new(SPACE, number << 21, (number + 1) << 21);
        let mut faults = BTreeMap::new();
        let cores = u64::from(self.config.cores);
        let _ = self.world.profiles((seen, self.now.0), |profile, times| {
            for stream in profile.overlapping(range) {
                for accesses in stream.ranges() {
                    // Independent of the TLB's contents: arming shoots the page down.
                    let _ = accesses.points((range.start, range.end), times, |point| {
                        let writes = unit(mix(point.bits)) < accesses.writes;
                        let mut at = point.at;
                        while at < point.end {
                            let fault = HintFault {
                                time: Time(point.time),
                                armed: Time(0),
                                at: Addr { space: SPACE, at },
                                access: if writes { Access::Store } else { Access::Load },
                                core: (point.bits % cores) as u32,
                            };
                            table.note(fault, &mut faults);
                            at = (at / PAGE_SIZE + 1) * PAGE_SIZE;
                        }
                        ControlFlow::Continue(())
                    });
                }
            }
            ControlFlow::Continue(())
        });
        let disarm = |(index, fault): (usize, HintFault)| {
            table.armed[index / 64] &= !(1 << (index % 64));
            HintFault { armed: Time(table.since[index]), ..fault }
        };
        faults.into_iter().map(disarm).collect()
    }
}

impl HintFaults for Machine {
    fn arm(&mut self, ranges: &[Range]) -> Result<()> {
        self.look_for_faults();
        let mapped: RangeSet =
            self.world.mappings.mappings.iter().map(|mapping| mapping.range).collect();
        let wanted: RangeSet = ranges.iter().map(|range| Level::PTE.align(range)).collect();
        let wanted = wanted.intersect(&mapped);
        let ever = wanted.intersect(&self.world.ever);
        for range in ever.as_slice() {
            self.armed.arm(range, self.now.0);
        }
        let pages = wanted.bytes() >> PAGE_SHIFT;
        self.ledger.armed += pages;
        // One call for each range, as the kernel arms range by range.
        let there = |range: &&Range| first_overlap(&mapped, range).is_some();
        let rounds = ranges.iter().filter(there).count() as u64;
        let costs = &self.config.costs;
        let shoot = costs.shootdown.initiator(self.config.cores.into());
        let work = pages * costs.faults.arm_ns + rounds * shoot;
        // Every core that may cache the old entries has to drop them.
        self.shoot(rounds);
        self.spend(work);
        Ok(())
    }

    fn drain(&mut self, out: &mut Vec<HintFault>) -> Lost {
        self.look_for_faults();
        out.append(&mut self.armed.found);
        Lost(0)
    }
}
