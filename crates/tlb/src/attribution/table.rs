//! TLB misses by page, object and function.

use std::collections::BTreeMap;
use std::sync::Arc;

use tierscope_hw::PageSize;

use super::objects::{Object, Objects};

/// Unit of miss counts: misses of a block of entries are divided among its pages without a
/// remainder.
pub const UNIT: u64 = crate::ptat::SHARE;

/// Misses and memory of one object.
#[derive(Clone, Debug)]
pub struct Row {
    /// The object.
    pub object: Object,
    /// Misses in units of 1/840.
    pub misses: u64,
    /// Bytes of its pages that were in use.
    pub used: u64,
    /// Number of pages of 2 MiB and of 1 GiB that would cover the pages in use, with the object's
    /// start aligned to such a page.
    pub huge: [u64; 2],
}

impl Row {
    /// Bytes by which pages of that size would exceed the memory in use.
    pub fn bloat(&self, size: PageSize) -> u64 {
        let pages = match size {
            PageSize::K4 => return 0,
            PageSize::M2 => self.huge[0],
            PageSize::G1 => self.huge[1],
        };
        (pages * size.bytes()).saturating_sub(self.used)
    }
}

/// Misses of a whole trace, by object, function and page.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// All misses, in units of 1/840.
    pub misses: u64,
    /// Objects and their misses, most misses first.
    pub rows: Vec<Row>,
    /// Functions and their misses, in units of 1/840, most misses first.
    pub functions: Vec<(Arc<str>, u64)>,
    /// Misses of each page, in units of 1/840.
    pub pages: Vec<u64>,
    /// Every page, and the object that it belongs to.
    pub owners: Vec<Owned>,
}

/// A page, its misses in units of 1/840, and the object that it belongs to.
#[derive(Clone, Debug)]
pub struct Owned {
    /// The page.
    pub place: Place,
    /// Its misses, in units of 1/840.
    pub misses: u64,
    /// Name of the object.
    pub name: Arc<str>,
    /// First byte of the object.
    pub start: u64,
}

/// A page: process, first byte, and size in bytes.
pub type Place = (u64, u64, u64);

/// Misses by page, in units of 1/840, and by the object within the page that missed, where it is
/// known.
pub(crate) type Missed = BTreeMap<(Place, Option<usize>), u64>;

/// Sums misses into a table; objects with the most misses are first.
pub(crate) fn table(
    objects: &mut Objects,
    missed: &Missed,
    functions: BTreeMap<Arc<str>, u64>,
) -> Table {
    let strays = missed.keys().filter(|(_, object)| object.is_none());
    objects.cluster(strays.map(|((pid, start, _), _)| (*pid, *start)).collect());
    let mut rows: BTreeMap<usize, (Row, [u64; 2])> = BTreeMap::new();
    let mut owners: Vec<Owned> = Vec::new();
    let mut pages: Vec<(Place, u64)> = Vec::new();
    // Largest count of one object within the current page: that object becomes the page's owner.
    let mut most = 0;
    for ((place, object), misses) in missed {
        let (pid, start, bytes) = *place;
        let Some(at) = object.or_else(|| objects.find(pid, start)) else { continue };
        let object = &objects.list[at];
        let owned = || Owned {
            place: *place,
            misses: *misses,
            name: Arc::clone(&object.name),
            start: object.start,
        };
        match (pages.last_mut(), owners.last_mut()) {
            (Some((last, sum)), Some(owner)) if *last == *place => {
                *sum += misses;
                if *misses > most {
                    (*owner, most) = (owned(), *misses);
                }
                owner.misses = *sum;
            }
            _ => {
                pages.push((*place, *misses));
                owners.push(owned());
                most = *misses;
            }
        }
        let none = || Row { object: object.clone(), misses: 0, used: 0, huge: [0; 2] };
        let (row, last) = rows.entry(at).or_insert_with(|| (none(), [u64::MAX; 2]));
        row.misses += misses;
        row.used += bytes;
        // Scattered allocations stay at their addresses; any other object may be moved to the start
        // of a larger page.
        let from = if object.allocated.is_some() { 0 } else { object.start };
        let offset = start.saturating_sub(from);
        for ((last, count), size) in last.iter_mut().zip(&mut row.huge).zip(LARGER) {
            // Pages are visited in ascending order.
            if *last != offset / size.bytes() {
                *last = offset / size.bytes();
                *count += 1;
            }
        }
    }
    let mut rows: Vec<Row> = rows.into_values().map(|(row, _)| row).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.misses), row.object.start));
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by_key(|(_, misses)| std::cmp::Reverse(*misses));
    let all = missed.values().sum();
    let pages = pages.into_iter().map(|(_, misses)| misses).filter(|misses| *misses > 0).collect();
    Table { misses: all, rows, functions, pages, owners }
}

/// Larger page sizes that objects are tried on.
pub(crate) const LARGER: [PageSize; 2] = [PageSize::M2, PageSize::G1];
