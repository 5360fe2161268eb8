//! Ground truth of a workload: hot ranges over time, and touched pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::metrics::rates::RatedRange;
use tierscope_core::{Mappings, PAGE_SIZE, Range, RangeSet, SpaceId, Time};
use tierscope_workloads::{Density, Segment, Workload};

/// Number of segments whose densities are cached.
const KEPT: usize = 16;

/// The ranges that a workload declares hot, at the addresses of a machine, and the access rate of
/// each page.
#[derive(Clone, Debug)]
pub struct Truth {
    workload: Workload,
    bases: Vec<u64>,
    space: SpaceId,
    /// Accesses a second, by phase.
    rates: Vec<f64>,
    densities: BTreeMap<Duration, Arc<Vec<Density>>>,
}

impl Truth {
    pub(crate) fn new(
        workload: Workload,
        bases: Vec<u64>,
        space: SpaceId,
        rates: Vec<f64>,
    ) -> Self {
        Self { workload, bases, space, rates, densities: BTreeMap::new() }
    }

    /// Ground truth of a process that started at time 0: its areas are the mappings of `space` with
    /// their names. `None` if one is missing. Access rates are known for phases with a given rate.
    #[must_use]
    pub fn of(workload: &Workload, space: SpaceId, mappings: &Mappings) -> Option<Self> {
        let base = |name: &str| {
            let here = mappings.mappings.iter().filter(|mapping| mapping.range.space == space);
            here.map(|mapping| (&*mapping.name, mapping.range.start)).find(|(n, _)| *n == name)
        };
        let bases = workload.areas.iter().map(|area| base(&area.name).map(|(_, start)| start));
        let rates = workload.phases.iter().map(|phase| phase.rate.unwrap_or(0) as f64).collect();
        Some(Self::new(workload.clone(), bases.collect::<Option<_>>()?, space, rates))
    }

    /// The areas that the workload accesses in some phase.
    #[must_use]
    pub fn accessed(&self) -> RangeSet {
        let accesses = self.workload.phases.iter().flat_map(|phase| &phase.accesses);
        let range = |area: usize| {
            let start = self.bases[area];
            Range::new(self.space, start, start + self.workload.areas[area].bytes)
        };
        accesses.map(|access| range(access.area)).collect()
    }

    /// The workload's segment at a time.
    #[must_use]
    pub fn segment_at(&self, time: Time) -> Segment {
        self.workload.segment_at(Duration::from_nanos(time.0))
    }

    /// The hot ranges at a time.
    #[must_use]
    pub fn hot_at(&self, time: Time) -> RangeSet {
        self.workload.hot_at(&self.segment_at(time), &self.bases, self.space)
    }

    /// The name of the phase at a time.
    #[must_use]
    pub fn phase_at(&self, time: Time) -> &str {
        &self.workload.phases[self.segment_at(time).phase].name
    }

    /// Access rates at a time: ranges, and accesses per second and 4 KiB page, as means over the
    /// pages of the range. Rates of overlapping ranges add up
    /// ([`tierscope_core::metrics::rates::TrueRates`]).
    pub fn rates_at(&mut self, time: Time) -> Vec<RatedRange> {
        let segment = self.segment_at(time);
        let accesses = self.rates[segment.phase];
        let densities = self.densities(&segment);
        let each = |density: &Density| {
            let range = density.part.at(&self.bases, self.space);
            (range, density.weight * accesses * PAGE_SIZE as f64 / range.bytes() as f64)
        };
        densities.iter().filter(|density| density.weight > 0.0).map(each).collect()
    }

    /// The pages that the target touches within `from..to`: the expected share of each range's
    /// pages, one minus the probability that none of a page's accesses falls into the time.
    pub fn touched(&mut self, from: Time, to: Time) -> Touched {
        let mut edges: Vec<(u64, f64)> = Vec::new();
        let mut at = from;
        while at < to {
            let segment = self.segment_at(at);
            let end = Time(segment.end.as_nanos() as u64).min(to);
            let accesses = self.rates[segment.phase] * end.since(at).as_secs_f64();
            for density in self.densities(&segment).iter().filter(|d| d.weight > 0.0) {
                let range = density.part.at(&self.bases, self.space);
                let pages = range.bytes().div_ceil(density.every).max(1) as f64;
                let each = density.weight * accesses / pages;
                // With a wide stride only some pages are ever touched.
                let dense = PAGE_SIZE as f64 / density.every as f64;
                let each = if dense < 1.0 { -(-dense * -(-each).exp_m1()).ln_1p() } else { each };
                edges.push((range.start, each));
                edges.push((range.end, -each));
            }
            at = end.max(Time(at.0 + 1));
        }
        Touched::of(self.space, edges)
    }

    fn densities(&mut self, segment: &Segment) -> Arc<Vec<Density>> {
        if self.densities.len() >= KEPT && !self.densities.contains_key(&segment.begin) {
            self.densities.pop_first();
        }
        let made = || Arc::new(self.workload.densities(segment));
        Arc::clone(self.densities.entry(segment.begin).or_insert_with(made))
    }
}

/// Pages touched within a time: ranges, ascending and disjoint, each with the share of its pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Touched(Vec<(Range, f64)>);

impl Touched {
    /// Sums accesses to each page from the begin (above zero) and end (below) of ranges.
    fn of(space: SpaceId, mut edges: Vec<(u64, f64)>) -> Self {
        edges.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut pieces: Vec<(Range, f64)> = Vec::new();
        let (mut start, mut sum, mut open) = (0, 0.0, 0u64);
        for (at, change) in edges {
            if at > start && open > 0 {
                let share = -f64::exp_m1(-sum);
                match pieces.last_mut() {
                    Some((last, same)) if last.end == start && *same == share => last.end = at,
                    _ => pieces.push((Range::new(space, start, at), share)),
                }
            }
            start = at;
            open = if change < 0.0 { open - 1 } else { open + 1 };
            // No open range means no accesses, whatever the rounding error.
            sum = if open == 0 { 0.0 } else { sum + change };
        }
        Self(pieces)
    }

    /// Touched bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(range, share)| range.bytes() as f64 * share).sum::<f64>().round() as u64
    }

    /// Touched bytes within a range.
    #[must_use]
    pub fn bytes_within(&self, range: &Range) -> u64 {
        let before = |(r, _): &(Range, f64)| (r.space, r.end) <= (range.space, range.start);
        let rest = &self.0[self.0.partition_point(before)..];
        let parts = rest.iter().map_while(|(r, share)| Some((r.intersect(range)?, share)));
        parts.map(|(part, share)| part.bytes() as f64 * share).sum::<f64>().round() as u64
    }

    /// Touched bytes within a set of ranges.
    #[must_use]
    pub fn bytes_in(&self, set: &RangeSet) -> u64 {
        let mut sum = 0.0;
        let mut rest = set.as_slice();
        for (range, share) in &self.0 {
            let before = |r: &Range| (r.space, r.end) <= (range.space, range.start);
            rest = &rest[rest.partition_point(before)..];
            let parts = rest.iter().map_while(|part| part.intersect(range));
            sum += parts.map(|part| part.bytes() as f64 * share).sum::<f64>();
        }
        sum.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::metrics::rates::TrueRates;
    use tierscope_workloads::generate::from_spec;

    const SECOND: u64 = 1_000_000_000;

    fn truth(spec: &str) -> Truth {
        let workload = from_spec(spec).unwrap();
        let rates = workload.phases.iter().map(|phase| phase.rate.unwrap() as f64).collect();
        Truth::new(workload, vec![0], SpaceId(0), rates)
    }

    fn set(start: u64, end: u64) -> RangeSet {
        [Range::new(SpaceId(0), start, end)].into_iter().collect()
    }

    // 1000 pages, 500 accesses in half a second: 1 - exp(-0.5) = 0.3935 of them.
    #[test]
    fn a_page_is_missed_with_the_chance_that_no_access_falls_on_it() {
        let mut truth = truth("contiguous:space=40960000B,hot=4096000B,rate=1000");
        let touched = truth.touched(Time(0), Time(SECOND / 2));
        assert_eq!(touched.bytes(), (4_096_000.0 * (1.0 - (-0.5f64).exp())).round() as u64);
        assert_eq!(touched.bytes_in(&set(2_048_000, 9_000_000)), touched.bytes().div_ceil(2));
        assert_eq!(touched.bytes_in(&set(5_000_000, 9_000_000)), 0);
        let within = |start, end| touched.bytes_within(&Range::new(SpaceId(0), start, end));
        assert_eq!(within(2_048_000, 9_000_000), touched.bytes().div_ceil(2));
        assert_eq!((within(0, 1 << 40), within(5_000_000, 9_000_000)), (touched.bytes(), 0));
    }

    // Two steps of 1000 pages with half a second in each: over both, the sum.
    #[test]
    fn an_interval_with_a_phase_change_uses_both_phases() {
        let spec = "stairs:space=8192000B,hot=4096000B,steps=2,every=1s,rate=1000";
        let mut truth = truth(spec);
        let each = (4_096_000.0 * (1.0 - (-0.5f64).exp())).round() as u64;
        let touched = truth.touched(Time(SECOND / 2), Time(SECOND * 3 / 2));
        assert!(touched.bytes().abs_diff(2 * each) <= 1, "{touched:?}");
    }

    // Overlapping patterns add up: 0.5 and 1.5 accesses a page.
    #[test]
    fn patterns_add_up() {
        let mut truth = truth("contiguous:space=8192000B,hot=4096000B,share=0.5,rate=2000");
        let touched = truth.touched(Time(0), Time(SECOND));
        let inside = 4_096_000.0 * (1.0 - (-1.5f64).exp());
        assert!((touched.bytes_in(&set(0, 4_096_000)) as f64 - inside).abs() < 2.0, "{touched:?}");
        assert_eq!(touched.0.len(), 2);
    }

    // 2000 accesses a second: half of them on 1000 of 2000 pages, half on all.
    #[test]
    fn rates_are_accesses_per_second_and_page() {
        let spec = "contiguous:space=8192000B,hot=4096000B,share=0.5,rate=2000";
        let rates = TrueRates::of(truth(spec).rates_at(Time(0)));
        assert_eq!(rates.mean_of(&set(0, 4_096_000)), 1.5);
        assert_eq!(rates.mean_of(&set(4_096_000, 8_192_000)), 0.5);
        assert_eq!(rates.total(), 2000.0);
    }

    // In the second step the accesses are in the new hot range.
    #[test]
    fn rates_move_with_the_hot_range() {
        let mut truth = truth("stairs:space=8192000B,hot=4096000B,steps=2,every=1s,rate=1000");
        let rate = |truth: &mut Truth, time, from| {
            TrueRates::of(truth.rates_at(Time(time))).mean_of(&set(from, from + 4_096_000))
        };
        assert_eq!((rate(&mut truth, 0, 0), rate(&mut truth, 0, 4_096_000)), (1.0, 0.0));
        let later = SECOND * 3 / 2;
        assert_eq!((rate(&mut truth, later, 0), rate(&mut truth, later, 4_096_000)), (0.0, 1.0));
    }

    // Every sixteenth page, and all of these within the time.
    #[test]
    fn wide_strides_touch_some_pages_only() {
        let mut truth = truth("contiguous:space=1GiB,hot=1GiB,stride=64KiB,rate=1000000");
        assert!(truth.touched(Time(0), Time(SECOND)).bytes().abs_diff(1 << 26) < 4096);
    }
}
