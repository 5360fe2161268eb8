//! Misses by page, object and function.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tierscope_core::{Access, Result};
use tierscope_hw::{Machine, PageSize};
use tierscope_trace::Event;

use super::model::{Counts, Model};
use super::objects::{Object, Objects};
use super::source::{Listener, Seen};

/// Misses are counted in parts of one: those that a block of entries shares are divided among its pages.
pub(super) const UNIT: u64 = tierscope_trace::ptat::SHARE;

/// What an object misses.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) object: Object,
    /// In 1/840.
    pub(super) misses: u64,
    /// Bytes of its pages that were in use.
    pub(super) used: u64,
    /// Pages of 2 MiB and 1 GiB that these lie in, if the object begins at one.
    pub(super) huge: [u64; 2],
}

impl Row {
    /// Bytes that pages of that size would take beyond those in use.
    pub(super) fn bloat(&self, size: PageSize) -> u64 {
        let pages = match size {
            PageSize::K4 => return 0,
            PageSize::M2 => self.huge[0],
            PageSize::G1 => self.huge[1],
        };
        (pages * size.bytes()).saturating_sub(self.used)
    }
}

/// What a trace comes to.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// In 1/840.
    pub(super) misses: u64,
    pub(super) rows: Vec<Row>,
    /// Functions and their misses, in 1/840, those with most first.
    pub(super) functions: Vec<(Arc<str>, u64)>,
    /// Misses of pages, in 1/840.
    pub(super) pages: Vec<u64>,
    /// Every page, and the object that it belongs to.
    pub(super) owners: Vec<Owned>,
}

/// A page, what it misses in 1/840, and its object.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) place: Place,
    pub(super) misses: u64,
    pub(super) name: Arc<str>,
    /// First byte of the object.
    pub(super) start: u64,
}

/// A page of a process, by its first byte, and its size.
pub(super) type Place = (u64, u64, u64);

/// Misses by page, in 1/840, and by which object of a page had them, as far as that is known.
pub(super) type Missed = BTreeMap<(Place, Option<usize>), u64>;

/// Makes a table of misses. Objects with most misses come first.
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
    // The most that an object missed of the page at hand.
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
        // What lies here and there stays where it is; anything else may begin at a larger page.
        let from = if object.given.is_some() { 0 } else { object.start };
        let offset = start.saturating_sub(from);
        for ((last, count), size) in last.iter_mut().zip(&mut row.huge).zip(LARGER) {
            // Pages come in ascending order.
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

/// Page sizes that objects may be given.
pub(super) const LARGER: [PageSize; 2] = [PageSize::M2, PageSize::G1];

/// Runs accesses through a machine's MMUs, and keeps who missed.
pub(super) struct Baseline {
    pub(super) model: Model,
    size: PageSize,
    objects: Objects,
    missed: HashMap<(Place, Option<usize>), u64>,
    functions: BTreeMap<Arc<str>, u64>,
    /// The trace told who was given memory.
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

    /// What the trace comes to, and its objects.
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
        // An instruction without a function is told by its file; a function that nobody named where it begins.
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

/// Where objects with pages of their own are put: high up, one behind another.
const APART: u64 = 1 << 45;
/// Every one begins at a page of 1 GiB.
const GRAIN: u64 = 1 << 30;
/// Where larger pages are put of objects that lie here and there.
const SCATTERED: u64 = 1 << 46;

/// An object on larger pages.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    /// Its place in `misses`.
    at: usize,
    /// Where it begins, and where it is put; none if it lies here and there.
    put: Option<(u64, u64)>,
}

/// Runs accesses through MMUs where some objects lie on larger pages: what each of them misses then.
pub(super) struct Variant {
    model: Model,
    size: PageSize,
    /// By the object's number.
    chosen: HashMap<usize, Chosen>,
    /// Larger pages of objects that lie here and there: by object and number of the page, which of them it is.
    pages: HashMap<(usize, u64), u64>,
    pub(super) misses: Vec<u64>,
}

impl Variant {
    /// Objects by their numbers.
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

    /// All walks.
    pub(super) fn walks(&self) -> u64 {
        self.model.counts.walks
    }

    /// Where an address of an object is put, if that is on larger pages.
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

    /// An access of a thread of a process to an object, wherever it goes.
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

/// Variants that hear the same trace.
pub(super) struct Tried {
    objects: Objects,
    pub(super) variants: Vec<Variant>,
}

impl Tried {
    /// `known` is what a first look at the trace left.
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

/// Several that hear the same.
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
