//! The effect of larger pages for some objects of a program.

use std::collections::HashMap;
use std::sync::Arc;

use tierscope_core::{Access, Result};
use tierscope_hw::{Machine, PageSize};
use tierscope_trace::Event;

use crate::attribution::{LARGER, Listener, Model, Object, Objects, Row, Seen, Table, UNIT};
use crate::ptat::{Block, Sink};

/// Effect of larger pages for one object or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Name of the object.
    pub object: String,
    /// Size of the larger pages.
    pub size: PageSize,
    /// Misses left over the whole trace.
    pub left: u64,
    /// Misses saved over the whole trace.
    pub saved: i64,
    /// Bytes by which larger pages exceed the memory in use.
    pub bloat: u64,
}

/// Name of the variant with all objects on larger pages.
const ALL: &str = "all objects";

fn called(row: &Row) -> String {
    row.object.name.to_string()
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
struct Variant {
    model: Model,
    size: PageSize,
    /// By index of the object.
    chosen: HashMap<usize, Chosen>,
    /// Larger pages of scattered allocations: from object and page number to the index of the page
    /// in the scattered area.
    pages: HashMap<(usize, u64), u64>,
    misses: Vec<u64>,
}

impl Variant {
    /// Puts the given objects, each with its index, on pages of `size`.
    fn new<'a>(
        machine: &Machine,
        size: PageSize,
        objects: impl IntoIterator<Item = (usize, &'a Object)>,
    ) -> Result<Self> {
        let mut chosen = HashMap::new();
        let mut next = APART;
        for (at, (number, object)) in objects.into_iter().enumerate() {
            let put = object.allocated.is_none().then_some((object.start, next));
            if put.is_some() {
                next += (object.end - object.start).next_multiple_of(GRAIN);
            }
            chosen.insert(number, Chosen { at, put });
        }
        let (model, misses) = (Model::new(machine, None)?, vec![0; chosen.len()]);
        Ok(Self { model, size, chosen, pages: HashMap::new(), misses })
    }

    /// Page walks of all accesses, also to objects that are not on larger pages.
    fn walks(&self) -> u64 {
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
    fn touch(&mut self, who: (u32, u64), address: u64, access: Access, object: Option<usize>) {
        match object.and_then(|object| self.moved(object, address)) {
            Some((at, moved)) => {
                let walked = self.model.access(who, moved, access, self.size);
                self.misses[at] += u64::from(walked);
            }
            None => _ = self.model.access(who, address, access, PageSize::K4),
        }
    }
}

/// Name of an object, size of its pages, and bytes that they need in addition.
type Tried = (String, PageSize, u64);

/// Variants that are fed from one more pass over the trace.
pub struct Trial {
    objects: Objects,
    variants: Vec<Variant>,
    /// What each variant puts on larger pages.
    tried: Vec<Tried>,
}

impl Trial {
    /// Tries the objects with the most misses on larger pages: each of the first `top` alone, and
    /// all objects together. `objects` are those of the first pass over the trace, and `table` has
    /// its misses.
    ///
    /// # Errors
    /// The machine's configuration is invalid.
    pub fn new(machine: &Machine, objects: &Objects, table: &Table, top: usize) -> Result<Self> {
        let rows = &table.rows;
        let mut all: Vec<(usize, &Object)> = Vec::new();
        for row in rows {
            // A call site may have the name and start of the mapping that it allocates in.
            let identity = |of: &Object| (of.pid, of.start, of.allocated.is_some());
            let same = |object: &Object| {
                identity(object) == identity(&row.object) && object.name == row.object.name
            };
            all.extend(objects.list.iter().position(same).map(|number| (number, &row.object)));
        }
        let (mut variants, mut tried) = (Vec::new(), Vec::new());
        for size in LARGER {
            for (row, object) in rows.iter().zip(&all).take(top) {
                variants.push(Variant::new(machine, size, [*object])?);
                tried.push((called(row), size, row.bloat(size)));
            }
            if rows.len() > 1 {
                variants.push(Variant::new(machine, size, all.iter().copied())?);
                tried.push((ALL.into(), size, rows.iter().map(|row| row.bloat(size)).sum()));
            }
        }
        Ok(Self { objects: objects.cleared(), variants, tried })
    }

    /// The effect of each variant, compared with a baseline of `walks` misses.
    #[must_use]
    pub fn advice(self, walks: u64) -> Vec<Advice> {
        let advice = |(variant, (object, size, bloat)): (&Variant, Tried)| {
            let left = variant.walks();
            Advice { object, size, left, saved: walks as i64 - left as i64, bloat }
        };
        self.variants.iter().zip(self.tried).map(advice).collect()
    }
}

impl Listener for Trial {
    fn event(&mut self, event: &Event) {
        self.objects.event(event);
    }

    fn allocated(&mut self, pid: u64, start: u64, bytes: u64, site: &Arc<str>) {
        self.objects.allocated(pid, start, bytes, site);
    }

    #[inline]
    fn access(&mut self, seen: Seen) {
        let object = self.objects.find(seen.pid, seen.address);
        for variant in &mut self.variants {
            variant.touch((seen.thread, seen.pid), seen.address, seen.access, object);
        }
    }
}

/// Estimate for a capture: sends its misses through MMUs with larger pages. It sees only accesses
/// that the machine's own MMUs missed.
pub struct Estimate {
    objects: Objects,
    variants: [Variant; 2],
}

impl Estimate {
    /// Puts every known object on larger pages.
    ///
    /// # Errors
    /// The machine's configuration is invalid.
    pub fn new(machine: &Machine, objects: &Objects) -> Result<Self> {
        let of_size = |size| Variant::new(machine, size, objects.list.iter().enumerate());
        let [first, second] = LARGER;
        Ok(Self { objects: objects.clone(), variants: [of_size(first)?, of_size(second)?] })
    }

    /// The effect for each of the first `top` objects of a table.
    pub(crate) fn advice(&self, table: &Table, top: usize) -> Vec<Advice> {
        let mut advice = Vec::new();
        for (variant, size) in self.variants.iter().zip(LARGER) {
            for row in table.rows.iter().take(top) {
                let known = |object: &Object| {
                    (object.pid, object.start) == (row.object.pid, row.object.start)
                };
                let Some(at) = self.objects.list.iter().position(known) else { continue };
                let (left, object, bloat) = (variant.misses[at], called(row), row.bloat(size));
                let saved = (row.misses / UNIT) as i64 - left as i64;
                advice.push(Advice { object, size, left, saved, bloat });
            }
        }
        advice
    }
}

impl Sink for Estimate {
    fn miss(&mut self, _: u64, block: &Block) {
        // All pages of a block are in the same larger page.
        let Some(page) = block.pages().next() else { return };
        let object = self.objects.find(page.pid.into(), page.start());
        for variant in &mut self.variants {
            variant.touch((0, page.pid.into()), page.start(), Access::Load, object);
        }
    }
}
