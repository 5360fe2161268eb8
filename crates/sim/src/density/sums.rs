//! Events a second by address, cumulated, so that the events in any entry take two look-ups.

use tierscope_core::Level;

use super::profile::Placed;
use super::residency::Group;

/// For each layer: begin and end addresses of densities, and the events a second below each.
#[derive(Clone, Debug)]
pub(super) struct Sums(Vec<Vec<(u64, f64)>>);

impl Sums {
    /// Sums for the given events a second of each density.
    pub(super) fn of(layers: &[Vec<Placed>], mut rate: impl FnMut(&Placed) -> f64) -> Self {
        let of_layer = |layer: &Vec<Placed>| {
            let mut sum = 0.0;
            let mut sums = Vec::with_capacity(2 * layer.len());
            for placed in layer {
                sums.push((placed.range.start, sum));
                sum += rate(placed);
                sums.push((placed.range.end, sum));
            }
            sums
        };
        Self(layers.iter().map(of_layer).collect())
    }

    /// Events a second below an address, in one layer.
    fn below(layer: &[(u64, f64)], at: u64) -> f64 {
        let next = layer.partition_point(|(start, _)| *start <= at);
        let Some((start, before)) = next.checked_sub(1).map(|last| layer[last]) else { return 0.0 };
        let Some((end, after)) = layer.get(next) else { return before };
        before + (after - before) * (at - start) as f64 / (end - start) as f64
    }

    /// Events a second in the entry that holds an address.
    pub(super) fn through(&self, at: u64, level: Level) -> f64 {
        self.within(at, level.entry_bytes())
    }

    /// Events a second in the `bytes`, a power of two, that hold an address.
    pub(super) fn within(&self, at: u64, bytes: u64) -> f64 {
        let start = at & !(bytes - 1);
        let end = start.saturating_add(bytes);
        self.0.iter().map(|layer| Self::below(layer, end) - Self::below(layer, start)).sum()
    }

    /// The entries of a level as runs, single entries at the ends of densities, and longer runs
    /// inside: number of the first entry, number of entries, and events a second in each.
    pub(super) fn entries(&self, level: Level) -> Vec<(u64, u64, f64)> {
        let ends = self.0.iter().flatten().map(|(at, _)| *at);
        let mut edges: Vec<u64> = ends
            .flat_map(|at| [at.saturating_sub(1) >> level.shift(), at >> level.shift()])
            .flat_map(|entry| [entry, entry + 1])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let group = |pair: &[u64]| {
            (pair[0], pair[1] - pair[0], self.through(pair[0] << level.shift(), level))
        };
        edges.windows(2).map(group).filter(|(_, _, rate)| *rate > 0.0).collect()
    }

    /// The entries of a level as groups, with the rates of one of `cores` cores.
    pub(super) fn groups(&self, level: Level, cores: f64) -> impl Iterator<Item = Group> {
        let group = move |(_, count, rate)| Group { count: count as f64, rate: rate / cores };
        self.entries(level).into_iter().map(group)
    }
}
