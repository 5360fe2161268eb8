//! Level-1 tables by number. A table is stored in [`Row`]s as long as its frames are consecutive,
//! and afterwards in [`Line`]s until it is freed.
//!
//! Host memory that was never written takes no space, so both arrays have room for all tables.
//! Tables in lines are packed in order of their conversion: a place by table number would take a
//! huge page of the host for each, which takes longer to clear than the whole move of a page.

use tierscope_core::Result;
use tierscope_hw::entry::PRESENT;
use tierscope_hw::host::prefetch;

use super::line::{LINES, Line};
use super::row::{ROWS, Row};
use super::{line, row};
use crate::exact::arena::Arena;
use crate::exact::units::FANOUT;

/// All level-1 tables. A new table is empty.
pub(in crate::exact) struct Leaves {
    rows: Arena<Row>,
    lines: Arena<Line>,
    /// Bitmap of the tables that are stored in lines.
    in_lines: Vec<u64>,
    /// Slot of each such table in `lines`, in units of a table.
    slots: Vec<u32>,
    /// Number of slots ever used, and the freed ones among them.
    given: u32,
    free: Vec<u32>,
}

impl Leaves {
    pub(super) fn new() -> Self {
        Self {
            rows: Arena::new(),
            lines: Arena::new(),
            in_lines: Vec::new(),
            slots: Vec::new(),
            given: 0,
            free: Vec::new(),
        }
    }

    /// Makes room for `tables` tables.
    ///
    /// # Errors
    /// The host has no memory.
    pub(super) fn reach(&mut self, tables: usize) -> Result<()> {
        if self.in_lines.len() * 64 < tables {
            self.in_lines.resize(tables.div_ceil(64), 0);
            self.slots.resize(tables.next_multiple_of(64), 0);
        }
        self.rows.reach(tables * ROWS)?;
        self.lines.reach(tables * LINES)
    }

    #[inline(always)]
    fn is_in_lines(&self, table: usize) -> bool {
        self.in_lines[table / 64] >> (table % 64) & 1 == 1
    }

    /// Index of the first line of a table that is stored in lines.
    #[inline(always)]
    fn lines_of(&self, table: usize) -> usize {
        self.slots[table] as usize * LINES
    }

    #[inline(always)]
    fn line_of(&self, table: usize, at: usize) -> usize {
        self.lines_of(table) + at % FANOUT / line::ENTRIES
    }

    /// The entry as hardware would see it.
    #[inline(always)]
    pub(super) fn entry(&self, table: usize, at: usize) -> u64 {
        if self.is_in_lines(table) {
            self.lines[self.line_of(table, at)].entry(at % line::ENTRIES)
        } else {
            self.rows[row_of(table, at)].entry(at % row::ENTRIES)
        }
    }

    /// Writes an entry, 0 for none.
    pub(super) fn put(&mut self, table: usize, at: usize, entry: u64) {
        if !self.is_in_lines(table) {
            if self.rows[row_of(table, at)].put(at % row::ENTRIES, entry) {
                return;
            }
            self.put_in_lines(table);
        }
        let line = self.line_of(table, at);
        self.lines[line].put(at % line::ENTRIES, entry);
    }

    /// Fills an empty table: `first`, and the pages after it with the same flags.
    pub(super) fn fill(&mut self, table: usize, first: u64) {
        let after = |pages: usize| first + ((pages as u64) << 12);
        if !self.is_in_lines(table) && first & PRESENT != 0 {
            for (number, row) in self.rows[table * ROWS..][..ROWS].iter_mut().enumerate() {
                *row = Row::full(after(number * row::ENTRIES));
            }
            return;
        }
        (0..FANOUT).for_each(|at| self.put(table, at, after(at)));
    }

    #[cold]
    fn put_in_lines(&mut self, table: usize) {
        self.slots[table] = self.free.pop().unwrap_or_else(|| {
            self.given += 1;
            self.given - 1
        });
        for at in 0..FANOUT {
            let entry = self.rows[row_of(table, at)].entry(at % row::ENTRIES);
            let line = self.line_of(table, at);
            self.lines[line].put(at % line::ENTRIES, entry);
        }
        self.rows[table * ROWS..][..ROWS].fill(Row::default());
        self.in_lines[table / 64] |= 1 << (table % 64);
    }

    /// Sets ACCESSED, DIRTY or both.
    #[inline(always)]
    pub(super) fn mark(&mut self, table: usize, at: usize, flags: u64) {
        if self.is_in_lines(table) {
            let line = self.line_of(table, at);
            self.lines[line].mark(at % line::ENTRIES, flags);
        } else {
            self.rows[row_of(table, at)].mark(at % row::ENTRIES, flags);
        }
    }

    /// Prefetches the host's line that holds the entry.
    #[inline(always)]
    pub(super) fn prefetch_host(&self, table: usize, at: usize) {
        if self.is_in_lines(table) {
            prefetch(&self.lines, self.line_of(table, at));
        } else {
            prefetch(&self.rows, row_of(table, at));
        }
    }

    /// Empties a table.
    pub(super) fn clear(&mut self, table: usize) {
        if self.is_in_lines(table) {
            let first = self.lines_of(table);
            self.lines[first..][..LINES].fill(Line::default());
            self.free.push(self.slots[table]);
            self.in_lines[table / 64] &= !(1 << (table % 64));
        } else {
            self.rows[table * ROWS..][..ROWS].fill(Row::default());
        }
    }

    /// Number of entries in a group: one word of bits covers one group.
    pub(in crate::exact) fn group(&self, table: usize) -> usize {
        if self.is_in_lines(table) { line::ENTRIES } else { 64 }
    }

    /// One bit for each entry of a group: young; and mapped, that is present or armed.
    pub(in crate::exact) fn bits(&self, table: usize, group: usize) -> (u64, u64) {
        if self.is_in_lines(table) {
            let line = &self.lines[self.lines_of(table) + group];
            return (line.young(), line.mapped());
        }
        let row = &self.rows[table * ROWS + group / 2];
        (row.young(group % 2), row.mapped(group % 2))
    }

    /// Clears ACCESSED of the entries of a group whose bits are set.
    pub(in crate::exact) fn clear_young(&mut self, table: usize, group: usize, which: u64) {
        if self.is_in_lines(table) {
            let line = self.lines_of(table) + group;
            self.lines[line].clear_young(which);
        } else {
            self.rows[table * ROWS + group / 2].clear_young(group % 2, which);
        }
    }
}

#[inline(always)]
fn row_of(table: usize, at: usize) -> usize {
    table * ROWS + at % FANOUT / row::ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Rng;
    use tierscope_hw::entry::{ACCESSED, DIRTY, PRESENT, WRITABLE};

    /// Mostly consecutive frames with mostly equal flags.
    fn entry(rng: &mut Rng, at: usize) -> u64 {
        let frame = if rng.below(64) == 0 { 7 + rng.below(9) } else { 4096 + at as u64 };
        let flags = rng.below(4) << 5 | if rng.below(64) == 0 { 0 } else { WRITABLE };
        match rng.below(64) {
            0 => line::ARMED | frame << 12 | flags,
            1..9 => 0,
            _ => frame << 12 | PRESENT | flags,
        }
    }

    #[test]
    fn a_table_returns_its_entries_in_both_encodings() {
        let mut rng = Rng::seeded(4);
        let mut leaves = Leaves::new();
        leaves.reach(70).expect("some KiB");
        let mut lay_in_lines = [0; 2];
        for _ in 0..60 {
            let mut plain = [0u64; FANOUT];
            for _ in 0..200 {
                let at = rng.below(FANOUT as u64) as usize;
                plain[at] = entry(&mut rng, at);
                leaves.put(69, at, plain[at]);
                let at = rng.below(FANOUT as u64) as usize;
                if plain[at] & PRESENT != 0 {
                    plain[at] |= ACCESSED | DIRTY;
                    leaves.mark(69, at, ACCESSED | DIRTY);
                }
                if rng.below(20) == 0 {
                    lay_in_lines[usize::from(leaves.is_in_lines(69))] += 1;
                    compare(&mut leaves, &mut plain);
                }
            }
            leaves.clear(69);
            assert!((0..FANOUT).all(|at| leaves.entry(69, at) == 0));
        }
        assert!(lay_in_lines.iter().all(|times| *times > 10), "{lay_in_lines:?}");
    }

    // Two tables are stored in lines: the freed slot of one is reused, and the other stays in
    // place.
    #[test]
    fn tables_in_lines_are_packed() {
        let mut leaves = Leaves::new();
        leaves.reach(70).expect("some KiB");
        let far_apart = |table: usize, at: usize| (((table * at) as u64) << 20 | 7) << 12 | PRESENT;
        let put = |leaves: &mut Leaves, table: usize| {
            (0..FANOUT).for_each(|at| leaves.put(table, at, far_apart(table, at)));
        };
        let holds = |leaves: &Leaves, table: usize| {
            (0..FANOUT).all(|at| leaves.entry(table, at) == far_apart(table, at))
        };
        put(&mut leaves, 69);
        put(&mut leaves, 3);
        assert_eq!([leaves.lines_of(69), leaves.lines_of(3)], [0, LINES]);
        leaves.clear(69);
        put(&mut leaves, 5);
        put(&mut leaves, 6);
        assert_eq!([leaves.lines_of(5), leaves.lines_of(6)], [0, 2 * LINES]);
        assert!([3, 5, 6].iter().all(|table| holds(&leaves, *table)));
        assert!((0..FANOUT).all(|at| leaves.entry(69, at) == 0));
    }

    #[test]
    fn a_table_is_filled_at_once() {
        let mut leaves = Leaves::new();
        leaves.reach(2).expect("some KiB");
        for flags in [PRESENT | WRITABLE, PRESENT | ACCESSED, PRESENT | DIRTY, line::ARMED] {
            leaves.fill(1, 1 << 21 | flags);
            let entry = |at: u64| (512 + at) << 12 | flags;
            assert!((0..FANOUT).all(|at| leaves.entry(1, at) == entry(at as u64)));
            leaves.clear(1);
        }
    }

    /// Compares entry by entry and bit by bit, and clears the young ones.
    fn compare(leaves: &mut Leaves, plain: &mut [u64; FANOUT]) {
        (0..FANOUT).for_each(|at| assert_eq!(leaves.entry(69, at), plain[at], "{at}"));
        let size = leaves.group(69);
        for (group, plain) in plain.chunks_mut(size).enumerate() {
            let (young, mapped) = leaves.bits(69, group);
            let bits = |is: &dyn Fn(u64) -> bool| -> u64 {
                plain.iter().enumerate().map(|(at, entry)| u64::from(is(*entry)) << at).sum()
            };
            assert_eq!(young, bits(&|entry| entry & ACCESSED != 0));
            assert_eq!(mapped, bits(&|entry| entry != 0));
            leaves.clear_young(69, group, young);
            plain.iter_mut().for_each(|entry| *entry &= !ACCESSED);
        }
    }
}
