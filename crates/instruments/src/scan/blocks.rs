//! Blocks: scan results of the memory that the hand has passed.

use tierscope_core::{
    AccessedSet, Addr, Level, PAGE_SHIFT, PAGE_SIZE, Range, RangeSet, Region, Unknown,
};

use super::hand::overlaps;
use super::spread::{Found, Spread, Trial, followed, number};

/// Position of the hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of completed passes.
    pub(super) pass: u32,
    /// Addresses below are done in the current pass; `None` if it has not begun.
    pub(super) next: Option<Addr>,
}

/// Scan results of one block: 48 bytes, because there are millions.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// The last pass that found the block young; 0 if none did.
    young: u32,
    /// The window in which its heat last changed.
    changed: u32,
    /// Passes of this window that found it young.
    hits: u16,
    /// Heat at the end of the last window.
    heat: u8,
    /// Whether it was then hot by a few pages, as far as is known.
    sparse: bool,
    trial: Trial,
}

const _: () = assert!(size_of::<Block>() == 48);

impl Block {
    /// Ends window number `window` after these passes; returns hits and samples.
    fn turn(&mut self, passes: Passes, window: u32) -> (u32, u32) {
        let samples = passes.samples();
        let hits = if passes.in_window() > 0 {
            u32::from(self.hits).min(samples)
        } else {
            samples * u32::from(self.young == passes.after)
        };
        let heat = heat(hits, samples);
        let sparse = heat >= HOT && self.trial.spread() != Spread::Even;
        if (heat, sparse) != (self.heat, self.sparse) {
            (self.heat, self.sparse, self.changed) = (heat, sparse, window);
        }
        self.hits = 0;
        (hits, samples)
    }
}

/// Number of counted passes over a block, before and after a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passes {
    before: u32,
    after: u32,
}

impl Passes {
    fn in_window(self) -> u32 {
        self.after - self.before
    }

    /// Samples of the window: its passes, or 1 for the last verdict if there were none.
    fn samples(self) -> u32 {
        if self.after == 0 { 0 } else { self.in_window().max(1) }
    }
}

/// The path of the hand in a window, as (pass, block index).
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: (u32, usize),
    to: (u32, usize),
}

impl Stretch {
    fn passes(&self, index: usize) -> Passes {
        // The first pass does not count: its bits may have been set at any time before.
        let count = |(pass, hand): (u32, usize)| (pass + u32::from(index < hand)).saturating_sub(1);
        Passes { before: count(self.from), after: count(self.to) }
    }

    /// Whether all blocks in `first..end` had the same passes.
    fn treats_alike(&self, first: usize, end: usize) -> bool {
        [self.from.1, self.to.1].iter().all(|hand| *hand <= first || end <= *hand)
    }
}

/// Blocks per group. Most groups of a large memory are entirely cold.
const GROUP: usize = 512;

/// Summary of a group, so that its blocks need not be visited while none is marked.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// None of the blocks has any heat, or was marked since.
    quiet: bool,
    /// The latest `changed` of the blocks; valid if quiet.
    changed: u32,
}

impl Group {
    fn of(blocks: &[Block]) -> Self {
        Self {
            quiet: blocks.iter().all(|block| block.heat == 0),
            changed: blocks.iter().map(|block| block.changed).max().unwrap_or(0),
        }
    }
}

/// Frequencies are alike within eighths, so that [`metrics::HOT_FREQUENCY`] is a boundary.
///
/// [`metrics::HOT_FREQUENCY`]: tierscope_core::metrics::HOT_FREQUENCY
const EIGHTHS: u32 = 8;

/// The class of the coolest hot blocks.
const HOT: u8 = 2;

/// Heat class: 0 without a hit, else 1 + whole eighths of the frequency.
fn heat(hits: u32, samples: u32) -> u8 {
    if hits == 0 { 0 } else { 1 + (EIGHTHS * hits / samples) as u8 }
}

/// The blocks of a target.
#[derive(Debug)]
pub(super) struct Blocks {
    bytes: u64,
    areas: Vec<Range>,
    /// The areas widened to whole blocks, each with the index of its first block.
    spans: Vec<(Range, usize)>,
    blocks: Vec<Block>,
    groups: Vec<Group>,
    window: u32,
}

/// A region under construction: like blocks of one span.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
    samples: u32,
    heat: u8,
    /// Hot by few pages, or not known to be hot all over.
    sparse: bool,
    /// Sum of the hits of its blocks.
    hits: u64,
    /// The latest `changed` of its blocks.
    changed: u32,
}

impl Run {
    /// Absorbs `next` if its samples, heat and spread are the same; returns whether it did.
    fn absorb(&mut self, next: &Run) -> bool {
        let alike =
            (self.samples, self.heat, self.sparse) == (next.samples, next.heat, next.sparse);
        if alike {
            self.end = next.end;
            self.hits += next.hits;
            self.changed = self.changed.max(next.changed);
        }
        alike
    }
}

/// The regions of a window under construction.
#[derive(Debug)]
struct RegionBuilder<'a> {
    areas: &'a [Range],
    /// Block size in bytes.
    block: u64,
    window: u32,
    level: Option<Level>,
    span: Range,
    run: Option<Run>,
    regions: Vec<Region>,
}

impl RegionBuilder<'_> {
    /// Starts another span.
    fn begin(&mut self, span: Range) {
        self.report();
        self.span = span;
    }

    fn add(&mut self, next: Run) {
        if self.run.as_mut().is_some_and(|run| run.absorb(&next)) {
            return;
        }
        self.report();
        self.run = Some(next);
    }

    /// Turns the current run into regions, one for each area that it overlaps.
    fn report(&mut self) {
        let Some(run) = self.run.take() else { return };
        let blocks = (run.end - run.start) / self.block;
        let region = |range| Region {
            age: self.window - run.changed,
            level: if run.samples > 0 { self.level } else { None },
            unknown: run.sparse.then_some(Unknown::Evidence),
            ..Region::sampled(range, (run.hits as f64 / blocks as f64) as f32, run.samples)
        };
        let range = Range { start: run.start, end: run.end, ..self.span };
        self.regions.extend(overlaps(self.areas, range).map(region));
    }
}

impl Blocks {
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            areas: Vec::new(),
            spans: Vec::new(),
            blocks: Vec::new(),
            groups: Vec::new(),
            window: 0,
        }
    }

    /// The mapped areas.
    pub(super) fn areas(&self) -> &[Range] {
        &self.areas
    }

    /// Fits the blocks to `areas`; blocks that stay mapped keep their results.
    pub(super) fn fit(&mut self, areas: Vec<Range>) {
        let widened: RangeSet = areas.iter().map(|area| self.widen(area)).collect();
        let (mut spans, mut count) = (Vec::new(), 0);
        for span in widened.as_slice() {
            spans.push((*span, count));
            count += (span.bytes() / self.bytes) as usize;
        }
        let fresh = Block { changed: self.window, ..Block::default() };
        let mut blocks = vec![fresh; count];
        for (span, first) in &spans {
            for (from, part) in self.known(*span) {
                let to = first + ((part.start - span.start) / self.bytes) as usize;
                let many = (part.bytes() / self.bytes) as usize;
                blocks[to..to + many].copy_from_slice(&self.blocks[from..from + many]);
            }
        }
        self.groups = vec![Group::default(); count.div_ceil(GROUP)];
        (self.areas, self.spans, self.blocks) = (areas, spans, blocks);
    }

    fn widen(&self, range: &Range) -> Range {
        let mask = self.bytes - 1;
        Range { start: range.start & !mask, end: (range.end + mask) & !mask, ..*range }
    }

    /// The parts of `range` (whole blocks) that have blocks, with the index of the first block of
    /// each.
    fn known(&self, range: Range) -> impl Iterator<Item = (usize, Range)> + '_ {
        let before =
            |(span, _): &(Range, usize)| (span.space, span.end) <= (range.space, range.start);
        let from = self.spans.partition_point(before);
        self.spans[from..].iter().map_while(move |(span, first)| {
            let part = span.intersect(&range)?;
            Some((first + ((part.start - span.start) / self.bytes) as usize, part))
        })
    }

    /// Records that pass number `pass` found a page in each block of `run` young. The first pass,
    /// 0, is ignored: its bits may have been set at any time before.
    pub(super) fn mark(&mut self, run: &Range, pass: u32) {
        if pass == 0 {
            return;
        }
        let parts: Vec<_> = self.known(self.widen(run)).collect();
        for (first, part) in parts {
            let many = (part.bytes() / self.bytes) as usize;
            self.groups[first / GROUP..=(first + many - 1) / GROUP].fill(Group::default());
            for block in &mut self.blocks[first..first + many] {
                // Two areas may share a block: count it once per pass.
                if block.young != pass {
                    block.young = pass;
                    block.hits += 1;
                }
            }
        }
    }

    /// Marks the blocks of `run`, which an upper leaf was found to cover.
    pub(super) fn mark_whole(&mut self, run: &Range, pass: u32) {
        self.mark(run, pass);
        let all = Found::all(self.bytes >> PAGE_SHIFT);
        for (first, part) in self.followed(run, pass) {
            let many = (part.bytes() / self.bytes) as usize;
            self.blocks[first..first + many].iter_mut().for_each(|block| {
                block.trial.add(all, all);
            });
        }
    }

    /// The blocks of `run` whose trials pass number `pass` extends; none in the first.
    fn followed(&self, run: &Range, pass: u32) -> Vec<(usize, Range)> {
        if pass == 0 { Vec::new() } else { self.known(self.widen(run)).collect() }
    }

    /// Records the young pages of a scan of leaves in pass number `pass`, and which of the followed
    /// pages of their blocks were present and young.
    pub(super) fn record(&mut self, set: &AccessedSet, pass: u32) {
        set.young_runs().for_each(|run| self.mark(&run, pass));
        let pages = self.bytes >> PAGE_SHIFT;
        for (first, part) in self.followed(&set.range, pass) {
            let many = (part.bytes() / self.bytes) as usize;
            let young = self.blocks[first..first + many].iter_mut().enumerate();
            for (offset, block) in young.filter(|(_, block)| block.young == pass) {
                let start = part.start + offset as u64 * self.bytes;
                let (present, young) = found(set, start, pages);
                block.trial.add(present, young);
            }
        }
    }

    /// Index of the block at `next`: the number of blocks that begin below it.
    fn index(&self, next: Option<Addr>) -> usize {
        let Some(next) = next else { return 0 };
        let below = |(span, _): &(Range, usize)| (span.space, span.start) < (next.space, next.at);
        let spans = &self.spans[..self.spans.partition_point(below)];
        spans.last().map_or(0, |(span, first)| {
            let end = if span.space == next.space { next.at.min(span.end) } else { span.end };
            first + (end - span.start).div_ceil(self.bytes) as usize
        })
    }

    /// Ends the window in which the hand went from `start` to `end` and returns its regions;
    /// `level` is reported for regions with samples.
    pub(super) fn close_window(
        &mut self,
        start: Position,
        end: Position,
        level: Option<Level>,
    ) -> Vec<Region> {
        self.window += 1;
        let hand = |position: Position| (position.pass, self.index(position.next));
        let stretch = Stretch { from: hand(start), to: hand(end) };
        let (block, window) = (self.bytes, self.window);
        let (span, run, regions) = (Range::default(), None, Vec::new());
        let mut builder =
            RegionBuilder { areas: &self.areas, block, window, level, span, run, regions };
        for (span, first) in &self.spans {
            builder.begin(*span);
            let end = first + (span.bytes() / block) as usize;
            let mut index = *first;
            while index < end {
                let next = ((index / GROUP + 1) * GROUP).min(end);
                let at = span.start + (index - first) as u64 * block;
                let blocks = &mut self.blocks[index..next];
                turn_group(
                    &mut builder,
                    &stretch,
                    (index, at),
                    blocks,
                    &mut self.groups[index / GROUP],
                );
                index = next;
            }
        }
        builder.report();
        builder.regions
    }
}

/// The present and the young ones of the `pages` pages of the block at `start`, as far as a scan
/// covers them.
fn found(set: &AccessedSet, start: u64, pages: u64) -> (Found, Found) {
    let end = start + pages * PAGE_SIZE;
    let (from, to) = (start.max(set.range.start), end.min(set.range.end));
    let entry = |at: u64| (at - set.range.start) >> PAGE_SHIFT;
    let count = |words: &[u64]| Found { followed: 0, pages: ones(words, entry(from), entry(to)) };
    let (mut present, mut young) = (count(&set.present), count(&set.young));
    let block = start / (pages * PAGE_SIZE);
    for index in 0..number(pages) {
        let at = start + followed(block, index, pages) * PAGE_SIZE;
        if (from..to).contains(&at) {
            present.followed |= u64::from(set.is_present(entry(at))) << index;
            young.followed |= u64::from(set.is_young(entry(at))) << index;
        }
    }
    (present, young)
}

/// Number of bits set among bits `from..to`.
fn ones(words: &[u64], from: u64, to: u64) -> u32 {
    let here =
        (from / 64..to.div_ceil(64)).filter_map(|word| Some((word, *words.get(word as usize)?)));
    let clipped = here.map(|(word, bits)| {
        let above = u64::MAX << from.saturating_sub(word * 64).min(63);
        let below = u64::MAX >> ((word + 1) * 64).saturating_sub(to).min(63);
        (bits & above & below).count_ones()
    });
    clipped.sum()
}

/// Ends the window for the blocks of a group, or for its part in one span: the blocks start with
/// number `index` at address `at`.
fn turn_group(
    builder: &mut RegionBuilder<'_>,
    stretch: &Stretch,
    (index, at): (usize, u64),
    blocks: &mut [Block],
    group: &mut Group,
) {
    let end = index + blocks.len();
    if group.quiet && stretch.treats_alike(index, end) {
        let samples = stretch.passes(index).samples();
        let end = at + blocks.len() as u64 * builder.block;
        let (heat, sparse, hits, changed) = (0, false, 0, group.changed);
        builder.add(Run { start: at, end, samples, heat, sparse, hits, changed });
        return;
    }
    for (offset, block) in blocks.iter_mut().enumerate() {
        let (hits, samples) = block.turn(stretch.passes(index + offset), builder.window);
        let start = at + offset as u64 * builder.block;
        let (end, hits) = (start + builder.block, u64::from(hits));
        let Block { heat, sparse, changed, .. } = *block;
        builder.add(Run { start, end, samples, heat, sparse, hits, changed });
    }
    if blocks.len() == GROUP {
        *group = Group::of(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::SpaceId;

    /// Block size; a decimal size would be easier to read, but it has to be a power of two.
    const B: u64 = 1 << 21;

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start, end)
    }

    fn at(pass: u32, block: u64) -> Position {
        let next = (block > 0).then(|| Addr { space: SpaceId(0), at: block * B });
        Position { pass, next }
    }

    fn ten() -> Blocks {
        let mut blocks = Blocks::new(B);
        blocks.fit(vec![r(0, 10 * B)]);
        blocks
    }

    /// The regions of a window, as start and end in blocks, hits, samples, age.
    fn told(blocks: &mut Blocks, from: Position, to: Position) -> Vec<(u64, u64, f32, u32, u32)> {
        let tell = |r: Region| (r.range.start / B, r.range.end / B, r.hits, r.samples, r.age);
        blocks.close_window(from, to, None).into_iter().map(tell).collect()
    }

    #[test]
    fn bits_are_counted_up_to_their_borders() {
        let words = [u64::MAX, 0b1011, u64::MAX];
        let counts = [(0, 64), (60, 66), (3, 3), (63, 192), (64, 65), (128, 130)];
        assert_eq!(counts.map(|(from, to)| ones(&words, from, to)), [64, 6, 0, 68, 1, 2]);
        assert_eq!(ones(&[], 0, 64), 0);
    }

    #[test]
    fn the_first_pass_has_no_result() {
        let mut blocks = ten();
        blocks.mark(&r(0, B), 0);
        assert_eq!(told(&mut blocks, at(0, 0), at(1, 0)), [(0, 10, 0.0, 0, 1)]);
    }

    // Two passes over ten blocks and a third up to block 6; block 3 is young in all of them, block
    // 7 in one.
    #[test]
    fn samples_are_the_passes_of_the_window() {
        let mut blocks = ten();
        blocks.mark(&r(3 * B, 3 * B + 4096), 1);
        blocks.mark(&r(7 * B, 8 * B), 1);
        blocks.mark(&r(3 * B, 4 * B), 2);
        blocks.mark(&r(3 * B, 4 * B), 3);
        let expected = [
            (0, 3, 0.0, 3, 1),
            (3, 4, 3.0, 3, 0),
            (4, 6, 0.0, 3, 1),
            (6, 7, 0.0, 2, 1),
            (7, 8, 1.0, 2, 0),
            (8, 10, 0.0, 2, 1),
        ];
        assert_eq!(told(&mut blocks, at(1, 0), at(3, 6)), expected);
    }

    // The hand goes from block 2 to block 6 of pass 2. Pass 1 found blocks 0, 3 and 8 young; pass 2
    // found block 0 young in the previous window, and block 3 in this one.
    #[test]
    fn out_of_reach_the_last_heat_is_kept() {
        let mut blocks = ten();
        blocks.mark(&r(8 * B, 9 * B), 1);
        blocks.mark(&r(0, B), 1);
        blocks.mark(&r(3 * B, 4 * B), 1);
        blocks.mark(&r(0, B), 2);
        told(&mut blocks, at(1, 0), at(2, 2));
        blocks.mark(&r(3 * B, 4 * B), 2);
        let expected = [
            (0, 1, 1.0, 1, 1),
            (1, 3, 0.0, 1, 2),
            (3, 4, 1.0, 1, 1),
            (4, 8, 0.0, 1, 2),
            (8, 9, 1.0, 1, 1),
            (9, 10, 0.0, 1, 2),
        ];
        assert_eq!(told(&mut blocks, at(2, 2), at(2, 6)), expected);
    }

    // 40 passes: 4 hits are below an eighth, 5 and 9 in the second eighth, 10 in the third.
    #[test]
    fn blocks_of_the_same_eighth_are_one_region() {
        let mut blocks = ten();
        for (block, hits) in [(1, 4), (2, 5), (3, 9), (4, 10), (5, 40)] {
            for pass in 1..=hits {
                blocks.mark(&r(block * B, (block + 1) * B), pass);
            }
        }
        let regions = told(&mut blocks, at(1, 0), at(41, 0));
        let hot: Vec<_> = regions.iter().filter(|r| r.2 > 0.0).map(|r| (r.0, r.1, r.2)).collect();
        assert_eq!(hot, [(1, 2, 4.0), (2, 4, 7.0), (4, 5, 10.0), (5, 6, 40.0)]);
    }

    #[test]
    fn a_block_that_areas_share_counts_once_a_pass_and_is_reported_in_parts() {
        let mut blocks = Blocks::new(B);
        blocks.fit(vec![r(0, 4096), r(8192, 16384), r(5 * B, 6 * B)]);
        blocks.mark(&r(0, 4096), 1);
        blocks.mark(&r(8192, 12288), 1);
        let regions = blocks.close_window(at(1, 0), at(2, 0), Some(Level::PTE));
        let told: Vec<_> = regions.iter().map(|r| (r.range, r.hits)).collect();
        assert_eq!(told, [(r(0, 4096), 1.0), (r(8192, 16384), 1.0), (r(5 * B, 6 * B), 0.0)]);
    }

    #[test]
    fn heat_is_kept_while_memory_stays_mapped() {
        let mut blocks = ten();
        blocks.mark(&r(4 * B, 5 * B), 1);
        blocks.fit(vec![r(4 * B, 6 * B), r(20 * B, 21 * B)]);
        let told = told(&mut blocks, at(1, 0), at(2, 0));
        assert_eq!(told, [(4, 5, 1.0, 1, 0), (5, 6, 0.0, 1, 1), (20, 21, 0.0, 1, 1)]);
    }

    // 1024 blocks are two groups; the second one is quiet until block 700 is marked.
    #[test]
    fn unmarked_groups_report_the_same_as_their_blocks() {
        let mut blocks = Blocks::new(B);
        blocks.fit(vec![r(0, 1024 * B)]);
        blocks.mark(&r(3 * B, 4 * B), 1);
        told(&mut blocks, at(1, 0), at(2, 0));
        assert!(!blocks.groups[0].quiet && blocks.groups[1].quiet);
        let expected = [(0, 600, 0.0, 2, 0), (600, 1024, 0.0, 1, 2)];
        assert_eq!(told(&mut blocks, at(2, 0), at(3, 600)), expected);
        blocks.mark(&r(700 * B, 701 * B), 3);
        let expected = [(0, 700, 0.0, 1, 1), (700, 701, 1.0, 1, 0), (701, 1024, 0.0, 1, 3)];
        assert_eq!(told(&mut blocks, at(3, 600), at(4, 0)), expected);
    }

    /// Reference model: one block at a time, no groups, no arithmetic on passes.
    #[derive(Clone, Copy, Default)]
    struct Naive {
        samples: u32,
        hits: u32,
        verdict: Option<bool>,
    }

    impl Naive {
        fn pass(&mut self, young: bool) {
            self.samples += 1;
            self.hits += u32::from(young);
            self.verdict = Some(young);
        }

        /// Expected hits and samples of the window.
        fn close(&mut self) -> (u32, u32) {
            let Naive { samples, hits, verdict } = *self;
            (self.samples, self.hits) = (0, 0);
            match verdict {
                Some(young) if samples == 0 => (u32::from(young), 1),
                _ => (hits, samples),
            }
        }
    }

    proptest! {
        /// Windows in which the hand advances by any number of blocks, some of them young.
        #[test]
        fn regions_equal_a_naive_count(
            moves in prop::collection::vec(0u64..4000, 1..12),
            hot in prop::collection::vec((0u64..1300, 2u32..5), 0..6),
        ) {
            const BLOCKS: u64 = 1300;
            let mut blocks = Blocks::new(B);
            blocks.fit(vec![r(0, BLOCKS * B)]);
            let mut naive = [Naive::default(); BLOCKS as usize];
            let (mut pass, mut hand) = (0, 0);
            for steps in moves {
                let start = at(pass, hand);
                for _ in 0..steps {
                    let young = hot.iter().any(|(at, every)| *at == hand && pass % every == 0);
                    if young {
                        blocks.mark(&r(hand * B, hand * B + 4096), pass);
                    }
                    if pass > 0 {
                        naive[hand as usize].pass(young);
                    }
                    hand += 1;
                    if hand == BLOCKS {
                        (pass, hand) = (pass + 1, 0);
                    }
                }
                let told: Vec<(u32, u32)> = naive.iter_mut().map(Naive::close).collect();
                for region in blocks.close_window(start, at(pass, hand), None) {
                    let of = (region.range.start / B) as usize..(region.range.end / B) as usize;
                    let told = &told[of];
                    let hits: u32 = told.iter().map(|(hits, _)| hits).sum();
                    prop_assert_eq!(region.hits, hits as f32 / told.len() as f32);
                    for (hits, samples) in told {
                        prop_assert_eq!(region.samples, *samples);
                        prop_assert_eq!(heat(*hits, *samples), heat(told[0].0, *samples));
                    }
                }
            }
        }

        /// For any marks, regions tile the areas, and hits do not exceed samples.
        #[test]
        fn regions_tile_the_areas(
            areas in prop::collection::vec((1u64..1500, 1u64..3000), 0..8),
            marks in prop::collection::vec((0u64..20_000, 1u64..500, 0u32..4), 0..20),
            hand in 0u64..20,
        ) {
            let mut end = 0;
            let areas: Vec<Range> = areas.iter().map(|(gap, pages)| {
                let area = r((end + gap) * 4096, (end + gap + pages) * 4096);
                end += gap + pages;
                area
            }).collect();
            let mut blocks = Blocks::new(B);
            blocks.fit(areas.clone());
            for (page, pages, pass) in marks {
                blocks.mark(&r(page * 4096, (page + pages) * 4096), pass);
            }
            let regions = blocks.close_window(at(0, 0), at(3, hand), None);
            let tiles: RangeSet = regions.iter().map(|region| region.range).collect();
            let mapped: RangeSet = areas.into_iter().collect();
            prop_assert_eq!(tiles, mapped);
            for pair in regions.windows(2) {
                prop_assert!(pair[0].range.end <= pair[1].range.start);
            }
            for region in regions {
                prop_assert!(region.hits <= region.samples as f32);
            }
        }
    }
}
