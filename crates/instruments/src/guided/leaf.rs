//! The leaf's word: which pages of a hot 2 MiB entry were really touched.
//!
//! An upper-level bit says that at least one of 512 pages was accessed. A leaf check clears the
//! 512 leaves, waits, and reads them: the pages touched meanwhile. Two cases look alike from above
//! and must be told apart here:
//!
//! - *dense or repeated*: the same pages are touched each time. They are hot, their neighbours are
//!   not (a needle, the edge of a hot range);
//! - *diffuse*: other pages each time, since accesses spread over more pages than are touched in
//!   one wait. Then all of them are hot alike, and the untouched ones are gaps of chance.

use std::ops::Range as Span;

/// Leaves beneath an entry of level 2.
pub(super) const LEAVES: usize = 512;

/// Touched leaves, a bit each.
pub(super) type Touched = [u64; LEAVES / 64];

/// Share of the touched leaves that comes back in the next check if they are always the same
/// ones.
const REPEATS: f64 = 0.8;

/// Density from which uniform accesses would repeat that well too: then gaps are short, and what
/// they say is enough.
const DENSE: f64 = 0.5;

/// Uniform accesses leave a longer gap anywhere in an entry once in a thousand checks.
const UNLIKELY: f64 = 1e-3 / LEAVES as f64;

/// What checks of one entry have shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Leaves {
    last: Touched,
    before: Touched,
    /// What both say; thousands of entries are drawn in every window, few are checked.
    hot: Vec<Span<usize>>,
    /// Checks so far.
    pub(super) checks: u32,
    /// Hot leaves, counted.
    hot_count: usize,
    /// The table's window in which the last check ended.
    pub(super) checked_in: u32,
}

impl Leaves {
    /// Takes the outcome of a check in a window of the table.
    pub(super) fn note(&mut self, touched: Touched, window: u32) {
        self.before = self.last;
        self.last = touched;
        self.checks = self.checks.saturating_add(1);
        self.checked_in = window;
        self.hot = self.conclude();
        self.hot_count = self.hot.iter().map(Span::len).sum();
    }

    /// The hot leaves, as disjoint ascending spans of 0..512.
    pub(super) fn hot_spans(&self) -> &[Span<usize>] {
        &self.hot
    }

    fn conclude(&self) -> Vec<Span<usize>> {
        let touched = count(&self.last);
        if touched == 0 {
            return Vec::new();
        }
        if self.repeats() {
            return spans(&self.last, 0);
        }
        let chance = chance_gap(&self.last);
        let mut hot = spans(&self.last, chance);
        // Nothing tells whether heat ends at the edge or a gap of chance lies there.
        if let Some(first) = hot.first_mut().filter(|first| first.start <= chance) {
            first.start = 0;
        }
        if let Some(last) = hot.last_mut().filter(|last| LEAVES - last.end <= chance) {
            last.end = LEAVES;
        }
        hot
    }

    /// Whether the same leaves were touched in the last two checks.
    fn repeats(&self) -> bool {
        let both: u32 = self.last.iter().zip(&self.before).map(|(a, b)| (a & b).count_ones()).sum();
        let most = count(&self.last).max(count(&self.before));
        let sparse = density(&self.last) < DENSE;
        sparse && self.checks > 1 && f64::from(both) >= REPEATS * f64::from(most)
    }

    /// Whether any leaf is hot.
    pub(super) fn is_touched(&self) -> bool {
        self.hot_count > 0
    }

    /// Whether nearly all leaves are hot.
    pub(super) fn is_whole(&self) -> bool {
        self.hot_count * 8 >= LEAVES * 7
    }
}

fn count(touched: &Touched) -> u32 {
    touched.iter().map(|word| word.count_ones()).sum()
}

/// Touched leaves, ascending.
fn leaves(touched: &Touched) -> impl Iterator<Item = usize> + '_ {
    touched.iter().enumerate().flat_map(|(index, word)| {
        let some = |word: u64| (word != 0).then_some(word);
        let rest = std::iter::successors(some(*word), move |word| some(word & (word - 1)));
        rest.map(move |word| index * 64 + word.trailing_zeros() as usize)
    })
}

/// Share of touched leaves from the first touched one to the last.
fn density(touched: &Touched) -> f64 {
    match (leaves(touched).next(), leaves(touched).last()) {
        (Some(first), Some(last)) => f64::from(count(touched)) / (last + 1 - first) as f64,
        _ => 0.0,
    }
}

/// The longest run of untouched leaves that chance explains: uniform accesses that touch a share
/// p of the leaves leave a gap of g with probability (1-p)^g.
fn chance_gap(touched: &Touched) -> usize {
    let share = density(touched);
    if share >= 1.0 {
        return 0;
    }
    ((UNLIKELY.ln() / (1.0 - share).ln()) as usize).min(LEAVES)
}

/// Runs of touched leaves, joined over gaps of up to `gap`.
fn spans(touched: &Touched, gap: usize) -> Vec<Span<usize>> {
    let mut spans: Vec<Span<usize>> = Vec::new();
    for leaf in leaves(touched) {
        match spans.last_mut() {
            Some(span) if leaf - span.end <= gap => span.end = leaf + 1,
            _ => spans.push(leaf..leaf + 1),
        }
    }
    spans
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // one span is what many cases expect
mod tests {
    use super::*;

    fn touched(leaves: impl IntoIterator<Item = usize>) -> Touched {
        let mut bits = Touched::default();
        leaves.into_iter().for_each(|leaf| bits[leaf / 64] |= 1 << (leaf % 64));
        bits
    }

    fn checked(checks: &[Touched]) -> Vec<Span<usize>> {
        let mut leaves = Leaves::default();
        checks.iter().for_each(|check| leaves.note(*check, 0));
        leaves.hot_spans().to_vec()
    }

    #[test]
    fn a_needle_is_one_page() {
        assert_eq!(checked(&[touched([77])]), [77..78]);
        assert_eq!(checked(&[touched([77]), touched([77])]), [77..78]);
    }

    #[test]
    fn a_dense_edge_is_exact() {
        assert_eq!(checked(&[touched(300..512)]), [300..512]);
    }

    // Every fifth page: a gap of 59 has a chance of 0.8^59 = 0.001 / 512, so gaps of 4 are chance,
    // and so is what is left at the edges.
    #[test]
    fn diffuse_heat_fills_its_gaps() {
        assert_eq!(checked(&[touched((3..512).step_by(5))]), [0..512]);
    }

    #[test]
    fn the_same_sparse_pages_twice_are_just_these_pages() {
        let pages = touched([10, 400]);
        assert_eq!(checked(&[pages, pages]), [10..11, 400..401]);
    }

    #[test]
    fn untouched_is_not_hot() {
        assert_eq!(checked(&[touched([1, 2]), touched([])]), []);
    }
}
