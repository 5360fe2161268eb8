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

/// Makes a table of misses, in 1/840, by page, and of which object each page is. Objects with most misses come first.
pub(super) fn table(
    mut objects: Objects,
    pages: &BTreeMap<Place, u64>,
    of: &HashMap<Place, usize>,
    functions: BTreeMap<Arc<str>, u64>,
) -> Table {
    let strays = pages.keys().filter(|place| !of.contains_key(*place));
    objects.cluster(strays.map(|(pid, start, _)| (*pid, *start)).collect());
    let mut rows: BTreeMap<usize, (Row, u64, u64)> = BTreeMap::new();
    let mut owners = Vec::new();
    for (place, misses) in pages {
        let (pid, start, bytes) = *place;
        let at = of.get(place).copied().or_else(|| objects.find(pid, start));
        let Some(at) = at else { continue };
        let object = &objects.list[at];
        owners.push(Owned {
            place: *place,
            misses: *misses,
            name: Arc::clone(&object.name),
            start: object.start,
        });
        let none = || Row { object: object.clone(), misses: 0, used: 0, huge: [0; 2] };
        let (row, last_2m, last_1g) =
            rows.entry(at).or_insert_with(|| (none(), u64::MAX, u64::MAX));
        row.misses += misses;
        row.used += bytes;
        let offset = start.saturating_sub(object.start);
        let [huge_2m, huge_1g] = &mut row.huge;
        for (last, count, size) in
            [(last_2m, huge_2m, PageSize::M2.bytes()), (last_1g, huge_1g, PageSize::G1.bytes())]
        {
            // Pages come in ascending order.
            if *last != offset / size {
                *last = offset / size;
                *count += 1;
            }
        }
    }
    let mut rows: Vec<Row> = rows.into_values().map(|(row, ..)| row).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.misses), row.object.start));
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by_key(|(_, misses)| std::cmp::Reverse(*misses));
    let all = pages.values().copied().filter(|misses| *misses > 0);
    Table { misses: pages.values().sum(), rows, functions, pages: all.collect(), owners }
}

/// Runs accesses through a machine's MMUs, and keeps who missed.
pub(super) struct Baseline {
    pub(super) model: Model,
    size: PageSize,
    objects: Objects,
    pages: BTreeMap<Place, u64>,
    of: HashMap<Place, usize>,
    functions: BTreeMap<Arc<str>, u64>,
}

impl Baseline {
    pub(super) fn new(machine: &Machine, size: PageSize) -> Result<Self> {
        Ok(Self {
            model: Model::new(machine, None)?,
            size,
            objects: Objects::default(),
            pages: BTreeMap::new(),
            of: HashMap::new(),
            functions: BTreeMap::new(),
        })
    }

    pub(super) fn counts(&self) -> Counts {
        self.model.counts
    }

    pub(super) fn table(self) -> Table {
        table(self.objects, &self.pages, &self.of, self.functions)
    }

    fn missed(&mut self, seen: Seen) {
        let bytes = self.size.bytes();
        let place = (seen.pid, seen.address & !(bytes - 1), bytes);
        *self.pages.entry(place).or_default() += UNIT;
        if let Some(at) = self.objects.find(seen.pid, seen.address) {
            self.of.insert(place, at);
        }
        let Some(from) = seen.from else { return };
        let name = match self.objects.find(seen.pid, from) {
            Some(at) => Arc::clone(&self.objects.list[at].name),
            None => format!("code near {:#x}", from & !0xffff).into(),
        };
        *self.functions.entry(name).or_default() += UNIT;
    }
}

impl Listener for Baseline {
    fn event(&mut self, event: &Event) {
        self.objects.event(event);
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

/// Runs accesses through MMUs where some objects lie on larger pages: what each of them misses then.
pub(super) struct Variant {
    model: Model,
    size: PageSize,
    /// Objects on larger pages, by process and first byte: end, place in `misses`, where they are put.
    chosen: BTreeMap<(u64, u64), (u64, usize, u64)>,
    pub(super) misses: Vec<u64>,
}

impl Variant {
    pub(super) fn new(machine: &Machine, size: PageSize, objects: &[&Object]) -> Result<Self> {
        let mut chosen = BTreeMap::new();
        let mut next = APART;
        for (at, object) in objects.iter().enumerate() {
            chosen.insert((object.pid, object.start), (object.end, at, next));
            next += (object.end - object.start).next_multiple_of(GRAIN);
        }
        let (model, misses) = (Model::new(machine, None)?, vec![0; objects.len()]);
        Ok(Self { model, size, chosen, misses })
    }

    /// All walks.
    pub(super) fn walks(&self) -> u64 {
        self.model.counts.walks
    }

    /// Whether the address is in an object on larger pages: which, and where it is put.
    fn chosen(&self, pid: u64, address: u64) -> Option<(usize, u64)> {
        let (key, (end, at, put)) = self.chosen.range((pid, 0)..=(pid, address)).next_back()?;
        (address < *end).then(|| (*at, put + (address - key.1)))
    }

    /// An access of a thread of a process, wherever it goes.
    #[inline]
    pub(super) fn touch(&mut self, who: (u32, u64), address: u64, access: Access) {
        match self.chosen(who.1, address) {
            Some((at, moved)) => {
                let walked = self.model.access(who, moved, access, self.size);
                self.misses[at] += u64::from(walked);
            }
            None => _ = self.model.access(who, address, access, PageSize::K4),
        }
    }
}

impl Listener for Variant {
    fn event(&mut self, _: &Event) {}

    #[inline]
    fn access(&mut self, seen: Seen) {
        self.touch((seen.thread, seen.pid), seen.address, seen.access);
    }
}

/// Several that hear the same.
pub(super) struct All<T>(pub(super) Vec<T>);

impl<T: Listener> Listener for All<T> {
    fn event(&mut self, event: &Event) {
        self.0.iter_mut().for_each(|listener| listener.event(event));
    }

    fn access(&mut self, seen: Seen) {
        self.0.iter_mut().for_each(|listener| listener.access(seen));
    }
}
