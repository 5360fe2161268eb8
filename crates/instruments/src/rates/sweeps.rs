//! Sweeps: accesses to all pages of memory, one after the other. Each sets the bit of an entry of
//! 2 MiB once, and that of each of its pages once: the pages are together up to 512 times as busy
//! as their entry appears to be.
//!
//! What the entries of a segment and the pages of some of them have shown lately is one sum of
//! evidence for the segment: entries that are swept become young together, so that each look counts
//! as one at a single page (`together.rs`).

use std::time::Duration;

use tierscope_core::Time;

use super::chain::Segment;
use super::curve::{exponentiate, normalise};
use super::grid::{CELLS, Curve, cell_of};
use super::looks::{Look, mask};
use super::table::Table;
use super::tally::MOST_OF_PAGE;
use super::together::as_one;

/// Share of the pages of an entry that are alike where accesses come in sweeps, and of such
/// entries; and cells by which other pages are less busy for certain.
const SWEPT: f64 = 0.6;
const LIKE_PAGES: f32 = 4.0;
/// Age of the looks at pages from which sweeps are inferred.
pub(super) const RECENT: Duration = Duration::from_secs(10);
/// Cells between the rate of an entry and that of each of its pages, if accesses are even.
const EVEN: usize = 22;
/// Logarithm of the factor by which sweeps, or even accesses, must be likelier than the other.
const LIKELIER: f32 = 1.1;
/// The same by which any two rates must be likelier, for an explanation to be excluded.
const EXCLUDED: f32 = 3.0;

/// Whether pages are certainly less busy than others of their entry.
pub(super) fn is_less_busy(pages: &Segment, leaves: &Table) -> bool {
    let most = leaves.segments.iter().map(|pages| pages.low).fold(f32::MIN, f32::max);
    pages.high < most - LIKE_PAGES
}

/// What some entries' pages have shown lately.
struct Known {
    /// Logarithm of the likelihood of the rate of a page.
    pages: Curve,
    /// Number of entries, of those whose pages are alike, and of the pages of these.
    entries: usize,
    alike: usize,
    of_alike: usize,
}

impl Known {
    fn of<'t>(known: impl Iterator<Item = &'t Table>, now: Time) -> Self {
        let mut sum = Self { pages: [0.0; CELLS], entries: 0, alike: 0, of_alike: 0 };
        for leaves in known.filter(|leaves| leaves.seen.is_some_and(|at| now.since(at) <= RECENT)) {
            let each = leaves.limited_rate(MOST_OF_PAGE) / leaves.span.len() as f32;
            let least = cell_of(each) - LIKE_PAGES;
            let alike = leaves.segments.iter().filter(|pages| pages.mean >= least);
            let parts: Vec<_> = alike.map(|pages| pages.entries.clone()).collect();
            let busy: usize = parts.iter().map(ExactSizeIterator::len).sum();
            sum.entries += 1;
            if (busy as f64) < SWEPT * leaves.span.len() as f64 {
                continue;
            }
            sum.alike += 1;
            sum.of_alike += leaves.span.len();
            let of_leaves = as_one(leaves.looks.all(), &parts);
            sum.pages.iter_mut().zip(&of_leaves).for_each(|(sum, new)| *sum += new);
        }
        sum
    }

    fn are_alike(&self) -> bool {
        self.alike > 0 && self.alike as f64 >= SWEPT * self.entries as f64
    }
}

/// A segment with the sum of the rates of an entry's pages, each at most [`MOST_OF_PAGE`], as those
/// of the given pages show that were looked at lately: where accesses come in sweeps, for certain
/// or maybe; and where the entries' own looks all came too late. `None` if accesses are even, or
/// pages are not alike, or there are none.
pub(super) fn by_pages<'t>(
    segment: &Segment,
    table: &Table,
    known: impl Iterator<Item = &'t Table>,
    now: Time,
) -> Option<Segment> {
    let known = Known::of(known, now);
    if !known.are_alike() || !was_young(segment, table) {
        return None;
    }
    let entries = as_one(table.looks.all(), std::slice::from_ref(&segment.entries));
    // By the rate of an entry; the first cell stands for all lower rates.
    let joint = |apart: usize| -> Curve {
        std::array::from_fn(|cell| entries[cell] + known.pages[cell.saturating_sub(apart)])
    };
    let (swept, even) = (joint(0), joint(EVEN));
    let free = most(&known.pages) + most(&entries);
    let likelier = most(&swept) - most(&even);
    let is_swept = likelier > LIKELIER && most(&swept) > free - EXCLUDED;
    // Neither: parts of an entry are swept.
    let is_more = best(&known.pages) + EVEN > best(&entries) && most(&even) < free - EXCLUDED;
    // Pages that become young together are not accessed evenly.
    let may_be = table.swept.is_some() || segment.blunt && likelier >= -LIKELIER;
    // Where no look came soon enough for an upper bound of the entries' rate, their pages decide,
    // also if accesses are even.
    let is_closer = segment.blunt && most(&even) > free - EXCLUDED;
    if !is_swept && !is_more && !may_be && !is_closer {
        return None;
    }
    let mut marginal = if is_swept { swept } else { known.pages };
    exponentiate(&mut marginal);
    normalise(&mut marginal);
    let of_page = Segment::of(segment.entries.clone(), &marginal);
    let pages_of_entry = known.of_alike as f32 / known.alike as f32;
    let sum = |cell: f32| cell.min(cell_of(MOST_OF_PAGE)) + cell_of(pages_of_entry) - cell_of(1.0);
    Some(Segment {
        low: sum(of_page.low),
        mean: sum(of_page.mean),
        high: sum(of_page.high),
        core: of_page.core.map(sum),
        ..of_page
    })
}

/// Whether most entries of a segment were young in one of the looks: otherwise nothing shows that
/// they are accessed like those of them whose pages were looked at.
fn was_young(segment: &Segment, table: &Table) -> bool {
    let of = mask(&segment.entries);
    let young = |look: &Look| look.young.iter().zip(&of).map(|(y, of)| (y & of).count_ones()).sum();
    let most = table.looks.all().iter().map(young).max().unwrap_or(0u32);
    f64::from(most) >= SWEPT * segment.entries.len() as f64
}

/// The likeliest cell.
fn best(logarithms: &Curve) -> usize {
    (0..CELLS).max_by(|a, b| logarithms[*a].total_cmp(&logarithms[*b])).unwrap_or(0)
}

/// The greatest value of a likelihood.
fn most(logarithms: &Curve) -> f32 {
    logarithms.iter().copied().fold(f32::MIN, f32::max)
}
