//! Blocks to watch: the target's blocks from the sweep position on, and the physical blocks that
//! hold them.

use std::collections::{BTreeMap, BTreeSet};

use tierscope_core::{
    Addr, Counters, Filter, FrameRun, Key, Operand, Operator, Ports, Range, ReadEffect,
    RequestKind, Result, Rule, RuleId, SpaceId,
};

use super::Config;

/// Entries of a pipeline's translation table, and its states (NEMO, section 4).
pub(super) const STATES: u64 = 8192;
/// Bytes of addresses translated per call.
const STRETCH: u64 = 1 << 34;

/// A block of the target's addresses, by its first byte, which may be below the first mapped byte.
type Block = (SpaceId, u64);

/// Blocks to watch at the same time.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchSet {
    /// The blocks that have at least a part in memory served by the controllers.
    pub(super) blocks: BTreeSet<Block>,
    /// Whether these are all blocks of the target.
    pub(super) is_all: bool,
    /// By physical block (the rule's key): the blocks in it, and their bytes.
    parts: BTreeMap<u64, Vec<(Block, u64)>>,
    /// Bounds of the physical memory served by the controllers.
    hull: (u64, u64),
    /// Where the next sweep window begins.
    end: Addr,
}

impl WatchSet {
    /// The blocks in a physical block, and their shares of it.
    pub(super) fn shares(&self, key: u64) -> impl Iterator<Item = (Block, f64)> + '_ {
        let parts = self.parts.get(&key).map_or(&[][..], Vec::as_slice);
        let all: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        parts.iter().map(move |(block, bytes)| (*block, *bytes as f64 / all as f64))
    }

    fn add(&mut self, piece: FrameRun, bytes: u64) {
        let mut piece = piece;
        while !piece.range.is_empty() {
            // Up to the end of the virtual or of the physical block, whichever is first.
            let left = |at: u64| bytes - at % bytes;
            let part = left(piece.range.start).min(left(piece.frame)).min(piece.range.bytes());
            let block = (piece.range.space, piece.range.start / bytes * bytes);
            self.blocks.insert(block);
            let parts = self.parts.entry(piece.frame / bytes).or_default();
            match parts.last_mut() {
                Some((last, sum)) if *last == block => *sum += part,
                _ => parts.push((block, part)),
            }
            piece.range.start += part;
            piece.frame += part;
        }
    }

    /// Number of pipelines needed: one for each aligned group of 8,192 keys with keys in use.
    fn pipelines(&self) -> usize {
        let windows: BTreeSet<u64> = self.parts.keys().map(|key| key / STATES).collect();
        windows.len()
    }
}

/// Where the next sweep window begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SweepPosition(Addr);

impl SweepPosition {
    /// The blocks from here on that `room` pipelines can watch at a time; from the first area if
    /// the position is at the end.
    ///
    /// # Errors
    /// If there are no counters, or physical addresses are hidden.
    pub(super) fn wanted(
        self,
        ports: &mut dyn Ports,
        areas: &[Range],
        config: &Config,
        room: usize,
    ) -> Result<WatchSet> {
        let sees = ports.counters()?.sees();
        let ends = sees.first().zip(sees.last()).map(|(first, last)| (first.0, last.1));
        let mut blocks = room as u64 * STATES;
        loop {
            let (stretches, end, is_all) = self.ahead(areas, blocks, config.granularity);
            let hull = ends.unwrap_or_default();
            let mut wanted = WatchSet { is_all, end, hull, ..WatchSet::default() };
            let mut pieces = Vec::new();
            for range in stretches {
                pieces.clear();
                ports.frames()?.locate(&range, &mut pieces)?;
                for piece in pieces.iter().flat_map(|piece| seen(*piece, &sees)) {
                    wanted.add(piece, config.granularity);
                }
            }
            if wanted.pipelines() <= room || blocks == 1 {
                return Ok(wanted);
            }
            // The blocks are too scattered in physical memory for this number of tables.
            blocks /= 2;
        }
    }

    /// Advances behind the blocks watched now.
    pub(super) fn go_on(&mut self, set: &WatchSet) {
        self.0 = if set.is_all { Addr::default() } else { set.end };
    }

    /// The next `blocks` blocks from here on as address ranges, their end, and whether they are all
    /// of the target.
    fn ahead(self, areas: &[Range], blocks: u64, bytes: u64) -> (Vec<Range>, Addr, bool) {
        let key = (self.0.space, self.0.at);
        let next = areas.partition_point(|area| (area.space, area.end) <= key);
        let next = if next == areas.len() { 0 } else { next };
        let begin = areas.get(next).map_or(self.0, |area| area.at(0));
        let inside = areas.get(next).is_some_and(|area| area.contains(self.0));
        let begin = if inside { self.0 } else { begin };
        let (mut left, mut stretches, mut end) = (blocks, Vec::new(), begin);
        for (number, area) in areas.iter().enumerate().skip(next) {
            let mut start = if number == next { begin.at } else { area.start };
            while start < area.end && left > 0 {
                let most = (start / bytes * bytes).saturating_add(left.saturating_mul(bytes));
                let stop = area.end.min(most).min(start.saturating_add(STRETCH) / bytes * bytes);
                stretches.push(Range::new(area.space, start, stop));
                left -= (stop.div_ceil(bytes) - start / bytes).min(left);
                (start, end) = (stop, Addr { space: area.space, at: stop });
            }
        }
        let from_first = areas.first().is_none_or(|area| begin == area.at(0));
        let to_last = areas.last().is_none_or(|area| (end.space, end.at) == (area.space, area.end));
        (stretches, end, from_first && to_last)
    }
}

/// The parts of a piece that the controllers serve.
fn seen(piece: FrameRun, sees: &[(u64, u64)]) -> impl Iterator<Item = FrameRun> + '_ {
    sees.iter().filter_map(move |(first, end)| {
        let start = piece.frame.max(*first);
        let stop = (piece.frame + piece.range.bytes()).min(*end);
        let at = |frame: u64| piece.range.start + (frame - piece.frame);
        (start < stop).then(|| FrameRun {
            range: Range::new(piece.range.space, at(start), at(stop)),
            frame: start,
        })
    })
}

/// A rule for 8,192 consecutive physical blocks, some of which are watched.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) rule: RuleId,
    /// Number of the group of 8,192 keys.
    window: u64,
    /// Key that selects state 0.
    pub(super) first: u64,
    keys: BTreeSet<u64>,
}

impl Watch {
    /// Number of states up to the last one in use.
    pub(super) fn reach(&self) -> usize {
        self.keys.last().map_or(0, |key| (key - self.first) as usize + 1)
    }
}

/// Programs the counters to watch the blocks of `set` and no others. Blocks watched before and
/// after keep counting.
///
/// # Errors
/// Errors of the counters. If there is no room for another pipeline, the rules registered so far
/// stay.
pub(super) fn assign(
    counters: &mut dyn Counters,
    watches: &mut Vec<Watch>,
    set: &WatchSet,
    shift: u8,
) -> Result<()> {
    let mut wanted: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for key in set.parts.keys() {
        wanted.entry(key / STATES).or_default().insert(*key);
    }
    let mut kept = Vec::new();
    for watch in watches.drain(..) {
        match wanted.contains_key(&watch.window) {
            true => kept.push(watch),
            false => counters.unregister(watch.rule)?,
        }
    }
    *watches = kept;
    for (window, keys) in wanted {
        let known = watches.iter().position(|watch| watch.window == window);
        let index = match known {
            Some(index) => index,
            None => {
                watches.push(register(counters, window, set.hull, shift)?);
                watches.len() - 1
            }
        };
        translate(counters, &mut watches[index], keys)?;
    }
    Ok(())
}

/// Listing 2 of the paper, for one table of keys.
fn register(
    counters: &mut dyn Counters,
    window: u64,
    (start, end): (u64, u64),
    shift: u8,
) -> Result<Watch> {
    let filter = Filter {
        kind: RequestKind::All,
        start: start.max((window * STATES) << shift),
        end: end.min(((window + 1) * STATES) << shift),
    };
    let key = Key { mask: Key::ALL_MEMORY, shift };
    let first = key.of(filter.start);
    let states = key.of(filter.end - 1) - first + 1;
    let rule = Rule {
        filter,
        key,
        offset: Key::NONE,
        update: (Operator::Add, Operand::Constant(1)),
        notify: None,
        on_read: ReadEffect::Reset(0),
    };
    let rule = counters.register_states(&rule, states)?;
    Ok(Watch { rule, window, first, keys: BTreeSet::new() })
}

fn translate(counters: &mut dyn Counters, watch: &mut Watch, keys: BTreeSet<u64>) -> Result<()> {
    for gone in watch.keys.difference(&keys) {
        counters.translate(watch.rule, *gone, None)?;
    }
    for new in keys.difference(&watch.keys) {
        counters.translate(watch.rule, *new, Some((new - watch.first) as u32))?;
    }
    watch.keys = keys;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start * MIB, end * MIB)
    }

    fn ahead(hand: u64, areas: &[Range], blocks: u64) -> (Vec<(u64, u64)>, u64, bool) {
        let hand = SweepPosition(Addr { space: SpaceId(0), at: hand * MIB });
        let (ranges, end, all) = hand.ahead(areas, blocks, 2 * MIB);
        (ranges.iter().map(|r| (r.start / MIB, r.end / MIB)).collect(), end.at / MIB, all)
    }

    // |1   7|   |20 22|, blocks of 2: 0..2 2..4 4..6 6..8, 20..22.
    #[test]
    fn a_sweep_takes_a_number_of_blocks_and_wraps_around() {
        let areas = [r(1, 7), r(20, 22)];
        assert_eq!(ahead(0, &areas, 9), (vec![(1, 7), (20, 22)], 22, true));
        assert_eq!(ahead(0, &areas, 2), (vec![(1, 4)], 4, false));
        assert_eq!(ahead(4, &areas, 2), (vec![(4, 7)], 7, false));
        assert_eq!(ahead(7, &areas, 2), (vec![(20, 22)], 22, false));
        assert_eq!(ahead(22, &areas, 1), (vec![(1, 2)], 2, false));
        assert_eq!(ahead(0, &[], 1), (vec![], 0, true));
    }

    // A range of 3 MiB is at physical 1..4 MiB: the first physical block holds a third of it.
    #[test]
    fn blocks_that_share_a_physical_one_share_its_requests() {
        let mut wanted = WatchSet::default();
        wanted.add(FrameRun { range: r(0, 3), frame: MIB }, 2 * MIB);
        wanted.add(FrameRun { range: r(10, 11), frame: 0 }, 2 * MIB);
        let shares = |key| {
            let shares = wanted.shares(key).map(|((_, start), share)| (start / MIB, share));
            shares.collect::<Vec<_>>()
        };
        assert_eq!(shares(0), [(0, 0.5), (10, 0.5)]);
        assert_eq!(shares(1), [(0, 0.5), (2, 0.5)]);
        assert_eq!(shares(2), []);
        assert_eq!((wanted.blocks.len(), wanted.pipelines()), (3, 1));
    }

    #[test]
    fn memory_of_no_controller_is_cut_off() {
        let piece = FrameRun { range: r(100, 110), frame: 10 * MIB };
        let sees = [(0, 12 * MIB), (18 * MIB, 30 * MIB)];
        let cut: Vec<_> = seen(piece, &sees).map(|p| (p.range, p.frame / MIB)).collect();
        assert_eq!(cut, [(r(100, 102), 10), (r(108, 110), 18)]);
    }
}
