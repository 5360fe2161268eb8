//! Bins of a tile: neighbouring ranges are merged while there are too many, the ones first that
//! lose least (J. H. Ward, Hierarchical Grouping to Optimize an Objective Function, 1963).

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tierscope_core::Range;

use super::{Bin, ONE, Part, quantised};

/// Weight, in a merge's error, of bytes in another state (known, unknown, not observed) than the
/// rest of the bin. Small: boundaries of heat matter more than boundaries of observation.
const EDGE: f64 = 1.0 / 64.0;

/// A bin in the making. Sums are of bytes times time.
#[derive(Clone, Copy, Debug)]
struct Node {
    range: Range,
    seen: f64,
    hot: f64,
    sure: f64,
    unknown: f64,
    /// Neighbours that are still there.
    before: Option<usize>,
    after: Option<usize>,
    /// Number of its merges; a candidate of an earlier number is void.
    merges: u32,
    gone: bool,
}

impl Node {
    fn of(part: &Part, before: Option<usize>) -> Self {
        let bytes = part.range.bytes() as f64;
        let [seen, unknown] = [part.seen, part.unknown].map(|time| time as f64 * bytes);
        let [hot, sure] = [part.hot, part.sure].map(|sum| sum as f64 / ONE * bytes);
        Self {
            range: part.range,
            seen,
            hot,
            sure,
            unknown,
            before,
            after: None,
            merges: 0,
            gone: false,
        }
    }

    fn touches(&self, next: &Node) -> bool {
        self.range.space == next.range.space && self.range.end == next.range.start
    }

    /// Error that merging two neighbours adds.
    fn error(&self, next: &Node, time: f64) -> f64 {
        let ward = |a: f64, b: f64, difference: f64| match a + b {
            0.0 => 0.0,
            all => a * b / all * difference * difference,
        };
        let heat = |node: &Node| if node.seen > 0.0 { node.hot / node.seen } else { 0.0 };
        let bytes = [self, next].map(|node| node.range.bytes() as f64 * time);
        let share = |state: fn(&Node) -> f64| state(self) / bytes[0] - state(next) / bytes[1];
        let edge = |difference| EDGE * ward(bytes[0], bytes[1], difference);
        ward(self.seen, next.seen, heat(self) - heat(next))
            + edge(share(|node| node.seen))
            + edge(share(|node| node.unknown))
    }

    fn bin(&self, time: f64) -> Bin {
        let bytes = self.range.bytes();
        let all = time * bytes as f64;
        let mean = |sum: f64| if self.seen > 0.0 { sum / self.seen } else { 0.0 };
        Bin {
            space: self.range.space,
            start: self.range.start,
            bytes,
            heat: quantised(mean(self.hot)),
            seen: quantised(self.seen / all),
            sure: (mean(self.sure) * 255.0).round() as u8,
            unknown: quantised(self.unknown / all),
        }
    }
}

/// Two neighbours that can be merged: the one that costs least is greatest; of equals, the first.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    cost: f64,
    left: usize,
    right: usize,
    merges: [u32; 2],
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other.cost.total_cmp(&self.cost).then(other.left.cmp(&self.left))
    }
}

/// Ranges that are merged to bins.
pub(super) struct Merging {
    nodes: Vec<Node>,
    left: usize,
    time: f64,
}

impl Merging {
    /// Of sorted, disjoint parts, summed over `time`. Neighbours that are equal are one.
    pub(super) fn of(parts: &[Part], time: u64) -> Self {
        let mut nodes: Vec<Node> = Vec::with_capacity(parts.len());
        let mut last: Option<Part> = None;
        for part in parts {
            let alike = |last: &&mut Part| {
                last.range.space == part.range.space
                    && last.range.end == part.range.start
                    && Part { range: last.range, ..*part } == **last
            };
            match last.as_mut().filter(alike) {
                Some(last) => last.range.end = part.range.end,
                None => {
                    Self::push(&mut nodes, last);
                    last = Some(*part);
                }
            }
        }
        Self::push(&mut nodes, last);
        Self { left: nodes.len(), nodes, time: time.max(1) as f64 }
    }

    fn push(nodes: &mut Vec<Node>, part: Option<Part>) {
        let Some(part) = part else { return };
        let number = nodes.len();
        if let Some(before) = nodes.last_mut() {
            before.after = Some(number);
        }
        nodes.push(Node::of(&part, number.checked_sub(1)));
    }

    /// At most `budget` bins, or one for each space if that is more.
    pub(super) fn bins(mut self, budget: usize) -> Vec<Bin> {
        if self.left > budget {
            self.merge_across_gaps(budget.div_ceil(2));
            self.merge_touching(budget);
        }
        let mut bins: Vec<Bin> = Vec::with_capacity(self.left);
        for node in self.nodes.iter().filter(|node| !node.gone) {
            push_bin(&mut bins, node.bin(self.time));
        }
        bins
    }

    /// Merges over the shortest gaps until at most `most` ranges without gaps are left, or one for
    /// each space.
    fn merge_across_gaps(&mut self, most: usize) {
        let gap = |pair: &[Node]| !pair[0].touches(&pair[1]);
        let mut ranges = 1 + self.nodes.windows(2).filter(|pair| gap(pair)).count();
        if ranges <= most {
            return;
        }
        let cost = |left: &Node, right: &Node| {
            let length = right.range.start.saturating_sub(left.range.end);
            (left.range.space == right.range.space && length > 0).then_some(length as f64)
        };
        let mut heap: BinaryHeap<Candidate> = (1..self.nodes.len())
            .filter_map(|right| self.candidate(right - 1, right, cost))
            .collect();
        while ranges > most
            && let Some(next) = heap.pop()
        {
            // Of two neighbours, merging one of them with others changes neither the gap nor its
            // ends, but which nodes they are.
            let right = self.nodes[next.right];
            let Some(left) = right.before.filter(|_| !right.gone) else { continue };
            self.merge(left, next.right);
            ranges -= 1;
        }
    }

    /// Merges touching neighbours until at most `budget` are left, or none touch.
    fn merge_touching(&mut self, budget: usize) {
        let time = self.time;
        let cost = |left: &Node, right: &Node| left.touches(right).then(|| left.error(right, time));
        let mut heap = BinaryHeap::with_capacity(self.left);
        let mut at = Some(0);
        while let Some(left) = at {
            at = self.nodes[left].after;
            heap.extend(at.and_then(|right| self.candidate(left, right, cost)));
        }
        while self.left > budget
            && let Some(next) = heap.pop()
        {
            let [left, right] = [next.left, next.right].map(|number| &self.nodes[number]);
            if left.gone || right.gone || [left.merges, right.merges] != next.merges {
                continue;
            }
            self.merge(next.left, next.right);
            let Node { before, after, .. } = self.nodes[next.left];
            heap.extend(before.and_then(|before| self.candidate(before, next.left, cost)));
            heap.extend(after.and_then(|after| self.candidate(next.left, after, cost)));
        }
    }

    fn candidate(
        &self,
        left: usize,
        right: usize,
        cost: impl Fn(&Node, &Node) -> Option<f64>,
    ) -> Option<Candidate> {
        let (from, to) = (&self.nodes[left], &self.nodes[right]);
        let merges = [from.merges, to.merges];
        cost(from, to).map(|cost| Candidate { cost, left, right, merges })
    }

    /// Merges a node with the one after it.
    fn merge(&mut self, left: usize, right: usize) {
        let taken = self.nodes[right];
        self.nodes[right].gone = true;
        let node = &mut self.nodes[left];
        node.range.end = taken.range.end;
        node.seen += taken.seen;
        node.hot += taken.hot;
        node.sure += taken.sure;
        node.unknown += taken.unknown;
        node.after = taken.after;
        node.merges += 1;
        if let Some(after) = taken.after {
            self.nodes[after].before = Some(left);
        }
        self.left -= 1;
    }
}

/// Appends a bin, or extends the last one if its values are equal.
fn push_bin(bins: &mut Vec<Bin>, bin: Bin) {
    match bins.last_mut() {
        Some(last)
            if last.range().end == bin.start
                && Bin { start: last.start, bytes: last.bytes, ..bin } == *last =>
        {
            last.bytes += bin.bytes;
        }
        _ => bins.push(bin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::SpaceId;

    fn part(space: u32, pages: std::ops::Range<u64>, heat: f64) -> Part {
        Part::new(Range::new(SpaceId(space), pages.start << 12, pages.end << 12), 8, heat, 1.0)
    }

    fn merged(parts: &[Part], budget: usize) -> Vec<(u64, u64, u8)> {
        let bins = Merging::of(parts, 8).bins(budget);
        bins.iter().map(|bin| (bin.start >> 12, bin.bytes >> 12, bin.heat)).collect()
    }

    // Frequencies of 0, 0.2 and 1 of a page each: the first two are nearest. Of four pages of 0.2,
    // merging the first page loses 0.8 * 0.04, the last one 0.8 * 0.64.
    #[test]
    fn the_nearest_neighbours_are_merged() {
        let parts = [part(0, 0..1, 0.0), part(0, 1..2, 0.2), part(0, 2..3, 1.0)];
        assert_eq!(merged(&parts, 3), [(0, 1, 0), (1, 1, 51), (2, 1, 255)]);
        assert_eq!(merged(&parts, 2), [(0, 2, 25), (2, 1, 255)]);
        assert_eq!(merged(&parts, 1), [(0, 3, 102)]);
    }

    // Two mappings of two pages each are not mixed by three bins, although the two inner pages are
    // equal; by one bin they are, and half of it was not observed.
    #[test]
    fn mappings_are_not_mixed_unless_they_are_too_many() {
        let parts =
            [part(0, 0..1, 1.0), part(0, 1..2, 0.0), part(0, 6..7, 0.0), part(0, 7..8, 1.0)];
        let four = [(0, 1, 255), (1, 1, 0), (6, 1, 0), (7, 1, 255)];
        assert_eq!(merged(&parts, 4), four);
        assert_eq!(merged(&parts, 3), [(0, 2, 128), (6, 1, 0), (7, 1, 255)]);
        assert_eq!(merged(&parts, 1), [(0, 8, 128)]);
        let bin = Merging::of(&parts, 8).bins(1)[0];
        assert_eq!((bin.seen, bin.sure), (128, 255));
    }

    // Gaps of 1, 9 and 2 pages: with at most four bins, two ranges stay apart, over the longest
    // gap.
    #[test]
    fn the_shortest_gaps_are_closed_first() {
        let parts = [
            part(0, 0..1, 1.0),
            part(0, 2..3, 0.5),
            part(0, 12..13, 0.5),
            part(0, 15..16, 1.0),
            part(0, 16..17, 0.0),
        ];
        assert_eq!(merged(&parts, 4), [(0, 3, 191), (12, 4, 191), (16, 1, 0)]);
        let spaces = [part(0, 0..1, 1.0), part(1, 1..2, 1.0)];
        assert_eq!(merged(&spaces, 1).len(), 2);
    }
}
