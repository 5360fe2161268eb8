//! Addresses of a heatmap: blocks of rows, the same for text, live screen, drawing and page.
//!
//! A target's address space is mostly gaps: the heap is terabytes away from the stack, most of a
//! reservation is not in memory, and a group of processes repeats that for each of them. So gaps
//! have no place here. Each mapping with memory that was seen is a block of rows under its name;
//! rows are shared out by resident size. Mappings smaller than half a row are one block together,
//! unless they are hot; all memory of short-lived processes is one block.

use std::sync::Arc;

use tierscope_core::{PAGE_SIZE, Range, RangeSet, SpaceId};

use crate::own_rows::{OTHER, OwnRows};
use crate::view::overlapping;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) range: Range,
    pub(crate) name: Arc<str>,
    /// The mapped file: device and inode, or zeros where they are not known; `None` for other
    /// memory.
    pub(crate) file: Option<(u64, u64)>,
}

impl Named {
    /// Whether `next`, the mapping after this one, is a part of the same memory: the kernel cuts
    /// mappings where permissions change, and the segments of a library may have gaps.
    fn continues(&self, next: &Named) -> bool {
        let same = self.name == next.name && self.file == next.file;
        same && match self.file {
            Some(_) => self.range.space == next.range.space,
            None => self.range.touches(&next.range),
        }
    }
}

/// The memory to be shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// Mappings, sorted and disjoint.
    pub(crate) named: Vec<Named>,
    /// Memory that was seen: probed, or resident.
    pub(crate) seen: RangeSet,
    /// Memory that was hot at some time.
    pub(crate) hot: RangeSet,
    /// Ranges of which only some bytes are resident, with those bytes; sorted and disjoint.
    pub(crate) sparse: Vec<(Range, u64)>,
    /// Spaces whose mappings have blocks of their own.
    pub(crate) own: OwnRows,
}

impl Memory {
    /// Bytes of `part` that are not resident.
    fn absent(&self, part: &Range) -> u64 {
        let before =
            |(range, _): &(Range, u64)| (range.space, range.end) <= (part.space, part.start);
        let first = self.sparse.partition_point(before);
        let common = self.sparse[first..].iter().map_while(|(range, resident)| {
            let share = range.intersect(part)?.bytes() as f64 / range.bytes() as f64;
            Some((range.bytes().saturating_sub(*resident) as f64 * share) as u64)
        });
        common.sum()
    }
}

/// Rows for the memory of a mapping, or of several small ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Space of the mapping; `None` for small mappings of several spaces, and for
    /// short-lived spaces.
    pub(crate) space: Option<SpaceId>,
    /// Name of the mapping.
    pub(crate) name: String,
    /// The memory: sorted, disjoint, not empty.
    pub(crate) parts: Vec<Range>,
    /// Bytes of a row; the last row may be smaller.
    pub(crate) row_bytes: u64,
    /// Whether it holds several small mappings.
    pub(crate) is_rest: bool,
}

impl Block {
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(Range::bytes).sum()
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> usize {
        self.bytes().div_ceil(self.row_bytes) as usize
    }

    /// The parts of each row.
    pub(crate) fn rows(&self) -> Vec<Vec<Range>> {
        let mut rows = Vec::with_capacity(self.count());
        let (mut row, mut room) = (Vec::new(), self.row_bytes);
        for part in &self.parts {
            let mut rest = *part;
            while !rest.is_empty() {
                let end = rest.start + rest.bytes().min(room);
                row.push(Range { end, ..rest });
                room -= end - rest.start;
                rest.start = end;
                if room == 0 {
                    rows.push(std::mem::take(&mut row));
                    room = self.row_bytes;
                }
            }
        }
        rows.extend((!row.is_empty()).then_some(row));
        rows
    }
}

/// The blocks in order of address, then short-lived spaces and small mappings; and the resident
/// bytes of a row. There are at most `rows` rows.
pub(crate) fn blocks(memory: &Memory, rows: usize) -> (Vec<Block>, u64) {
    let objects = objects(memory);
    let rows = rows.max(1);
    let total: u128 = objects.iter().map(|object| u128::from(object.resident)).sum();
    let mut row = round(u64::try_from(total / rows as u128).unwrap_or(u64::MAX));
    loop {
        let chosen = Chosen::of(&objects, row, rows);
        let next = round(row.saturating_add(1));
        if chosen.rows(row) <= rows as u64 || next == row {
            return (chosen.blocks(row), if objects.is_empty() { 0 } else { row });
        }
        row = next;
    }
}

/// Rounds up to 4, 5, 6 or 7 times a power of two, and to whole pages: addresses stay legible, and
/// there are at most a fifth fewer rows than requested.
fn round(bytes: u64) -> u64 {
    let bytes = bytes.clamp(PAGE_SIZE, 1 << 60);
    let step = (bytes.next_power_of_two() / 8).max(PAGE_SIZE);
    bytes.div_ceil(step) * step
}

/// The seen memory of a mapping.
struct Object {
    name: Arc<str>,
    /// Whether it is the memory of short-lived spaces.
    is_other: bool,
    parts: Vec<Range>,
    resident: u64,
    hot: u64,
}

impl Object {
    fn rows(&self, row: u64) -> u64 {
        self.resident.div_ceil(row)
    }

    /// Its parts, without the gaps that are small for a row.
    fn joined(&self, row: u64) -> impl Iterator<Item = Range> + '_ {
        let joins = move |a: &Range, b: &Range| a.space == b.space && b.start - a.end < row / 8;
        self.parts.chunk_by(joins).map(|run| Range { end: run[run.len() - 1].end, ..run[0] })
    }
}

/// The mappings with memory that was seen.
fn objects(memory: &Memory) -> Vec<Object> {
    let is_own = |named: &Named| memory.own.has(named.range.space);
    let (own, short): (Vec<&Named>, Vec<&Named>) =
        memory.named.iter().partition(|named| is_own(named));
    let mut objects = Vec::new();
    let runs = own.chunk_by(|a, b| a.continues(b));
    let other = (!short.is_empty()).then_some(short.as_slice());
    for run in runs.chain(other) {
        let inside = |set: &RangeSet| -> Vec<Range> {
            let near = |named| overlapping(set.as_slice(), named).iter().map(move |r| (r, named));
            let common = run.iter().flat_map(|named| near(&named.range));
            let parts: RangeSet = common.filter_map(|(r, named)| r.intersect(named)).collect();
            parts.as_slice().to_vec()
        };
        let bytes = |parts: &[Range]| parts.iter().map(Range::bytes).sum::<u64>();
        let parts = inside(&memory.seen);
        if parts.is_empty() {
            continue;
        }
        let absent: u64 = parts.iter().map(|part| memory.absent(part)).sum();
        objects.push(Object {
            name: if is_own(run[0]) { Arc::clone(&run[0].name) } else { OTHER.into() },
            is_other: !is_own(run[0]),
            resident: bytes(&parts).saturating_sub(absent).max(PAGE_SIZE),
            hot: bytes(&inside(&memory.hot)),
            parts,
        });
    }
    objects
}

/// Mappings with rows of their own, and the others.
struct Chosen<'a> {
    own: Vec<&'a Object>,
    rest: Vec<&'a Object>,
}

impl<'a> Chosen<'a> {
    /// Rows of their own have the mappings of at least half a row, and hot ones: the hottest, as
    /// long as they take no more than half of all rows.
    fn of(objects: &'a [Object], row: u64, rows: usize) -> Self {
        let is_small = |object: &Object| object.resident < row.div_ceil(2);
        let mut hottest: Vec<u64> =
            objects.iter().filter(|o| is_small(o) && o.hot > 0).map(|o| o.hot).collect();
        hottest.sort_unstable_by_key(|hot| std::cmp::Reverse(*hot));
        let room = rows / 2;
        let least = hottest.get(room).map_or(1, |crowded| crowded + 1);
        let (own, rest): (Vec<_>, Vec<_>) =
            objects.iter().partition(|object| !is_small(object) || object.hot >= least);
        match rest.len() {
            // A name of its own takes no more rows.
            1 => Self { own: objects.iter().collect(), rest: Vec::new() },
            _ => Self { own, rest },
        }
    }

    fn rows(&self, row: u64) -> u64 {
        let rest: u64 = self.rest.iter().map(|object| object.resident).sum();
        self.own.iter().map(|object| object.rows(row)).sum::<u64>() + rest.div_ceil(row)
    }

    fn blocks(&self, row: u64) -> Vec<Block> {
        let block = |name: String, parts: Vec<Range>, resident: u64, is_rest, is_other: bool| {
            let bytes: u64 = parts.iter().map(Range::bytes).sum();
            // Rows of sparse memory hold as many resident bytes as others.
            let rows = resident.div_ceil(row);
            let row_bytes = if bytes == resident { row } else { bytes.div_ceil(rows) };
            Block {
                space: Some(parts[0].space)
                    .filter(|_| parts[0].space == parts[parts.len() - 1].space && !is_other),
                row_bytes: row_bytes.next_multiple_of(PAGE_SIZE),
                name,
                parts,
                is_rest,
            }
        };
        let own = |object: &&Object| {
            let (name, parts) = (object.name.to_string(), object.joined(row).collect());
            block(name, parts, object.resident, false, object.is_other)
        };
        let mut blocks: Vec<Block> = self.own.iter().map(own).collect();
        if !self.rest.is_empty() {
            let parts = self.rest.iter().flat_map(|object| object.joined(row)).collect();
            let resident = self.rest.iter().map(|object| object.resident).sum();
            blocks.push(block(small(self.rest.len()), parts, resident, true, false));
        }
        blocks
    }
}

/// Name of a block of several mappings.
fn small(count: usize) -> String {
    format!("{count} small mappings")
}

/// Rows by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(Vec<(Range, usize)>);

impl Places {
    /// Of rows, each a list of ranges.
    pub(crate) fn of<'a>(rows: impl Iterator<Item = &'a [Range]>) -> Self {
        let parts = rows.enumerate().flat_map(|(row, parts)| parts.iter().map(move |r| (*r, row)));
        let mut places: Vec<_> = parts.collect();
        places.sort_unstable_by_key(|(range, _)| *range);
        Self(places)
    }

    /// The rows that hold some of `range`, with the bytes that they hold of it; a row may occur
    /// several times.
    pub(crate) fn shares(&self, range: &Range) -> impl Iterator<Item = (usize, u64)> + '_ {
        let range = *range;
        let before =
            |(place, _): &(Range, usize)| (place.space, place.end) <= (range.space, range.start);
        self.0[self.0.partition_point(before)..]
            .iter()
            .map_while(move |(place, row)| Some((*row, place.intersect(&range)?.bytes())))
    }
}

#[cfg(test)]
mod tests;
