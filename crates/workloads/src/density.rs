//! Access densities of a segment, and its hot ranges.
//!
//! **Hot** is the smallest set of bytes that takes [`Phase::hot_share`](crate::description::Phase)
//! of the accesses, 90 % by default: ranges are taken by descending density until the share is
//! reached, together with all ranges of the same density as the last one. So equally accessed
//! ranges are hot or cold together: for uniform patterns the rule yields the ranges themselves, for
//! Zipf and Gaussian the head and the middle that take the share. A description overrides the rule
//! by declaring accesses hot: then exactly their ranges are hot.

use crate::bins;
use crate::description::{Access, Mix, Pattern, Phase, Workload};
use crate::scatter;
use crate::schedule::Segment;
use tierscope_core::{PAGE_SIZE, Range, RangeSet, SpaceId};

/// A range within an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// Index of the area in the description.
    pub area: usize,
    /// Offset of the first byte in the area.
    pub from: u64,
    /// Length of the part in bytes.
    pub bytes: u64,
}

impl Part {
    /// The part's addresses, when area `i` begins at `bases[i]`.
    #[must_use]
    pub fn at(&self, bases: &[u64], space: SpaceId) -> Range {
        let start = bases[self.area] + self.from;
        Range::new(space, start, start + self.bytes)
    }
}

/// A uniformly accessed range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Density {
    /// The uniformly accessed range.
    pub part: Part,
    /// Share of the segment's accesses that fall into the range, 0..=1.
    pub weight: f64,
    /// Distance in bytes between accessed pages: the page size, or more for wide strides.
    pub every: u64,
    /// Share of the accesses that write, 0..=1.
    pub writes: f64,
    /// Distance in bytes between consecutive accesses of a sequential pattern; `None` for random
    /// accesses.
    pub stride: Option<u64>,
    /// Whether each access depends on the one before.
    pub chase: bool,
}

impl Workload {
    /// Access densities of a segment: for each access of the phase its ranges, disjoint and
    /// ascending; ranges of different accesses may overlap. The weights add up to 1.
    #[must_use]
    pub fn densities(&self, segment: &Segment) -> Vec<Density> {
        self.by_access(segment).into_iter().flatten().collect()
    }

    fn by_access(&self, segment: &Segment) -> Vec<Vec<Density>> {
        let phase = self.phase(segment);
        let total: f64 = phase.accesses.iter().map(|access| access.weight).sum();
        let of = |(index, access): (usize, &Access)| {
            let seed = scatter::seed(self.seed, segment.phase, index);
            ranges(access, segment, seed)
                .map(|(from, bytes, mass)| Density {
                    part: Part { area: access.area, from: access.from + from, bytes },
                    weight: mass * access.weight / total,
                    every: access.every(),
                    writes: access.writes(),
                    stride: access.stride(),
                    chase: access.chase,
                })
                .collect()
        };
        phase.accesses.iter().enumerate().map(of).collect()
    }

    /// The hot ranges of a segment, ascending and disjoint.
    #[must_use]
    pub fn hot(&self, segment: &Segment) -> Vec<Part> {
        let phase = self.phase(segment);
        let by_access = self.by_access(segment);
        let pick = |wanted: fn(&Access) -> bool| {
            let chosen = phase.accesses.iter().zip(&by_access).filter(|(access, _)| wanted(access));
            chosen.map(|(_, list)| list.as_slice()).collect::<Vec<_>>()
        };
        let declared = pick(|access| access.hot == Some(true));
        if declared.is_empty() {
            densest(&pick(|access| access.hot != Some(false)), phase)
        } else {
            merged(declared.into_iter().flatten().filter(|d| d.weight > 0.0).map(|d| d.part))
        }
    }

    /// The hot addresses of a segment, when area `i` begins at `bases[i]`.
    #[must_use]
    pub fn hot_at(&self, segment: &Segment, bases: &[u64], space: SpaceId) -> RangeSet {
        self.hot(segment).iter().map(|part| part.at(bases, space)).collect()
    }
}

impl Access {
    fn every(&self) -> u64 {
        match self.pattern {
            Pattern::Sequential { stride } => stride.max(PAGE_SIZE),
            _ => PAGE_SIZE,
        }
    }

    fn stride(&self) -> Option<u64> {
        match self.pattern {
            Pattern::Sequential { stride } => Some(stride),
            _ => None,
        }
    }

    fn writes(&self) -> f64 {
        match self.mix {
            Mix::Writes(share) => share,
            Mix::Update | Mix::NonTemporal => 1.0,
        }
    }
}

/// Ranges of an access, relative to its part: offset, bytes, probability.
fn ranges(
    access: &Access,
    segment: &Segment,
    seed: u64,
) -> Box<dyn Iterator<Item = (u64, u64, f64)>> {
    let bins = |bins: Vec<bins::Bin>, item: u64| {
        Box::new(bins.into_iter().map(move |bin| (bin.from * item, bin.items * item, bin.mass)))
    };
    match access.pattern {
        Pattern::Sequential { .. } | Pattern::Random => one(0, access.bytes),
        Pattern::Table => one(0, access.bytes.min(TABLE_REACH)),
        Pattern::Drift { window, .. } => one(access.drifted(segment.into), window),
        Pattern::Scattered { ranges, range } => {
            let places = scatter::places(access.bytes / range, ranges, seed);
            Box::new(places.into_iter().map(move |at| (at * range, range, 1.0 / ranges as f64)))
        }
        Pattern::Striped { range, apart } => {
            let stripes = access.bytes / apart;
            let each = move |index: u64| (index * apart, range, 1.0 / stripes as f64);
            Box::new((0..stripes).map(each))
        }
        Pattern::Gaussian { item, mean, sd } => {
            bins(bins::gaussian(access.items(item), mean, sd), item)
        }
        Pattern::Zipf { item, theta, scrambled: false } => {
            bins(bins::zipf(access.items(item), theta), item)
        }
        Pattern::Zipf { item, theta, scrambled: true } => {
            bins(bins::scrambled(access.items(item), theta), item)
        }
    }
}

/// Bytes that masim's 31-bit values can reach.
pub(crate) const TABLE_REACH: u64 = 1 << 31;

fn one(from: u64, bytes: u64) -> Box<dyn Iterator<Item = (u64, u64, f64)>> {
    Box::new(std::iter::once((from, bytes, 1.0)))
}

/// The smallest set of parts that takes the phase's hot share of the densities in `lists`.
fn densest(lists: &[&[Density]], phase: &Phase) -> Vec<Part> {
    let mut pieces = flattened(lists);
    let density = |piece: &(Part, f64)| piece.1 / piece.0.bytes as f64;
    pieces.sort_by(|a, b| density(b).total_cmp(&density(a)));
    let wanted = phase.hot_share * pieces.iter().map(|piece| piece.1).sum::<f64>();
    let mut taken = 0.0;
    let mut least = f64::INFINITY;
    // Bound on the relative rounding error of sums over thousands of shares.
    let slack = 1e-9;
    let hot = pieces.iter().take_while(|piece| {
        if taken < wanted * (1.0 - slack) {
            least = density(piece);
        }
        taken += piece.1;
        piece.1 > 0.0 && density(piece) >= least * (1.0 - slack)
    });
    let hot: Vec<Part> = hot.map(|piece| piece.0).collect();
    merged(hot)
}

/// Cuts the overlapping ranges of several accesses into disjoint ones with their combined weight.
fn flattened(lists: &[&[Density]]) -> Vec<(Part, f64)> {
    let mut areas: Vec<usize> = lists.iter().flat_map(|l| l.first()).map(|d| d.part.area).collect();
    areas.sort_unstable();
    areas.dedup();
    let mut pieces = Vec::new();
    for area in areas {
        let here: Vec<_> = lists
            .iter()
            .copied()
            .filter(|l| l.first().is_some_and(|d| d.part.area == area))
            .collect();
        flatten_area(area, here, &mut pieces);
    }
    pieces
}

/// Sweeps over the edges of all ranges of an area. Densities are summed from zero in every piece:
/// incremental addition and subtraction would leave rounding errors larger than the density of a
/// cold terabyte.
fn flatten_area(area: usize, mut lists: Vec<&[Density]>, pieces: &mut Vec<(Part, f64)>) {
    let ends = |d: &Density| [d.part.from, d.part.from + d.part.bytes];
    let mut edges: Vec<u64> = lists.iter().flat_map(|l| l.iter().flat_map(ends)).collect();
    edges.sort_unstable();
    edges.dedup();
    for edge in edges.windows(2) {
        let (from, bytes) = (edge[0], edge[1] - edge[0]);
        let mut weight = 0.0;
        for list in &mut lists {
            while list.first().is_some_and(|d| d.part.from + d.part.bytes <= from) {
                *list = &list[1..];
            }
            if let Some(d) = list.first().filter(|d| d.part.from <= from) {
                weight += d.weight * (bytes as f64 / d.part.bytes as f64);
            }
        }
        if weight > 0.0 {
            pieces.push((Part { area, from, bytes }, weight));
        }
    }
}

/// Sorts parts, and merges adjacent and overlapping ones.
fn merged(parts: impl IntoIterator<Item = Part>) -> Vec<Part> {
    let mut parts: Vec<Part> = parts.into_iter().collect();
    parts.sort_unstable();
    let mut merged: Vec<Part> = Vec::new();
    for part in parts {
        match merged.last_mut() {
            Some(last) if last.area == part.area && part.from <= last.from + last.bytes => {
                let end = (last.from + last.bytes).max(part.from + part.bytes);
                last.bytes = end - last.from;
            }
            _ => merged.push(part),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::from_spec;

    fn hot(spec: &str) -> Vec<(u64, u64)> {
        let workload = from_spec(spec).unwrap();
        let segment = workload.segment_at(std::time::Duration::ZERO);
        workload.hot(&segment).iter().map(|part| (part.from, part.bytes)).collect()
    }

    // 99 % of the accesses go to 10 of 100 bytes, the rest anywhere: the ten are hot. They are too
    // at a hot share of 50 %; at 99.5 % cold bytes are needed as well, and all of those have the
    // same density.
    #[test]
    fn uniform_parts_are_hot_or_cold_as_a_whole() {
        assert_eq!(hot("contiguous:space=100B,hot=10B,at=20B,share=0.99"), [(20, 10)]);
        assert_eq!(hot("contiguous:space=100B,hot=10B,at=20B,share=0.5,hot-share=0.5"), [(20, 10)]);
        assert_eq!(
            hot("contiguous:space=100B,hot=10B,at=20B,share=0.99,hot-share=0.995"),
            [(0, 100)]
        );
    }

    // A theta of 1 is not supported; theta 0.5 of 4 items of 10 bytes: 1, .707, .577, .5 of 2.784:
    // 36, 25, 21, 18 %.
    #[test]
    fn the_head_of_zipf_takes_the_share() {
        assert_eq!(hot("zipf:space=40B,item=10B,theta=0.5,hot-share=0.35"), [(0, 10)]);
        assert_eq!(hot("zipf:space=40B,item=10B,theta=0.5,hot-share=0.6"), [(0, 20)]);
        assert_eq!(hot("zipf:space=40B,item=10B,theta=0.5,hot-share=0.8"), [(0, 30)]);
    }

    // 90 % of a normal distribution lie within 1.645 standard deviations of the mean.
    #[test]
    fn the_middle_of_gaussian_takes_the_share() {
        let hot = hot("gaussian:space=1000000B,item=1B,sd=10000,hot-share=0.9");
        let (from, bytes) = hot[0];
        assert_eq!(hot.len(), 1);
        assert!((bytes as f64 - 2.0 * 16_449.0).abs() < 500.0, "{hot:?}");
        assert!((from as f64 - (500_000.0 - 16_449.0)).abs() < 300.0, "{hot:?}");
    }

    #[test]
    fn weights_add_up() {
        for spec in [
            "contiguous:space=1TiB,hot=10GiB,share=0.9",
            "scattered:space=1TiB,ranges=10000",
            "zipf:space=1GiB",
            "zipf:space=64MiB,scrambled=true",
            "zipf:space=1TiB,scrambled=true",
            "striped:space=1GiB,range=16KiB,apart=3MiB",
            "graded:space=1TiB,share=0.95",
            "gaussian:space=1TiB,item=5MB,sd=100",
        ] {
            let workload = from_spec(spec).unwrap();
            let densities = workload.densities(&workload.segment_at(std::time::Duration::ZERO));
            let sum: f64 = densities.iter().map(|d| d.weight).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{spec}: {sum}");
            assert!(
                densities
                    .iter()
                    .all(|d| d.part.bytes > 0
                        && d.part.from + d.part.bytes <= workload.areas[0].bytes)
            );
        }
    }

    // 100 bytes hold three stripes 30 apart; the last ten bytes are left out.
    #[test]
    fn stripes_are_hot_and_gaps_are_not() {
        assert_eq!(hot("striped:space=100B,range=5B,apart=30B"), [(0, 5), (30, 5), (60, 5)]);
        let noisy = "striped:space=100B,range=5B,apart=30B,share=0.9,hot-share=0.5";
        assert_eq!(hot(noisy), [(0, 5), (30, 5), (60, 5)]);
    }

    // Weights 4, 2, 1 of 7: 57, 29, 14 %; each in the middle of a third of 90 bytes, page-aligned.
    #[test]
    fn grades_are_taken_from_the_hottest_down() {
        let with = |share| hot(&format!("graded:space=90B,ranges=3,range=10B,hot-share={share}"));
        assert_eq!(with("0.5"), [(0, 10)]);
        assert_eq!(with("0.7"), [(0, 10), (30, 10)]);
        assert_eq!(with("0.9"), [(0, 10), (30, 10), (60, 10)]);
        let workload = from_spec("graded:space=90B,ranges=3,range=10B,share=0.7").unwrap();
        let densities = workload.densities(&workload.segment_at(std::time::Duration::ZERO));
        let weights: Vec<f64> = densities.iter().map(|d| (d.weight * 10.0).round()).collect();
        assert_eq!(weights, [4.0, 2.0, 1.0, 3.0]);
    }

    #[test]
    fn a_declaration_overrules_the_share() {
        let mut workload = from_spec("contiguous:space=100B,hot=10B,at=20B,share=0.99").unwrap();
        let segment = workload.segment_at(std::time::Duration::ZERO);
        workload.phases[0].accesses[1].hot = Some(true);
        assert_eq!(workload.hot(&segment), [Part { area: 0, from: 0, bytes: 100 }]);
        workload.phases[0].accesses[1].hot = Some(false);
        assert_eq!(workload.hot(&segment), [Part { area: 0, from: 20, bytes: 10 }]);
    }
}
