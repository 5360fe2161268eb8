//! ACCESSED bits: probes and scans.

use std::ops::ControlFlow;

use tierscope_core::{
    AccessBits, AccessedSet, Addr, Flushed, Judged, LeafKind, Level, Probe, ProbeOp, Radix, Range,
    RangeSet, Result, ScanMode, ScanStats, SpaceId, State,
};

use crate::look::LookPrice;

use super::machine::Machine;
use super::space::first_overlap;
use super::stamps::Stamp;

/// The highest level that is probed.
const TOP: Level = Level::P4D;

/// Expected loads of an entry from which the entry is tested on its own: the first load found
/// settles it.
const SURELY: f64 = 2.0;

impl Machine {
    fn judge(&mut self, at: Addr, level: Level, op: ProbeOp) -> Judged {
        if !self.knows(at.space) {
            return Judged { state: State::Gone, ..Judged::default() };
        }
        let byte = Range::new(at.space, at.at, at.at + 1);
        if self.world.mappings.find(&byte).is_none() {
            return Judged::default();
        }
        let leaf = self.leaf_at(at.at);
        let level = level.max(leaf);
        if level == leaf && !self.swapped_within(&byte).is_empty() {
            return Judged { state: State::Absent, reached: Some(level), ..Judged::default() };
        }
        let number = at.at >> level.shift();
        // The bit is not drawn if it is not wanted: draws are independent of the order of probes.
        let young = op != ProbeOp::Clear && self.is_young(level, at.space, number);
        if op != ProbeOp::Test {
            self.clear_entry(level, at.space, number);
        }
        Judged {
            state: if young { State::Young } else { State::Old },
            reached: Some(level),
            kind: if level == leaf { LeafKind::Page } else { LeafKind::Table },
            dirty: false,
        }
    }

    fn is_young(&mut self, level: Level, space: SpaceId, number: u64) -> bool {
        match self.stamps.get(space, level, number) {
            Stamp::Young => true,
            Stamp::Cleared(since) => {
                self.world.loaded(entry(level, space, number), level, (since, self.now.0))
            }
        }
    }

    /// Records the clear, unless it can never affect a result.
    fn clear_entry(&mut self, level: Level, space: SpaceId, number: u64) {
        if self.matters(&entry(level, space, number)) {
            self.stamps.set(space, level, number, Stamp::Cleared(self.now.0));
        }
    }

    fn matters(&self, range: &Range) -> bool {
        !self.stamps.blank_is_old() || first_overlap(&self.world.ever, range).is_some()
    }

    /// Tests the entries of `level` in `range`, which consists of whole mapped entries, into `set`.
    /// Returns the number of young ones.
    fn judge_entries(&mut self, range: &Range, clear: bool, set: &mut AccessedSet) -> u64 {
        let level = set.level;
        let before = set.young_count_in(range);
        let bytes = Level::FANOUT << level.shift();
        let mut table = range.start / bytes;
        let last = (range.end - 1) / bytes;
        while table <= last {
            if self.stamps.blank_is_old() {
                // Skips tables that are never accessed.
                let rest = Range::new(range.space, (table * bytes).max(range.start), range.end);
                let Some(next) = first_overlap(&self.world.ever, &rest) else { break };
                table = table.max(next / bytes);
            }
            let part = Range::new(range.space, table * bytes, (table + 1) * bytes);
            let part = part.intersect(range).expect("tables of the range");
            self.judge_table(&part, table, set);
            if clear {
                self.clear_table(&part, level, table);
            }
            table += 1;
        }
        set.young_count_in(range) - before
    }

    /// Tests the ACCESSED bits of a table's entries.
    fn judge_table(&mut self, part: &Range, table: u64, set: &mut AccessedSet) {
        let level = set.level;
        let known = self.stamps.table(part.space, level, table);
        let common = known.map_or(Some(self.stamps.first()), |table| table.common());
        match common {
            Some(Stamp::Young) => set.mark(part),
            Some(Stamp::Cleared(since)) => self.judge_alike(part, since, set),
            None => {
                for number in part.start >> level.shift()..part.end >> level.shift() {
                    if self.is_young(level, part.space, number) {
                        set.mark(&entry(level, part.space, number));
                    }
                }
            }
        }
    }

    /// Tests entries that were cleared at the same time: by visiting the accesses where they are
    /// few, otherwise entry by entry.
    fn judge_alike(&mut self, part: &Range, since: u64, set: &mut AccessedSet) {
        let level = set.level;
        let forgets = self.world.forgets_after(since);
        let kind = (level, self.world.is_leaf(level));
        let mut open: Vec<(u64, u64)> = Vec::new();
        let _ = self.world.profiles((since, self.now.0), |profile, times| {
            for stream in profile.overlapping(*part) {
                let here = level.align(&stream.range).intersect(part).expect("they overlap");
                let each =
                    stream.ranges().map(|p| p.expected(level.entry_bytes(), times.1 - times.0));
                if each.sum::<f64>() < SURELY {
                    stream.each_load(here, kind, times, forgets, |point, sure| {
                        let entries =
                            (point.at >> level.shift(), ((point.end - 1) >> level.shift()) + 1);
                        if !sure {
                            if open.last() != Some(&entries) {
                                open.push(entries);
                            }
                        } else if entries.1 - entries.0 == 1 {
                            set.mark_at(point.at);
                        } else {
                            let bytes = |entry: u64| entry << level.shift();
                            let (start, end) = (bytes(entries.0), bytes(entries.1));
                            set.mark(&Range { start, end, ..*part });
                        }
                    });
                } else {
                    open.push((here.start >> level.shift(), here.end >> level.shift()));
                }
            }
            ControlFlow::Continue(())
        });
        open.sort_unstable();
        let mut next = 0;
        for (from, to) in open {
            for number in from.max(next)..to {
                let entry = entry(level, part.space, number);
                if !set.has(entry.start) && self.world.loaded(entry, level, (since, self.now.0)) {
                    set.mark(&entry);
                }
            }
            next = next.max(to);
        }
    }

    fn clear_table(&mut self, part: &Range, level: Level, table: u64) {
        let now = Stamp::Cleared(self.now.0);
        if part.bytes() == Level::FANOUT << level.shift() {
            self.stamps.set_all(part.space, level, table, now);
            return;
        }
        for number in part.start >> level.shift()..part.end >> level.shift() {
            self.stamps.set(part.space, level, number, now);
        }
    }

    /// Removes reclaimed pages, which are not present, whatever was drawn for them.
    fn leave_out(&self, set: &mut AccessedSet, present: bool, stats: &mut ScanStats) {
        for out in self.swapped_within(&set.range) {
            stats.young -= set.young_count_in(&out);
            set.unmark(&out, present);
            stats.present = stats.present.saturating_sub(out.bytes() >> Level::PTE.shift());
        }
    }

    /// The mapped parts of `range`, in whole entries of `level`.
    fn mapped(&self, range: &RangeSet, level: Level) -> RangeSet {
        let mapped: RangeSet =
            self.world.mappings.mappings.iter().map(|mapping| mapping.range).collect();
        mapped.intersect(range).as_slice().iter().map(|part| level.align(part)).collect()
    }

    /// Narrows `ranges` to the memory below young entries of the levels above `level`, up to `top`;
    /// tests those from the top down.
    fn prune(
        &mut self,
        mut ranges: RangeSet,
        (level, top): (Level, Level),
        clear: bool,
        stats: &mut ScanStats,
    ) -> RangeSet {
        let above = |upper: &Level| *upper > level && *upper <= top;
        let upper: Vec<Level> = self.config.radix.proven.highest_first().filter(above).collect();
        let mut set = AccessedSet::default();
        for upper in upper {
            let mut young: Vec<Range> = Vec::new();
            for part in self.mapped(&ranges, upper).as_slice() {
                set.reset(part, upper, false);
                let hits = self.judge_entries(part, clear, &mut set);
                stats.visited += set.entries();
                stats.pruned += set.entries() - hits;
                young.extend(set.young_runs());
            }
            ranges = young.into_iter().collect::<RangeSet>().intersect(&ranges);
        }
        ranges
    }
}

impl Machine {
    /// Scans entries of one level; returns how many were cleared.
    fn scan_entries(
        &mut self,
        mut ranges: RangeSet,
        level: Level,
        mode: ScanMode,
        set: &mut AccessedSet,
        stats: &mut ScanStats,
    ) -> u64 {
        if mode.prune {
            ranges = self.prune(ranges, (level, TOP), mode.clear, stats);
        }
        let mut young = 0;
        for part in self.mapped(&ranges, level).as_slice() {
            let entries = part.bytes() >> level.shift();
            stats.visited += entries;
            stats.present += entries;
            young += self.judge_entries(part, mode.clear, set);
            if mode.present {
                set.mark_present(part);
            }
        }
        stats.young += young;
        if level == Level::PTE {
            self.leave_out(set, mode.present, stats);
        }
        if self.world.is_leaf(level) {
            stats.leaves[usize::from(level.number()) - 1] += stats.present;
        }
        if mode.clear { young } else { 0 }
    }

    /// Scans 4 KiB pages of memory that consists of huge pages: a huge leaf's bit is reported for
    /// all its 512. Split pages are tested one by one.
    fn scan_huge(
        &mut self,
        mut ranges: RangeSet,
        mode: ScanMode,
        set: &mut AccessedSet,
        stats: &mut ScanStats,
    ) -> u64 {
        if mode.prune {
            ranges = self.prune(ranges, (Level::PMD, TOP), mode.clear, stats);
        }
        let mut cleared = 0;
        let mut leaves = AccessedSet::default();
        for part in self.mapped(&ranges, Level::PTE).as_slice() {
            for (piece, huge) in self.runs_of(part) {
                if huge {
                    leaves.reset(&piece, Level::PMD, false);
                    let count = leaves.entries();
                    let young = self.judge_entries(&leaves.range.clone(), mode.clear, &mut leaves);
                    (stats.visited, stats.leaves[1]) =
                        (stats.visited + count, stats.leaves[1] + count);
                    cleared += if mode.clear { young } else { 0 };
                    leaves
                        .young_runs()
                        .filter_map(|run| run.intersect(&piece))
                        .for_each(|run| set.mark(&run));
                } else {
                    cleared += self.scan_split(piece, mode, set, stats);
                }
                if mode.present {
                    set.mark_present(&piece);
                }
                stats.present += piece.bytes() >> Level::PTE.shift();
            }
        }
        stats.young = set.young_count();
        self.leave_out(set, mode.present, stats);
        cleared
    }

    /// Scans a split huge page, or a part of it; returns how many entries were cleared.
    fn scan_split(
        &mut self,
        piece: Range,
        mode: ScanMode,
        set: &mut AccessedSet,
        stats: &mut ScanStats,
    ) -> u64 {
        let mut ranges: RangeSet = [piece].into_iter().collect();
        if mode.prune {
            ranges = self.prune(ranges, (Level::PTE, Level::PMD), mode.clear, stats);
        }
        let mut young = 0;
        for part in ranges.as_slice().iter().filter_map(|part| part.intersect(&piece)) {
            let entries = part.bytes() >> Level::PTE.shift();
            (stats.visited, stats.leaves[0]) = (stats.visited + entries, stats.leaves[0] + entries);
            young += self.judge_entries(&part, mode.clear, set);
        }
        if mode.clear { young } else { 0 }
    }

    /// Cuts a range into runs of huge pages (`true`) and split pages.
    fn runs_of(&self, range: &Range) -> Vec<(Range, bool)> {
        let size = Level::PMD.entry_bytes();
        let mut runs = Vec::new();
        let mut from = range.start;
        for split in self.split.range(range.start / size..range.end.div_ceil(size)) {
            let (start, end) =
                ((split * size).max(range.start), ((split + 1) * size).min(range.end));
            if start > from {
                runs.push((Range { start: from, end: start, ..*range }, true));
            }
            runs.push((Range { start, end, ..*range }, false));
            from = end;
        }
        if from < range.end {
            runs.push((Range { start: from, ..*range }, true));
        }
        runs
    }

    /// The level of the leaf at an address.
    fn leaf_at(&self, at: u64) -> Level {
        if self.split.contains(&(at >> Level::PMD.shift())) {
            Level::PTE
        } else {
            self.config.leaf()
        }
    }
}

impl AccessBits for Machine {
    fn radix(&self) -> Radix {
        self.config.radix
    }

    fn probe(&mut self, probes: &mut [Probe]) -> Result<()> {
        for probe in &mut *probes {
            probe.answer = self.judge(probe.at, probe.level, probe.op);
        }
        let price = LookPrice::new(&self.config.hardware, &self.config.costs);
        let looks = price.all(probes, self.world.mappings.bytes());
        self.ledger.looks += probes.len() as u64;
        self.spend(self.config.costs.access_bits.call_ns + looks);
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
        let mut stats = ScanStats::default();
        if !self.knows(range.space) {
            return Ok(stats);
        }
        let ranges: RangeSet = [set.range].into_iter().collect();
        let cleared = if self.config.huge && level == Level::PTE {
            self.scan_huge(ranges, mode, set, &mut stats)
        } else {
            self.scan_entries(ranges, level, mode, set, &mut stats)
        };
        self.ledger.scanned += stats.visited;
        let costs = &self.config.costs.access_bits;
        let nanos = costs.call_ns + costs.entry_ns * stats.visited + costs.clear_ns * cleared;
        self.spend(nanos);
        Ok(stats)
    }

    fn flush(&mut self) -> Result<Flushed> {
        let cores = self.config.cores;
        self.forget_translations();
        self.shoot(1);
        let costs = &self.config.costs;
        self.spend(costs.access_bits.call_ns + costs.shootdown.initiator(cores.into()));
        Ok(Flushed { cpus: cores })
    }
}

/// The entry of that number.
fn entry(level: Level, space: SpaceId, number: u64) -> Range {
    Range::new(space, number << level.shift(), (number + 1) << level.shift())
}

/// Bits of a set by address.
trait Marks {
    fn mark(&mut self, range: &Range);
    fn mark_at(&mut self, at: u64);
    fn mark_present(&mut self, range: &Range);
    fn unmark(&mut self, range: &Range, present: bool);
    fn has(&self, at: u64) -> bool;
    fn young_count_in(&self, range: &Range) -> u64;
}

/// Bits `from..to` of `words`, word by word: index and mask.
fn masks(from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> {
    (from / 64..to.div_ceil(64)).map(move |word| {
        let first = from.saturating_sub(word * 64);
        let last = (to - word * 64).min(64);
        (word as usize, (u64::MAX << first) & (u64::MAX >> (64 - last)))
    })
}

fn span(set: &AccessedSet, range: &Range) -> (u64, u64) {
    let index = |at: u64| (at - set.range.start) >> set.level.shift();
    (index(range.start), index(range.end))
}

impl Marks for AccessedSet {
    fn mark(&mut self, range: &Range) {
        let (from, to) = span(self, range);
        masks(from, to).for_each(|(word, mask)| self.young[word] |= mask);
    }

    fn mark_at(&mut self, at: u64) {
        let index = (at - self.range.start) >> self.level.shift();
        self.young[(index / 64) as usize] |= 1 << (index % 64);
    }

    fn mark_present(&mut self, range: &Range) {
        let (from, to) = span(self, range);
        masks(from, to).for_each(|(word, mask)| self.present[word] |= mask);
    }

    fn unmark(&mut self, range: &Range, present: bool) {
        let (from, to) = span(self, range);
        for (word, mask) in masks(from, to) {
            self.young[word] &= !mask;
            if present {
                self.present[word] &= !mask;
            }
        }
    }

    fn has(&self, at: u64) -> bool {
        self.is_young((at - self.range.start) >> self.level.shift())
    }

    fn young_count_in(&self, range: &Range) -> u64 {
        let (from, to) = span(self, range);
        masks(from, to).map(|(word, mask)| u64::from((self.young[word] & mask).count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::masks;

    #[test]
    fn masks_cover_exactly_the_bits() {
        assert_eq!(masks(3, 5).collect::<Vec<_>>(), [(0, 0b11000)]);
        assert_eq!(masks(0, 64).collect::<Vec<_>>(), [(0, u64::MAX)]);
        assert_eq!(masks(63, 65).collect::<Vec<_>>(), [(0, 1 << 63), (1, 1)]);
        assert_eq!(masks(64, 64).count(), 0);
    }
}
