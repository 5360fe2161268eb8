//! Accuracy of rates against the truth (METRICS.md: rate, oracle share).
//!
//! Rates are accesses per second and 4 KiB page throughout. Regions that an instrument reports as
//! unknown have bounds that may not be acted on: they count in [`RateAccuracy::unknown`], not in
//! the coverage.

use std::cmp::Ordering;

use crate::{PAGE_SIZE, Range, RangeSet, Region, Snapshot, SpaceId};

/// Default block size in bytes: an oracle share chooses memory in blocks of this size.
pub const GRANULE: u64 = 2 << 20;

/// A region is truly hot from this share of the hot rate on.
pub const HOT_FROM: f64 = 0.5;

/// A region is truly cold up to this share of the hot rate.
pub const COLD_TO: f64 = 0.1;

/// A range, and the accesses per second to each of its 4 KiB pages.
pub type RatedRange = (Range, f64);

/// True rates: disjoint ranges, ascending; memory between them is never accessed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrueRates {
    pieces: Vec<RatedRange>,
    /// Accesses per second to all pieces before piece i; the last entry is the total.
    before: Vec<f64>,
}

impl TrueRates {
    /// From ranges that may overlap, in any order; rates of the same page add up.
    #[must_use]
    pub fn of(ranges: impl IntoIterator<Item = RatedRange>) -> Self {
        let mut edges: Vec<(SpaceId, u64, f64)> = Vec::new();
        for (range, rate) in
            ranges.into_iter().filter(|(range, rate)| !range.is_empty() && *rate > 0.0)
        {
            edges.push((range.space, range.start, rate));
            edges.push((range.space, range.end, -rate));
        }
        edges.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(b.2.total_cmp(&a.2)));
        Self::disjoint(sweep(&edges))
    }

    fn disjoint(pieces: Vec<RatedRange>) -> Self {
        let mut sum = 0.0;
        let each = |piece: &RatedRange| {
            sum += pages(&piece.0) * piece.1;
            sum
        };
        let before = std::iter::once(0.0).chain(pieces.iter().map(each)).collect();
        Self { pieces, before }
    }

    /// The ranges and their rates.
    #[must_use]
    pub fn pieces(&self) -> &[RatedRange] {
        &self.pieces
    }

    /// Accesses per second to all memory.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.before.last().copied().unwrap_or(0.0)
    }

    /// Accesses per second to a range.
    #[must_use]
    pub fn accesses(&self, range: &Range) -> f64 {
        let from =
            self.pieces.partition_point(|(r, _)| (r.space, r.end) <= (range.space, range.start));
        let to =
            self.pieces.partition_point(|(r, _)| (r.space, r.start) < (range.space, range.end));
        if from >= to {
            return 0.0;
        }
        // Inner pieces count whole; of the first and the last only the part inside the range.
        let inside = |index: usize| {
            let (piece, rate) = &self.pieces[index];
            piece.intersect(range).map_or(0.0, |part| pages(&part) * rate)
        };
        match to - from {
            1 => inside(from),
            _ => inside(from) + (self.before[to - 1] - self.before[from + 1]) + inside(to - 1),
        }
    }

    /// Accesses per second and page of a range, averaged over its pages.
    #[must_use]
    pub fn mean(&self, range: &Range) -> f64 {
        if range.is_empty() { 0.0 } else { self.accesses(range) / pages(range) }
    }

    /// Mean rate of the pages of a set; 0 for an empty set.
    #[must_use]
    pub fn mean_of(&self, set: &RangeSet) -> f64 {
        let sum: f64 = set.as_slice().iter().map(|range| self.accesses(range)).sum();
        if set.is_empty() { 0.0 } else { sum / (set.bytes() as f64 / PAGE_SIZE as f64) }
    }

    /// Share of the accesses that the hottest `bytes` receive, chosen in blocks of `granule`;
    /// `None` if there are no accesses.
    #[must_use]
    pub fn best_share(&self, bytes: u64, granule: u64) -> Option<f64> {
        let served = served(self, blocks(&self.pieces, granule), bytes, 0.0);
        (self.total() > 0.0).then(|| served / self.total())
    }

    /// The distinct rates and their ranges, highest first; rates that differ by less than a
    /// millionth count as one. `None` if there are more than `most`.
    #[must_use]
    pub fn levels(&self, most: usize) -> Option<Vec<(f64, Vec<Range>)>> {
        let mut levels: Vec<(f64, Vec<Range>)> = Vec::new();
        for (range, rate) in &self.pieces {
            let same = levels.iter().position(|(known, _)| (known / rate - 1.0).abs() < 1e-6);
            match same {
                Some(index) => levels[index].1.push(*range),
                None if levels.len() == most => return None,
                None => levels.push((*rate, vec![*range])),
            }
        }
        levels.sort_by(|a, b| b.0.total_cmp(&a.0));
        Some(levels)
    }
}

fn pages(range: &Range) -> f64 {
    range.bytes() as f64 / PAGE_SIZE as f64
}

/// Disjoint pieces from the edges of rates, sorted by address: positive where a rate begins,
/// negative where it ends.
fn sweep(edges: &[(SpaceId, u64, f64)]) -> Vec<RatedRange> {
    let mut pieces: Vec<RatedRange> = Vec::new();
    let (mut start, mut sum, mut open) = (0, 0.0, 0u64);
    for (space, at, change) in edges {
        if open > 0 && *at > start {
            match pieces.last_mut() {
                Some((last, rate)) if last.space == *space && last.end == start && *rate == sum => {
                    last.end = *at;
                }
                _ => pieces.push((Range::new(*space, start, *at), sum)),
            }
        }
        start = *at;
        open = if *change < 0.0 { open - 1 } else { open + 1 };
        // Without an open range the sum is zero, whatever rounding left.
        sum = if open == 0 { 0.0 } else { sum + change };
    }
    pieces
}

/// Memory with one score: a range of whole blocks, or the scored parts of one block.
#[derive(Clone, Debug)]
struct Group {
    score: f64,
    parts: Vec<Range>,
}

impl Group {
    fn bytes(&self) -> u64 {
        self.parts.iter().map(Range::bytes).sum()
    }
}

/// Splits scored ranges (ascending, disjoint) into blocks; a block shared by several ranges gets
/// their mean score, weighted by bytes.
fn blocks(scored: &[(Range, f64)], granule: u64) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut shared: Option<((SpaceId, u64), f64, Vec<Range>)> = None;
    let close = |shared: Option<((SpaceId, u64), f64, Vec<Range>)>, groups: &mut Vec<Group>| {
        if let Some((_, sum, parts)) = shared {
            let bytes: u64 = parts.iter().map(Range::bytes).sum();
            groups.push(Group { score: sum / bytes as f64, parts });
        }
    };
    for (range, score) in scored.iter().filter(|(range, _)| !range.is_empty()) {
        for part in cut(range, granule) {
            if part.start % granule == 0 && part.end % granule == 0 {
                groups.push(Group { score: *score, parts: vec![part] });
                continue;
            }
            let block = (part.space, part.start / granule);
            let weighed = score * part.bytes() as f64;
            match &mut shared {
                Some((same, sum, parts)) if *same == block => {
                    *sum += weighed;
                    parts.push(part);
                }
                _ => close(shared.replace((block, weighed, vec![part])), &mut groups),
            }
        }
    }
    close(shared, &mut groups);
    groups
}

/// Splits a range into the end of a block, whole blocks, and the beginning of a block; empty parts
/// are left out.
fn cut(range: &Range, granule: u64) -> impl Iterator<Item = Range> {
    let first = range.start.next_multiple_of(granule).min(range.end);
    let last = (range.end / granule * granule).max(first);
    let edges = [(range.start, first), (first, last), (last, range.end)];
    let space = range.space;
    edges.into_iter().filter(|(a, b)| a < b).map(move |(a, b)| Range::new(space, a, b))
}

/// Accesses per second served by the `bytes` with the highest scores. Groups with the same score
/// contribute in proportion to their size, and a group that is taken in part serves its accesses in
/// proportion: among equal scores memory is drawn at random. Bytes beyond all groups have the mean
/// rate `rest` (accesses per second and byte).
fn served(truth: &TrueRates, mut groups: Vec<Group>, bytes: u64, rest: f64) -> f64 {
    groups.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut left = bytes as f64;
    let mut sum = 0.0;
    for tied in groups.chunk_by(|a, b| a.score.total_cmp(&b.score) == Ordering::Equal) {
        let size: u64 = tied.iter().map(Group::bytes).sum();
        let accesses: f64 =
            tied.iter().flat_map(|group| &group.parts).map(|part| truth.accesses(part)).sum();
        let share = (left / size as f64).min(1.0);
        sum += share * accesses;
        left -= share * size as f64;
        if left <= 0.0 {
            return sum;
        }
    }
    sum + left * rest
}

/// Ranking of the regions: by rate if the snapshot has rates (regions without one come last), else
/// by frequency.
fn scores(snapshot: &Snapshot) -> Vec<(Range, f64)> {
    let rated = snapshot.regions.iter().any(|region| region.rate.is_some());
    let score = |region: &Region| match (rated, region.rate) {
        (true, Some(rate)) => f64::from(rate.mean),
        (true, None) => -1.0,
        (false, _) => region.frequency(),
    };
    snapshot.regions.iter().map(|region| (region.range, score(region))).collect()
}

/// Oracle share at `bytes` (METRICS.md): share of the accesses served by the hottest `bytes` by the
/// instrument's rates, over the share served by the truly hottest `bytes`; both choose blocks of
/// `granule`. Memory that the snapshot does not report is chosen last, at random; `mapped` is the
/// total memory. `None` if nothing is accessed.
#[must_use]
pub fn oracle_share(
    snapshot: &Snapshot,
    truth: &TrueRates,
    mapped: u64,
    bytes: u64,
    granule: u64,
) -> Option<f64> {
    let best = truth.best_share(bytes, granule)?;
    let scored = scores(snapshot);
    let covered: u64 = scored.iter().map(|(range, _)| range.bytes()).sum();
    let seen: f64 = scored.iter().map(|(range, _)| truth.accesses(range)).sum();
    let hidden = mapped.saturating_sub(covered);
    let rest = if hidden > 0 { (truth.total() - seen).max(0.0) / hidden as f64 } else { 0.0 };
    let bytes = bytes.min(mapped.max(covered));
    let share = served(truth, blocks(&scored, granule), bytes, rest) / truth.total();
    (best > 0.0).then(|| share / best)
}

/// Heat of a region: its true rate against the mean rate of the hot set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// At least [`HOT_FROM`] of the hot rate.
    Hot,
    /// Between the limits of hot and cold.
    Warm,
    /// At most [`COLD_TO`] of the hot rate.
    Cold,
}

impl Heat {
    /// The heat of a region with true rate `rate`, where the hot rate is `hot`.
    #[must_use]
    pub fn of(rate: f64, hot: f64) -> Self {
        if hot > 0.0 && rate >= HOT_FROM * hot {
            Heat::Hot
        } else if rate <= COLD_TO * hot {
            Heat::Cold
        } else {
            Heat::Warm
        }
    }
}

/// Coverage of the credible intervals, by bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Bytes whose interval holds the true mean rate of their region.
    pub held: u64,
    /// Bytes that have an interval.
    pub bytes: u64,
}

impl Coverage {
    /// Covered share; `None` if no bytes have an interval.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.held as f64 / self.bytes as f64)
    }
}

/// A snapshot's rates against the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateAccuracy {
    /// Coverage of truly hot, warm and cold regions, in this order.
    pub coverage: [Coverage; 3],
    /// Upper over lower bound of the intervals of truly hot regions, median by bytes; infinite
    /// where the lower bound is 0.
    pub hot_width: Option<f64>,
    /// Upper bound of truly cold regions over the hot rate, median by bytes.
    pub cold_bound: Option<f64>,
    /// Share of all bytes that are unknown or missing from the snapshot.
    pub unknown: f64,
    /// Share of the bytes of truly hot regions that are unknown; `None` if the snapshot has no such
    /// regions.
    pub hot_unknown: Option<f64>,
}

impl RateAccuracy {
    /// Compares a snapshot with the truth; `hot` is the mean rate of the hot set, `mapped` the
    /// total bytes.
    #[must_use]
    pub fn of(snapshot: &Snapshot, truth: &TrueRates, hot: f64, mapped: u64) -> Self {
        let mut judged = Self::default();
        let (mut widths, mut bounds) = (Vec::new(), Vec::new());
        let (mut known, mut hot_bytes, mut hot_unknown) = (0u64, 0u64, 0u64);
        for region in &snapshot.regions {
            let bytes = region.range.bytes();
            let rate = truth.mean(&region.range);
            let heat = Heat::of(rate, hot);
            let is_hot = u64::from(heat == Heat::Hot);
            hot_bytes += is_hot * bytes;
            if region.is_unknown() {
                hot_unknown += is_hot * bytes;
                continue;
            }
            known += bytes;
            let Some(given) = region.rate else { continue };
            let (low, high) = (f64::from(given.low), f64::from(given.high));
            let coverage = &mut judged.coverage[heat as usize];
            coverage.bytes += bytes;
            coverage.held += bytes * u64::from((low..=high).contains(&rate));
            match heat {
                Heat::Hot => widths.push((high / low, bytes)),
                Heat::Cold if hot > 0.0 => bounds.push((high / hot, bytes)),
                _ => {}
            }
        }
        judged.hot_width = median(widths);
        judged.cold_bound = median(bounds);
        judged.unknown = 1.0 - (known as f64 / mapped.max(1) as f64).min(1.0);
        judged.hot_unknown = (hot_bytes > 0).then(|| hot_unknown as f64 / hot_bytes as f64);
        judged
    }
}

/// The median by bytes: the smallest value that at least half of the bytes do not exceed.
fn median(mut values: Vec<(f64, u64)>) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, bytes)| bytes).sum::<u64>().div_ceil(2);
    let mut sum = 0;
    let reaches = |(_, bytes): &&(f64, u64)| {
        sum += bytes;
        sum >= half
    };
    values.iter().find(reaches).map(|(value, _)| *value)
}

/// The instrument's mean rate over ranges that are truly accessed alike: accesses per second and
/// page, regions weighted by their overlap in bytes. `None` where it reports no rates there.
#[must_use]
pub fn reported_rate(snapshot: &Snapshot, ranges: &[Range]) -> Option<f64> {
    let regions = &snapshot.regions;
    let (mut sum, mut bytes) = (0.0, 0u64);
    for range in ranges {
        let from = regions.partition_point(|region| {
            (region.range.space, region.range.end) <= (range.space, range.start)
        });
        let parts = regions[from..]
            .iter()
            .map_while(|region| Some((region.range.intersect(range)?, region.rate)));
        for (part, rate) in parts {
            let Some(rate) = rate else { continue };
            sum += f64::from(rate.mean) * part.bytes() as f64;
            bytes += part.bytes();
        }
    }
    (bytes > 0).then(|| sum / bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use crate::Unknown;

    const PAGE: u64 = PAGE_SIZE;

    fn range(from: u64, to: u64) -> Range {
        Range::new(SpaceId(0), from * PAGE, to * PAGE)
    }

    fn region(from: u64, to: u64, bounds: [f32; 3]) -> Region {
        let [low, mean, high] = bounds;
        Region { rate: Some(Rate { low, mean, high }), ..Region::sampled(range(from, to), 0.0, 40) }
    }

    fn snapshot(regions: Vec<Region>) -> Snapshot {
        Snapshot { regions, ..Default::default() }
    }

    // Pages 0..10 at 1 access per second; pages 4..6 at 3 more.
    fn truth() -> TrueRates {
        TrueRates::of([(range(0, 10), 1.0), (range(4, 6), 3.0)])
    }

    #[test]
    fn rates_of_the_same_page_add_up() {
        let pieces = [(range(0, 4), 1.0), (range(4, 6), 4.0), (range(6, 10), 1.0)];
        assert_eq!(truth().pieces(), pieces);
        assert_eq!(truth().total(), 16.0);
        let half = Range::new(SpaceId(0), 3 * PAGE, 4 * PAGE + PAGE / 2);
        assert_eq!(truth().accesses(&half), 3.0);
        assert_eq!(truth().accesses(&range(0, 100)), 16.0);
        assert_eq!(truth().accesses(&range(5, 6)), 4.0);
        assert_eq!(truth().accesses(&range(10, 20)), 0.0);
        assert_eq!(truth().mean(&range(2, 6)), 2.5);
        assert_eq!(truth().mean_of(&[range(4, 6)].into_iter().collect()), 4.0);
        let other = Range::new(SpaceId(1), 0, 10 * PAGE);
        assert_eq!(truth().accesses(&other), 0.0);
    }

    // 0.3 and 0.1 are not exact in binary: no residue may remain where no range is open.
    #[test]
    fn rounded_rates_leave_no_residue() {
        let truth = TrueRates::of([(range(0, 2), 0.1), (range(1, 3), 0.2), (range(8, 9), 0.3)]);
        let pieces: Vec<Range> = truth.pieces().iter().map(|piece| piece.0).collect();
        assert_eq!(pieces, [range(0, 1), range(1, 2), range(2, 3), range(8, 9)]);
        assert_eq!(truth.accesses(&range(3, 8)), 0.0);
    }

    #[test]
    fn levels_are_distinct_rates() {
        let truth = TrueRates::of([(range(0, 1), 2.0), (range(1, 2), 4.0), (range(5, 6), 2.0)]);
        let levels = truth.levels(2).unwrap();
        assert_eq!(levels, [(4.0, vec![range(1, 2)]), (2.0, vec![range(0, 1), range(5, 6)])]);
        assert_eq!(truth.levels(1), None);
    }

    // The hottest two pages receive 8 of 16 accesses; four receive 10.
    #[test]
    fn the_best_share_by_hand() {
        assert_eq!(truth().best_share(2 * PAGE, PAGE), Some(0.5));
        assert_eq!(truth().best_share(4 * PAGE, PAGE), Some(10.0 / 16.0));
        assert_eq!(truth().best_share(100 * PAGE, PAGE), Some(1.0));
        assert_eq!(TrueRates::default().best_share(PAGE, PAGE), None);
    }

    // Blocks of four pages: 4..8 receives 4 + 4 + 1 + 1; 8..10 is half a block.
    #[test]
    fn blocks_are_as_hot_as_their_pages_in_the_mean() {
        assert_eq!(truth().best_share(4 * PAGE, 4 * PAGE), Some(10.0 / 16.0));
        assert_eq!(truth().best_share(2 * PAGE, 4 * PAGE), Some(5.0 / 16.0));
    }

    fn share(regions: Vec<Region>, pages: u64) -> f64 {
        oracle_share(&snapshot(regions), &truth(), 10 * PAGE, pages * PAGE, PAGE).unwrap()
    }

    #[test]
    fn the_hot_pages_have_the_oracles_share() {
        let right = || vec![region(0, 4, [0.0, 1.0, 2.0]), region(4, 6, [0.0, 9.0, 9.0])];
        assert_eq!(share(right(), 2), 1.0);
        // The other pages are missing from the snapshot, and the remaining memory is as hot as
        // these.
        assert_eq!(share(right(), 10), 1.0);
        let wrong = vec![region(0, 4, [0.0, 9.0, 9.0]), region(4, 6, [0.0, 1.0, 9.0])];
        assert_eq!(share(wrong, 2), 2.0 / 8.0);
    }

    // Two of ten pages at random receive 16 / 10 * 2 = 3.2 of the best 8; half of four pages with
    // one hot pair among them receive 5 of 8.
    #[test]
    fn ties_and_parts_count_as_drawn_at_random() {
        let like = |from, to| region(from, to, [0.0, 1.0, 2.0]);
        assert!((share(vec![like(0, 10)], 2) - 0.4).abs() < 1e-12);
        assert!((share(vec![like(0, 3), like(3, 5), like(5, 10)], 2) - 0.4).abs() < 1e-12);
        let apart = vec![region(4, 8, [0.0, 2.0, 2.0]), like(8, 10)];
        assert!((share(apart, 2) - 5.0 / 8.0).abs() < 1e-12);
        // Empty snapshot: the two pages are drawn from all ten.
        assert!((share(Vec::new(), 2) - 0.4).abs() < 1e-12);
    }

    #[test]
    fn without_rates_the_frequency_ranks() {
        let plain = |from, to, hits| Region { hits, rate: None, ..region(from, to, [0.0; 3]) };
        assert_eq!(share(vec![plain(0, 4, 1.0), plain(4, 6, 30.0)], 2), 1.0);
        // Among rates, a region without one ranks last, however many hits it has.
        assert_eq!(share(vec![region(0, 4, [0.0, 0.1, 1.0]), plain(4, 6, 40.0)], 2), 0.25);
    }

    // Hot rate 4: hot from 2 on, cold up to 0.4.
    #[test]
    fn heat_follows_from_the_true_rate() {
        let heats = [4.0, 2.0, 1.9, 0.5, 0.4, 0.0].map(|rate| Heat::of(rate, 4.0));
        use Heat::{Cold, Hot, Warm};
        assert_eq!(heats, [Hot, Hot, Warm, Warm, Cold, Cold]);
        assert_eq!(Heat::of(0.0, 0.0), Cold);
    }

    //                     hot 4..6      warm 0..4      cold 6..10 (never accessed)
    // interval            3..6 holds    2..3 does not  0..0.2 holds
    #[test]
    fn intervals_are_counted_by_the_heat_of_their_region() {
        let truth = TrueRates::of([(range(0, 4), 1.0), (range(4, 6), 4.0)]);
        let regions = vec![
            region(0, 4, [2.0, 2.5, 3.0]),
            region(4, 6, [3.0, 4.0, 6.0]),
            region(6, 10, [0.0, 0.1, 0.2]),
        ];
        let judged = RateAccuracy::of(&snapshot(regions.clone()), &truth, 4.0, 10 * PAGE);
        assert_eq!(
            judged.coverage.map(|coverage| coverage.share()),
            [Some(1.0), Some(0.0), Some(1.0)]
        );
        assert_eq!(judged.coverage[2].bytes, 4 * PAGE);
        assert_eq!((judged.hot_width, judged.unknown), (Some(2.0), 0.0));
        assert!((judged.cold_bound.unwrap() - 0.05).abs() < 1e-7, "{judged:?}");
        // Unknown regions claim nothing; missing regions count as unknown as well.
        let mut vague = regions;
        vague[1].unknown = Some(Unknown::Evidence);
        vague.pop();
        let judged = RateAccuracy::of(&snapshot(vague), &truth, 4.0, 10 * PAGE);
        assert_eq!(judged.coverage.map(|coverage| coverage.share()), [None, Some(0.0), None]);
        assert_eq!((judged.hot_width, judged.hot_unknown), (None, Some(1.0)));
        assert!((judged.unknown - 0.6).abs() < 1e-12, "{judged:?}");
    }

    #[test]
    fn medians_are_by_bytes() {
        assert_eq!(median(vec![(9.0, 1), (1.0, 3), (5.0, 1)]), Some(1.0));
        assert_eq!(median(vec![(9.0, 6), (1.0, 3), (5.0, 2)]), Some(9.0));
        assert_eq!(median(Vec::new()), None);
    }

    // 2 pages at 3 and 1 page at 9, of a range of 4 pages: 15 / 3.
    #[test]
    fn reported_rates_are_weighted_by_overlap() {
        let regions = vec![region(0, 4, [0.0, 3.0, 9.0]), region(4, 5, [0.0, 9.0, 9.0])];
        assert_eq!(reported_rate(&snapshot(regions.clone()), &[range(2, 6)]), Some(5.0));
        assert_eq!(reported_rate(&snapshot(regions), &[range(6, 8)]), None);
    }
}
