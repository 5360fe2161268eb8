//! The zoom pyramid: an hour opens at once.
//!
//! A tile of zoom z sums up 8^z windows. It does so in at most [`BINS`] bins of the address
//! space, each of a power-of-two size and aligned to it, so that a bin is an entry of the radix
//! page table or a binary part of one, and bins of different tiles nest. Bins are small where
//! heat differs and large where it does not: the block whose heat varies most (variance times
//! bytes) is halved until the bins are used up. A hot needle in a cold terabyte costs a bin for
//! each halving, about thirty, and keeps its place and its heat.
//!
//! A tile is written with the window that completes it. What the newest windows have not
//! completed yet is covered by finer tiles and at last by regions (see `Recording::heat`), so
//! nothing is missing at the end of a recording, however it ended.

use std::collections::BinaryHeap;

use tierscope_core::{PAGE_SHIFT, Range, Snapshot, SpaceId};

/// Tiles of a zoom that make up one of the next.
pub const FANOUT: u64 = 8;

/// Bins of a tile at most.
pub const BINS: usize = 2048;

/// A part of the address space in a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// The space.
    pub space: SpaceId,
    /// First byte; a multiple of the size.
    pub start: u64,
    /// log2 of the size, 12..=63.
    pub shift: u8,
    /// Mean frequency of what was looked at, in 1/255, rounded; never rounded down to 0.
    pub heat: u8,
    /// Share of the bin's bytes and the tile's time that was looked at, likewise.
    pub seen: u8,
}

impl Bin {
    /// What it covers.
    #[must_use]
    pub fn range(&self) -> Range {
        Range::new(self.space, self.start, self.start.saturating_add(1 << self.shift))
    }

    /// Whether size and alignment are as documented.
    pub(crate) fn is_sane(&self) -> bool {
        (PAGE_SHIFT as u8..64).contains(&self.shift)
            && self.start.trailing_zeros() >= u32::from(self.shift)
    }
}

/// The heat of a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tile {
    /// It sums up 8^zoom windows.
    pub(crate) zoom: u8,
    /// Its first window is `index * 8^zoom`.
    pub(crate) index: u64,
    /// Sorted by space and start, disjoint.
    pub(crate) bins: Vec<Bin>,
}

/// Windows in a tile of that zoom.
#[must_use]
pub fn windows_in(zoom: u8) -> u64 {
    FANOUT.saturating_pow(u32::from(zoom))
}

/// `share` in 1/255, never rounded down to 0.
fn quantised(share: f64) -> u8 {
    if share <= 0.0 { 0 } else { (share * 255.0).round().clamp(1.0, 255.0) as u8 }
}

/// A quantised share as a number 0..=1.
#[must_use]
pub fn share_of(quantised: u8) -> f64 {
    f64::from(quantised) / 255.0
}

/// Sums windows up into tiles, each once it is complete.
#[derive(Debug, Default)]
pub(crate) struct Pyramid {
    /// Zoom 1 first.
    sums: Vec<Sum>,
    windows: u64,
}

impl Pyramid {
    /// Takes a window; gives the tiles that it completes, finest first.
    pub(crate) fn window(&mut self, snapshot: &Snapshot) -> Vec<Tile> {
        let nanos = snapshot.end.0.saturating_sub(snapshot.start.0).max(1);
        let looked_at = |r: &&tierscope_core::Region| r.samples > 0 && !r.range.is_empty();
        let parts = snapshot.regions.iter().filter(looked_at);
        let parts = parts.map(|r| Part::new(r.range, nanos, r.frequency()));
        self.sum(1).add(parts, nanos);
        self.windows += 1;
        self.complete()
    }

    fn sum(&mut self, zoom: u8) -> &mut Sum {
        let index = usize::from(zoom) - 1;
        if self.sums.len() == index {
            self.sums.push(Sum::default());
        }
        &mut self.sums[index]
    }

    fn complete(&mut self) -> Vec<Tile> {
        let mut tiles = Vec::new();
        for zoom in 1.. {
            let size = windows_in(zoom);
            if !self.windows.is_multiple_of(size) {
                break;
            }
            let sum = std::mem::take(self.sum(zoom));
            let tile = Tile { zoom, index: self.windows / size - 1, bins: sum.bins(BINS) };
            self.sum(zoom + 1).add(tile.parts(sum.nanos), sum.nanos);
            tiles.push(tile);
        }
        tiles
    }
}

impl Tile {
    /// Its bins as parts of the next zoom's sum, when it spans `nanos`.
    fn parts(&self, nanos: u64) -> impl Iterator<Item = Part> + '_ {
        let seen = move |b: &Bin| ((share_of(b.seen) * nanos as f64) as u64).max(1);
        self.bins.iter().map(move |b| Part::new(b.range(), seen(b), share_of(b.heat)))
    }
}

/// Bytes that were looked at alike.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    range: Range,
    /// Nanoseconds looked at.
    seen: u64,
    /// Frequency in [`ONE`] times nanoseconds looked at. Whole numbers, so that what was never
    /// hot stays so however much is added and taken away.
    hot: u128,
}

/// Frequency 1.
const ONE: f64 = 65536.0;

impl Part {
    fn new(range: Range, seen: u64, heat: f64) -> Self {
        let least = f64::from(u8::from(heat > 0.0));
        let heat = (heat * ONE).round().max(least) as u128;
        Self { range, seen, hot: heat * u128::from(seen) }
    }

    fn from(self, start: u64) -> Self {
        Self { range: Range { start, ..self.range }, ..self }
    }

    fn until(self, end: u64) -> Self {
        Self { range: Range { end, ..self.range }, ..self }
    }
}

/// Heat summed over time on the elementary ranges of everything added.
#[derive(Debug, Default)]
struct Sum {
    parts: Vec<Part>,
    nanos: u64,
}

impl Sum {
    /// Adds parts that are sorted and disjoint, of a stretch of `nanos`.
    fn add(&mut self, parts: impl Iterator<Item = Part>, nanos: u64) {
        self.parts = overlay(&self.parts, parts);
        self.nanos = self.nanos.saturating_add(nanos);
    }

    /// At most `budget` bins, or one for each space if that is more.
    fn bins(&self, budget: usize) -> Vec<Bin> {
        let mut blocks = self.refine(budget);
        blocks.sort_unstable_by_key(|block| (block.space, block.first));
        let mut bins = Vec::with_capacity(blocks.len());
        blocks.iter().for_each(|block| push_bin(&mut bins, block.bin(self.nanos)));
        bins
    }

    /// Halves the block of the largest error until the budget is used up.
    fn refine(&self, budget: usize) -> Vec<Block> {
        let prefix = Prefix::of(&self.parts);
        let mut open: BinaryHeap<Block> = self.roots(&prefix).into();
        let mut done = Vec::new();
        while open.len() + done.len() < budget {
            let Some(block) = open.pop() else { break };
            if block.error == 0.0 || u32::from(block.shift) == PAGE_SHIFT {
                done.push(block);
            } else {
                open.extend(block.halves(&prefix, self.nanos));
            }
        }
        done.extend(open);
        done
    }

    /// The smallest aligned blocks that hold all of each space.
    fn roots(&self, prefix: &Prefix<'_>) -> Vec<Block> {
        let mut roots = Vec::new();
        for parts in self.parts.chunk_by(|a, b| a.range.space == b.range.space) {
            let (first, last) = (parts[0].range.start, parts[parts.len() - 1].range.end - 1);
            let differing = 64 - (first ^ last).leading_zeros();
            let shift = differing.clamp(PAGE_SHIFT, 63) as u8;
            let mut starts = vec![first >> shift << shift, last >> shift << shift];
            starts.dedup();
            let block = |start| Block::new(prefix, self.nanos, parts[0].range.space, start, shift);
            roots.extend(starts.into_iter().map(block));
        }
        roots
    }
}

/// The elementary ranges of both, their times and heats added up.
fn overlay(old: &[Part], new: impl Iterator<Item = Part>) -> Vec<Part> {
    let mut sum = Vec::with_capacity(old.len() + old.len() / 4);
    let (mut old, mut new) = (old.iter().copied(), new);
    let (mut a, mut b) = (old.next(), new.next());
    loop {
        let (x, y) = match (a, b) {
            (Some(x), Some(y)) => (x, y),
            (Some(x), None) => {
                push(&mut sum, x);
                a = old.next();
                continue;
            }
            (None, Some(y)) => {
                push(&mut sum, y);
                b = new.next();
                continue;
            }
            (None, None) => return sum,
        };
        let (low, high) = ((x.range.space, x.range.start), (y.range.space, y.range.start));
        if low == high {
            let end = x.range.end.min(y.range.end);
            push(&mut sum, Part { seen: x.seen + y.seen, hot: x.hot + y.hot, ..x.until(end) });
            a = rest(x, end).or_else(|| old.next());
            b = rest(y, end).or_else(|| new.next());
        } else if low < high {
            let end = cut(x.range, y.range);
            push(&mut sum, x.until(end));
            a = rest(x, end).or_else(|| old.next());
        } else {
            let end = cut(y.range, x.range);
            push(&mut sum, y.until(end));
            b = rest(y, end).or_else(|| new.next());
        }
    }
}

/// Appends, and joins halves of one block that came out alike.
fn push_bin(bins: &mut Vec<Bin>, mut bin: Bin) {
    while let Some(last) = bins.last() {
        let twin = Bin { start: bin.start ^ (1 << bin.shift), ..bin };
        if *last != twin || bin.shift == 63 {
            break;
        }
        bin = Bin { start: last.start.min(bin.start), shift: bin.shift + 1, ..bin };
        bins.pop();
    }
    bins.push(bin);
}

/// Where `first` ends or the later `second` begins.
fn cut(first: Range, second: Range) -> u64 {
    if first.space == second.space { first.end.min(second.start) } else { first.end }
}

fn rest(part: Part, from: u64) -> Option<Part> {
    (from < part.range.end).then(|| part.from(from))
}

/// Appends, and joins what is alike.
fn push(parts: &mut Vec<Part>, part: Part) {
    match parts.last_mut() {
        Some(last)
            if last.range.touches(&part.range)
                && last.seen == part.seen
                && last.hot == part.hot =>
        {
            last.range.end = part.range.end;
        }
        _ => parts.push(part),
    }
}

/// Sums over bytes: of time looked at, of frequency times it, of frequency squared times it.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    seen: u128,
    hot: u128,
    /// Only ranks blocks, so rounding does no harm.
    squares: f64,
}

impl Moments {
    fn plus(self, part: &Part, bytes: u64) -> Self {
        let hot = part.hot as f64 / ONE;
        let wide = u128::from(bytes);
        Self {
            seen: self.seen + u128::from(part.seen) * wide,
            hot: self.hot + part.hot * wide,
            squares: self.squares + hot * hot / part.seen as f64 * bytes as f64,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            seen: self.seen - other.seen,
            hot: self.hot - other.hot,
            squares: self.squares - other.squares,
        }
    }
}

/// Moments of everything below an address, in O(log n).
struct Prefix<'a> {
    parts: &'a [Part],
    before: Vec<Moments>,
}

impl<'a> Prefix<'a> {
    fn of(parts: &'a [Part]) -> Self {
        let mut sum = Moments::default();
        let mut before = Vec::with_capacity(parts.len() + 1);
        before.push(sum);
        for part in parts {
            sum = sum.plus(part, part.range.bytes());
            before.push(sum);
        }
        Self { parts, before }
    }

    /// What lies in spaces before `space`, and in it below `at`.
    fn below(&self, space: SpaceId, at: u64) -> Moments {
        let index = self.parts.partition_point(|p| (p.range.space, p.range.end) <= (space, at));
        let sum = self.before[index];
        match self.parts.get(index) {
            Some(p) if p.range.space == space && p.range.start < at => {
                sum.plus(p, at - p.range.start)
            }
            _ => sum,
        }
    }

    fn within(&self, space: SpaceId, first: u64, last: u64) -> Moments {
        let end = match last.checked_add(1) {
            Some(end) => self.below(space, end),
            None => self.below(SpaceId(space.0.saturating_add(1)), 0),
        };
        end.minus(self.below(space, first))
    }
}

/// A bin in the making.
#[derive(Clone, Copy, Debug)]
struct Block {
    space: SpaceId,
    first: u64,
    shift: u8,
    sum: Moments,
    error: f64,
}

/// What a byte not looked at counts, beside one looked at, in the error of a block that holds
/// both. Small: where heat changes matters more than where looking ended.
const EDGE: f64 = 1.0 / 64.0;

/// Errors below this share of the time looked at are rounding.
const ROUNDING: f64 = 1e-9;

impl Block {
    fn new(prefix: &Prefix<'_>, nanos: u64, space: SpaceId, first: u64, shift: u8) -> Self {
        let last = first + ((1u64 << shift) - 1);
        let sum = prefix.within(space, first, last);
        let all = nanos as f64 * (1u64 << shift) as f64;
        let (seen, hot) = (sum.seen as f64, sum.hot as f64 / ONE);
        let heat = if seen > 0.0 { sum.squares - hot * hot / seen } else { 0.0 };
        let edge = EDGE * seen * (all - seen).max(0.0) / all;
        let error = heat.max(0.0) + edge;
        let error = if error > seen * ROUNDING { error } else { 0.0 };
        Self { space, first, shift, sum, error }
    }

    /// Its halves, without those in which nothing was looked at.
    fn halves(&self, prefix: &Prefix<'_>, nanos: u64) -> impl Iterator<Item = Block> {
        let shift = self.shift - 1;
        [self.first, self.first + (1u64 << shift)]
            .map(|first| Block::new(prefix, nanos, self.space, first, shift))
            .into_iter()
            .filter(|half| half.sum.seen > 0)
    }

    fn bin(&self, nanos: u64) -> Bin {
        let all = nanos as f64 * (1u64 << self.shift) as f64;
        let seen = self.sum.seen as f64;
        Bin {
            space: self.space,
            start: self.first,
            shift: self.shift,
            heat: quantised(self.sum.hot as f64 / ONE / seen),
            seen: quantised(seen / all),
        }
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Block {}

impl PartialOrd for Block {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By error; among equals, the lower address is the greater, so that the order is total.
impl Ord for Block {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let place = |block: &Block| (block.space, block.first);
        self.error.total_cmp(&other.error).then(place(other).cmp(&place(self)))
    }
}
