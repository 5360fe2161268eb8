//! ACCESSED bits: probes and scans with the semantics and costs of the kernel module.

use tierscope_core::{
    AccessBits, AccessedSet, BusObserver, Flushed, Judged, LeafKind, Level, PAGE_SHIFT, Probe,
    ProbeOp, Radix, Range, Result, ScanMode, ScanStats, State,
};
use tierscope_hw::entry::{ACCESSED, DIRTY, FRAME_MASK, HUGE};
use tierscope_hw::{Root, entry_address};

use crate::exact::Machine;
use crate::exact::mm::{Os, Tables};
use crate::exact::units::{FANOUT, NS};

/// A scan runs this long before the other cores catch up, in ps.
const STRETCH: u64 = 100_000 * NS;

impl<B: BusObserver> AccessBits for Machine<B> {
    fn radix(&self) -> Radix {
        self.os.radix()
    }

    fn probe(&mut self, probes: &mut [Probe]) -> Result<()> {
        for probe in probes.iter_mut() {
            probe.answer = judge(&mut self.os, probe);
        }
        let resident = self.os.spaces.iter().flat_map(|space| &space.resident).sum::<u64>();
        self.looks += probes.len() as u64;
        let looks = self.price.all(probes, resident << PAGE_SHIFT);
        self.spend((self.costs.access_bits.call_ns + looks) * NS);
        Ok(())
    }

    fn scan(
        &mut self,
        range: &Range,
        level: Level,
        mode: ScanMode,
        set: &mut AccessedSet,
    ) -> Result<ScanStats> {
        set.reset(range, level, mode.present);
        let mut scan =
            Scan { level, mode, stats: ScanStats::default(), cleared: 0, judged: [None; 6] };
        let span = set.range;
        let piece = 1u64 << (level.shift() + 18).min(62);
        let mut from = span.start;
        let mut owed = self.costs.access_bits.call_ns;
        while from < span.end {
            let Some(space) = self.os.space(range.space) else { break };
            let root = space.root;
            let end = (from / piece + 1).checked_mul(piece).unwrap_or(span.end).min(span.end);
            let before = (scan.stats.visited, scan.cleared);
            scan.piece(&mut self.os.tables, root, (from, end), set);
            let costs = &self.costs.access_bits;
            owed += costs.entry_ns * (scan.stats.visited - before.0);
            owed += costs.clear_ns * (scan.cleared - before.1);
            if owed * NS >= STRETCH {
                self.spend(owed * NS);
                owed = 0;
            }
            from = end;
        }
        self.scanned += scan.stats.visited;
        self.spend(owed * NS);
        Ok(scan.stats)
    }

    fn flush(&mut self) -> Result<Flushed> {
        let (cpus, work) = self.forget_translations();
        self.flushes += 1;
        self.spend(work + self.costs.access_bits.call_ns * NS);
        Ok(Flushed { cpus })
    }
}

/// Executes one probe.
fn judge(os: &mut Os, probe: &Probe) -> Judged {
    let Some(space) = os.space(probe.at.space) else {
        return Judged { state: State::Gone, ..Judged::default() };
    };
    if space.vma(probe.at.at).is_none() {
        return Judged::default();
    }
    if probe.level.number() > os.tables.levels() {
        return Judged { state: State::Refused, ..Judged::default() };
    }
    let found = os.tables.locate(space.root, probe.at.at, probe.level);
    let reached = Some(found.level);
    if found.entry == 0 {
        return Judged { state: State::Absent, reached, ..Judged::default() };
    }
    os.tables.note_read(found.address);
    let young = found.entry & ACCESSED != 0;
    if young && probe.op != ProbeOp::Test {
        os.tables.put(found.address, found.entry & !ACCESSED);
    }
    let kind = match (found.is_leaf(), found.level) {
        (false, _) => LeafKind::Table,
        (true, Level::PUD) => LeafKind::Hugetlb,
        (true, _) => LeafKind::Page,
    };
    let dirty = found.is_leaf() && found.entry & DIRTY != 0;
    Judged { state: if young { State::Young } else { State::Old }, reached, kind, dirty }
}

/// A scan in progress.
struct Scan {
    level: Level,
    mode: ScanMode,
    stats: ScanStats,
    cleared: u64,
    /// By level: the last entry above the scan's level that was tested, and whether it was young.
    /// Later pieces of the scan reach the same entry again and find it cleared.
    judged: [Option<(u64, bool)>; 6],
}

impl Scan {
    fn piece(&mut self, tables: &mut Tables, root: Root, span: (u64, u64), set: &mut AccessedSet) {
        let top = Level::new(tables.levels()).expect("4 or 5");
        self.table(tables, root.table, top, span, set);
    }

    /// Visits the entries of a table that the span touches.
    fn table(
        &mut self,
        tables: &mut Tables,
        table: u64,
        here: Level,
        span: (u64, u64),
        set: &mut AccessedSet,
    ) {
        if here == Level::PTE {
            return self.last_table(tables, table, span, set);
        }
        let mut at = span.0;
        while at < span.1 {
            let end = (at | (here.entry_bytes() - 1)).saturating_add(1).min(span.1);
            let address = entry_address(table, at, here);
            self.entry(tables, address, here, (at, end), set);
            at = end;
        }
    }

    /// Visits an entry above level 1, and the table that it points to.
    fn entry(
        &mut self,
        tables: &mut Tables,
        address: u64,
        here: Level,
        span: (u64, u64),
        set: &mut AccessedSet,
    ) {
        let entry = tables.entry(address);
        let leaf = entry & HUGE != 0 && entry != 0;
        let upper = here > self.level;
        let known =
            self.judged[usize::from(here.number())].filter(|known| upper && known.0 == address);
        let young = match known {
            Some((_, young)) => young,
            None => self.judge(tables, address, entry, here, leaf),
        };
        if entry == 0 {
            return;
        }
        if leaf || !upper {
            return self.report(young, span, set);
        }
        if self.mode.prune && !young {
            self.stats.pruned += u64::from(known.is_none());
            return;
        }
        let below = here.below().expect("above the last level");
        self.table(tables, entry & FRAME_MASK, below, span, set);
    }

    /// Tests an entry, and clears it if the scan mode requires.
    fn judge(
        &mut self,
        tables: &mut Tables,
        address: u64,
        entry: u64,
        here: Level,
        leaf: bool,
    ) -> bool {
        self.stats.visited += 1;
        let young = entry & ACCESSED != 0;
        if leaf {
            self.stats.leaves[usize::from(here.number()) - 1] += 1;
        }
        let judges = leaf || here == self.level || self.mode.prune;
        if young && self.mode.clear && judges {
            tables.put(address, entry & !ACCESSED);
            self.cleared += 1;
        }
        self.judged[usize::from(here.number())] = Some((address, young));
        young
    }

    /// Reports a present entry for all entries of the scan's level that it covers in the span.
    fn report(&mut self, young: bool, span: (u64, u64), set: &mut AccessedSet) {
        let shift = self.level.shift();
        let first = (span.0 - set.range.start) >> shift;
        let last = (span.1 - 1 - set.range.start) >> shift;
        let count = last - first + 1;
        self.stats.present += count;
        if young {
            self.stats.young += count;
            fill(&mut set.young, first, count);
        }
        if self.mode.present {
            fill(&mut set.present, first, count);
        }
    }

    /// Visits the entries of a level-1 table, one group at a time.
    fn last_table(
        &mut self,
        tables: &mut Tables,
        table: u64,
        span: (u64, u64),
        set: &mut AccessedSet,
    ) {
        let base = span.0 & !(Level::PMD.entry_bytes() - 1);
        let first = ((span.0 - base) >> 12) as usize;
        let last = ((span.1 - 1 - base) >> 12) as usize;
        debug_assert!(last < FANOUT);
        self.stats.visited += (last - first + 1) as u64;
        tables.note_reads(table, first, last - first + 1);
        let (leaves, table) = tables.leaves_mut(table);
        let size = leaves.group(table);
        for group in first / size..=last / size {
            let start = group * size;
            let skip = first.saturating_sub(start);
            let take = (last + 1 - start).min(size);
            let wanted = (u64::MAX >> (64 - take)) & (u64::MAX << skip);
            let (young, mapped) = leaves.bits(table, group);
            let (young, mapped) = (young & wanted, mapped & wanted);
            self.stats.young += u64::from(young.count_ones());
            self.stats.present += u64::from(mapped.count_ones());
            self.stats.leaves[0] += u64::from(mapped.count_ones());
            if self.mode.clear {
                self.cleared += u64::from(young.count_ones());
                leaves.clear_young(table, group, young);
            }
            let place = ((base + ((start + skip) as u64) * 4096) - set.range.start) >> 12;
            put(&mut set.young, place, young >> skip);
            if self.mode.present {
                put(&mut set.present, place, mapped >> skip);
            }
        }
    }
}

/// Sets `count` bits from `first` on.
fn fill(words: &mut [u64], first: u64, count: u64) {
    for bit in first..first + count {
        words[(bit / 64) as usize] |= 1 << (bit % 64);
    }
}

/// Ors up to 64 bits into the bitmap at bit `place`.
fn put(words: &mut [u64], place: u64, bits: u64) {
    if bits == 0 {
        return;
    }
    let (word, shift) = ((place / 64) as usize, place % 64);
    words[word] |= bits << shift;
    if shift > 0 && bits >> (64 - shift) != 0 {
        words[word + 1] |= bits >> (64 - shift);
    }
}
