//! Bins of a tile: neighbouring ranges are merged while there are too many, the ones first that
//! lose least (J. H. Ward, Hierarchical Grouping to Optimize an Objective Function, 1963).

use std::cmp::Reverse;
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
    before: Option<u32>,
    after: Option<u32>,
    /// Grows with every change of it or of the one after it: a candidate of an earlier one is void.
    version: u32,
    gone: bool,
}

impl Node {
    fn of(part: &Part, before: Option<u32>) -> Self {
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
            version: 0,
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

/// Two neighbours that can be merged: bits of the cost, which are ordered as the costs are, number
/// of the left one, and its version. The cheapest is greatest; of equals, the first.
type Candidate = Reverse<(u32, u32, u32)>;

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
        let number = nodes.len() as u32;
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
        let candidate = |(right, pair): (u32, &[Node])| {
            let [left, next] = [&pair[0].range, &pair[1].range];
            let length = next.start.saturating_sub(left.end);
            let is_gap = left.space == next.space && length > 0;
            is_gap.then_some(Reverse(((length as f32).to_bits(), right, 0)))
        };
        let pairs: Vec<Candidate> =
            (1..).zip(self.nodes.windows(2)).filter_map(candidate).collect();
        let mut heap = BinaryHeap::from(pairs);
        while ranges > most
            && let Some(Reverse((_, right, _))) = heap.pop()
            && let Some(left) = self.nodes[right as usize].before
        {
            self.merge(left, right);
            ranges -= 1;
        }
    }

    /// Merges touching neighbours until at most `budget` are left, or none touch.
    fn merge_touching(&mut self, budget: usize) {
        let mut pairs = Vec::with_capacity(self.left);
        let mut at = (!self.nodes.is_empty()).then_some(0);
        while let Some(left) = at {
            pairs.extend(self.candidate(left));
            at = self.nodes[left as usize].after;
        }
        let mut heap = BinaryHeap::from(pairs);
        while self.left > budget
            && let Some(Reverse((_, left, version))) = heap.pop()
        {
            let Node { version: now, before, after, gone, .. } = self.nodes[left as usize];
            let Some(right) = after.filter(|_| !gone && now == version) else { continue };
            self.merge(left, right);
            heap.extend(before.and_then(|before| self.candidate(before)));
            heap.extend(self.candidate(left));
        }
    }

    /// A node and the one after it, if they touch.
    fn candidate(&self, left: u32) -> Option<Candidate> {
        let node = &self.nodes[left as usize];
        let next = &self.nodes[node.after? as usize];
        let cost = || (node.error(next, self.time) as f32).to_bits();
        node.touches(next).then(|| Reverse((cost(), left, node.version)))
    }

    /// Merges a node with the one after it.
    fn merge(&mut self, left: u32, right: u32) {
        let taken = self.nodes[right as usize];
        self.nodes[right as usize].gone = true;
        let node = &mut self.nodes[left as usize];
        node.range.end = taken.range.end;
        node.seen += taken.seen;
        node.hot += taken.hot;
        node.sure += taken.sure;
        node.unknown += taken.unknown;
        node.after = taken.after;
        node.version += 1;
        let before = node.before;
        if let Some(before) = before {
            self.nodes[before as usize].version += 1;
        }
        if let Some(after) = taken.after {
            self.nodes[after as usize].before = Some(left);
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
