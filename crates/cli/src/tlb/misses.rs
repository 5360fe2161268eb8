//! TLB misses by page, object and function.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tierscope_core::{Access, Result};
use tierscope_hw::{Machine, PageSize};
use tierscope_trace::Event;

use super::model::{Counts, Model};
use super::objects::{Object, Objects};
use super::source::{Listener, Seen};

/// Unit of miss counts: misses of a block of entries are divided among its pages without a
/// remainder.
pub(super) const UNIT: u64 = tierscope_tlb::ptat::SHARE;

/// Misses and memory of one object.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) object: Object,
    /// Misses in units of 1/840.
    pub(super) misses: u64,
    /// Bytes of its pages that were in use.
    pub(super) used: u64,
    /// Number of pages of 2 MiB and of 1 GiB that would cover the pages in use, with the object's
    /// start aligned to such a page.
    pub(super) huge: [u64; 2],
}

impl Row {
    /// Bytes by which pages of that size would exceed the memory in use.
    pub(super) fn bloat(&self, size: PageSize) -> u64 {
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
pub(super) struct Table {
    /// All misses, in units of 1/840.
    pub(super) misses: u64,
    pub(super) rows: Vec<Row>,
    /// Functions and their misses, in units of 1/840, most misses first.
    pub(super) functions: Vec<(Arc<str>, u64)>,
    /// Misses of each page, in units of 1/840.
    pub(super) pages: Vec<u64>,
    /// Every page, and the object that it belongs to.
    pub(super) owners: Vec<Owned>,
}

/// A page, its misses in units of 1/840, and the object that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) place: Place,
    pub(super) misses: u64,
    pub(super) name: Arc<str>,
    /// First byte of the object.
    pub(super) start: u64,
}

/// A page: process, first byte, and size in bytes.
pub(super) type Place = (u64, u64, u64);

/// Misses by page, in units of 1/840, and by the object within the page that missed, where it is
/// known.
pub(super) type Missed = BTreeMap<(Place, Option<usize>), u64>;

/// Sums misses into a table; objects with the most misses are first.
pub(super) fn table(
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
        let from = if object.given.is_some() { 0 } else { object.start };
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
pub(super) const LARGER: [PageSize; 2] = [PageSize::M2, PageSize::G1];

/// Runs accesses through a machine's MMUs, and counts misses by page, object and function.
pub(super) struct Baseline {
    pub(super) model: Model,
    size: PageSize,
    objects: Objects,
    missed: HashMap<(Place, Option<usize>), u64>,
    functions: BTreeMap<Arc<str>, u64>,
    /// The trace contains allocations with their call sites.
    pub(super) gifts: bool,
}

impl Baseline {
    pub(super) fn new(machine: &Machine, size: PageSize) -> Result<Self> {
        Ok(Self {
            model: Model::new(machine, None)?,
            size,
            objects: Objects::default(),
            missed: HashMap::new(),
            functions: BTreeMap::new(),
            gifts: false,
        })
    }

    pub(super) fn counts(&self) -> Counts {
        self.model.counts
    }

    /// The table of misses, and the objects of the trace.
    pub(super) fn table(self) -> (Table, Objects) {
        let mut objects = self.objects;
        let missed = self.missed.into_iter().collect();
        (table(&mut objects, &missed, self.functions), objects)
    }

    fn missed(&mut self, seen: Seen) {
        let bytes = self.size.bytes();
        let place = (seen.pid, seen.address & !(bytes - 1), bytes);
        let object = self.objects.find(seen.pid, seen.address);
        *self.missed.entry((place, object)).or_default() += UNIT;
        let Some(from) = seen.from else { return };
        let named = self.objects.code(seen.pid, from.address);
        // An instruction outside of any known function is named by its mapping; the start address
        // of an unnamed function is not.
        let named =
            named.or_else(|| self.objects.find(seen.pid, from.address).filter(|_| !from.function));
        let name = match named {
            Some(at) => Arc::clone(&self.objects.list[at].name),
            None => format!("code near {:#x}", from.address & !0xffff).into(),
        };
        *self.functions.entry(name).or_default() += UNIT;
    }
}

impl Listener for Baseline {
    fn event(&mut self, event: &Event) {
        self.objects.event(event);
    }

    fn given(&mut self, pid: u64, start: u64, bytes: u64, site: &Arc<str>) {
        self.gifts = true;
        self.objects.given(pid, start, bytes, site);
    }

    #[inline]
    fn access(&mut self, seen: Seen) {
        let who = (seen.thread, seen.pid);
        if self.model.access(who, seen.address, seen.access, self.size) {
            self.missed(seen);
        }
    }
}

/// Base of objects that are moved to larger pages, in a part of the address space that is otherwise
/// unused.
const APART: u64 = 1 << 45;
/// Alignment of moved objects: pages of 1 GiB.
const GRAIN: u64 = 1 << 30;
/// Base of the larger pages of scattered allocations.
const SCATTERED: u64 = 1 << 46;

/// An object that is put on larger pages.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    /// Index into `misses`.
    at: usize,
    /// The object's start, and the address that it is moved to; `None` for scattered allocations.
    put: Option<(u64, u64)>,
}

/// Runs accesses through MMUs with some objects on larger pages, and counts the misses of each.
pub(super) struct Variant {
    model: Model,
    size: PageSize,
    /// By index of the object.
    chosen: HashMap<usize, Chosen>,
    /// Larger pages of scattered allocations: from object and page number to the index of the page
    /// in the scattered area.
    pages: HashMap<(usize, u64), u64>,
    pub(super) misses: Vec<u64>,
}

impl Variant {
    /// Puts the given objects, each with its index, on pages of `size`.
    pub(super) fn new<'a>(
        machine: &Machine,
        size: PageSize,
        objects: impl IntoIterator<Item = (usize, &'a Object)>,
    ) -> Result<Self> {
        let mut chosen = HashMap::new();
        let mut next = APART;
        for (at, (number, object)) in objects.into_iter().enumerate() {
            let put = object.given.is_none().then_some((object.start, next));
            if put.is_some() {
                next += (object.end - object.start).next_multiple_of(GRAIN);
            }
            chosen.insert(number, Chosen { at, put });
        }
        let (model, misses) = (Model::new(machine, None)?, vec![0; chosen.len()]);
        Ok(Self { model, size, chosen, pages: HashMap::new(), misses })
    }

    /// Page walks of all accesses, also to objects that are not on larger pages.
    pub(super) fn walks(&self) -> u64 {
        self.model.counts.walks
    }

    /// The address to which an access to this object is moved, with the object's index in `misses`;
    /// `None` if it is not on larger pages.
    fn moved(&mut self, object: usize, address: u64) -> Option<(usize, u64)> {
        let Chosen { at, put } = *self.chosen.get(&object)?;
        if let Some((start, put)) = put {
            return Some((at, put + address.wrapping_sub(start)));
        }
        let bytes = self.size.bytes();
        let new = self.pages.len() as u64;
        let page = *self.pages.entry((object, address / bytes)).or_insert(new);
        Some((at, SCATTERED + page * bytes + address % bytes))
    }

    /// An access by a thread of a process; the object, if known, decides whether it is moved.
    #[inline]
    pub(super) fn touch(
        &mut self,
        who: (u32, u64),
        address: u64,
        access: Access,
        object: Option<usize>,
    ) {
        match object.and_then(|object| self.moved(object, address)) {
            Some((at, moved)) => {
                let walked = self.model.access(who, moved, access, self.size);
                self.misses[at] += u64::from(walked);
            }
            None => _ = self.model.access(who, address, access, PageSize::K4),
        }
    }
}

/// Variants that are fed from one pass over the trace.
pub(super) struct Tried {
    objects: Objects,
    pub(super) variants: Vec<Variant>,
}

impl Tried {
    /// `known` holds the objects of the first pass over the trace.
    pub(super) fn new(known: &Objects, variants: Vec<Variant>) -> Self {
        Self { objects: known.anew(), variants }
    }
}

impl Listener for Tried {
    fn event(&mut self, event: &Event) {
        self.objects.event(event);
    }

    fn given(&mut self, pid: u64, start: u64, bytes: u64, site: &Arc<str>) {
        self.objects.given(pid, start, bytes, site);
    }

    #[inline]
    fn access(&mut self, seen: Seen) {
        let object = self.objects.find(seen.pid, seen.address);
        for variant in &mut self.variants {
            variant.touch((seen.thread, seen.pid), seen.address, seen.access, object);
        }
    }
}

/// Several listeners on one pass over a trace.
pub(super) struct All<T>(pub(super) Vec<T>);

impl<T: Listener> Listener for All<T> {
    fn event(&mut self, event: &Event) {
        self.0.iter_mut().for_each(|listener| listener.event(event));
    }

    fn given(&mut self, pid: u64, start: u64, bytes: u64, site: &Arc<str>) {
        self.0.iter_mut().for_each(|listener| listener.given(pid, start, bytes, site));
    }

    fn access(&mut self, seen: Seen) {
        self.0.iter_mut().for_each(|listener| listener.access(seen));
    }
}
