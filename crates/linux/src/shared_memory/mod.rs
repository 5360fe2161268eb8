//! Memory that several processes of the target share: each is listed once.
//!
//! A file or shared memory that two or more processes map is listed once, in the shared space,
//! whose addresses are no process's. What a process maps of it is a view of that space. An object
//! stays there as long as any process maps it, so that its addresses do not change when the
//! second-last user ends. Anonymous memory that processes inherited by fork is a view as well, of
//! the space of one of them.
//!
//! | file | contents |
//! | --- | --- |
//! | `slots.rs` | addresses of objects |
//! | `forks.rs` | memory inherited by fork |
//! | `translation.rs` | from the shared space to processes, and back |
//!
//! Copies that a process made of pages of a private mapping before it was write-protected
//! (relocations of libraries) are taken for the object's memory: some pages a library.

mod forks;
mod slots;
mod translation;

use std::collections::BTreeMap;
use std::sync::Arc;

use tierscope_core::{
    Addr, Mapping, Mappings, Object, Range, RangeSet, SharedView, Space, SpaceId,
};

use crate::proc::ProcessMaps;
use forks::{Forks, Relatives};
use slots::{Part, Slots, Use};
pub(crate) use translation::{Piece, Translation};

/// Name of the shared space.
const NAME: &str = "shared memory";

/// Identity of an object. Ids of System V segments are numbers of their own, on the device of other
/// shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    device: u64,
    inode: u64,
    system_v: bool,
}

impl Key {
    fn of(object: &Object, name: &str) -> Self {
        let system_v = name.starts_with("/SYSV");
        Self { device: object.device, inode: object.inode, system_v }
    }
}

/// The objects that are in the shared space, with their addresses.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    slots: Slots<Key>,
    forks: Forks,
    /// The shared space, from the first shared object on.
    space: Option<SpaceId>,
}

/// The mappings of all processes, separated.
#[derive(Debug, Default, PartialEq, Eq)]
struct Separated {
    /// Mappings of the processes' own memory, in the order of the processes.
    private: Vec<Mapping>,
    /// Mappings of the shared space, sorted by range, disjoint.
    shared: Vec<Mapping>,
    /// Parts of the processes' spaces that map memory of the shared space, in their order.
    views: Vec<SharedView>,
}

/// A mapping's part of an object, in the shared space.
struct Segment {
    start: u64,
    end: u64,
    key: Key,
    mapping: Mapping,
}

impl SharedMemory {
    /// The processes that inherited memory by fork, now or before.
    pub(crate) fn heirs(&self) -> impl Iterator<Item = SpaceId> {
        self.forks.heirs()
    }

    /// Lists the mappings of the processes in `out`, which has their spaces already; mappings of
    /// shared memory in the shared space, whose id is `next` when there is the first one. What was
    /// inherited by fork is listed once, apart from `copied`.
    pub(crate) fn list(
        &mut self,
        processes: Vec<ProcessMaps>,
        copied: &RangeSet,
        next: &mut u32,
        out: &mut Mappings,
    ) {
        let relatives = Relatives::of(&processes);
        self.list_objects(processes, next, out);
        self.forks.list(&relatives, copied, out);
    }

    fn list_objects(&mut self, processes: Vec<ProcessMaps>, next: &mut u32, out: &mut Mappings) {
        if !self.update(&processes) {
            out.mappings = all_mappings(processes);
            return;
        }
        let shared = *self.space.get_or_insert_with(|| {
            *next += 1;
            SpaceId(*next - 1)
        });
        let parts = self.separate(shared, processes);
        let at = out.spaces.partition_point(|of| of.id < shared);
        out.spaces.insert(at, Space { id: shared, name: NAME.into() });
        out.mappings = parts.private;
        let at = out.mappings.partition_point(|mapping| mapping.range.space < shared);
        out.mappings.splice(at..at, parts.shared);
        (out.shared, out.views) = (Some(shared), parts.views);
    }

    /// Decides which objects are shared, and gives new ones an address. Returns whether any is.
    fn update(&mut self, processes: &[ProcessMaps]) -> bool {
        if processes.len() < 2 && self.slots.is_empty() {
            return false;
        }
        let mut uses: BTreeMap<Key, Vec<Use>> = BTreeMap::new();
        for mapping in processes.iter().flat_map(shareable) {
            if let Some((key, used)) = use_of(mapping) {
                uses.entry(key).or_default().push(used);
            }
        }
        uses.retain(|key, uses| {
            let first = uses.first().map(|used| used.space);
            self.slots.has(key) || uses.iter().any(|used| Some(used.space) != first)
        });
        self.slots.update(&uses);
        !self.slots.is_empty()
    }

    /// Separates shared from other memory; `shared` is the id of the shared space.
    fn separate(&self, shared: SpaceId, processes: Vec<ProcessMaps>) -> Separated {
        let mut out = Separated::default();
        let mut segments = Vec::new();
        for maps in processes {
            let mut shareable = maps.shareable.into_iter().peekable();
            for (index, mapping) in (0..).zip(maps.mappings) {
                let can_be = shareable.next_if_eq(&index).is_some();
                match use_of(&mapping).filter(|(key, _)| can_be && self.slots.has(key)) {
                    Some((key, _)) => self.cut(shared, key, mapping, &mut segments, &mut out),
                    None => out.private.push(mapping),
                }
            }
        }
        out.shared = united(shared, segments);
        out
    }

    /// Cuts a mapping at the ends of its object's parts. What has no address remains private.
    fn cut(
        &self,
        shared: SpaceId,
        key: Key,
        mapping: Mapping,
        segments: &mut Vec<Segment>,
        out: &mut Separated,
    ) {
        let Some((_, used)) = use_of(&mapping) else { return };
        let piece = |from: u64, to: u64| {
            let start = used.address + (from - used.start);
            let range = Range::new(used.space, start, start + (to - from));
            let object = mapping.object.map(|object| Object { offset: from, ..object });
            Mapping { range, object, ..mapping.clone() }
        };
        let mut at = used.start;
        for Part { start, end, address } in self.slots.parts(&key, used.start, used.end) {
            if at < start {
                out.private.push(piece(at, start));
            }
            let (from, to) = (start.max(used.start), end.min(used.end));
            let (mapping, memory) = (piece(from, to), address + (from - start));
            add_view(&mut out.views, &mapping, Addr { space: shared, at: memory });
            segments.push(Segment { start: memory, end: memory + (to - from), key, mapping });
            at = to;
        }
        if at < used.end {
            out.private.push(piece(at, used.end));
        }
    }
}

/// All mappings of all processes; no copy is made for a single one, as most targets are.
fn all_mappings(processes: Vec<ProcessMaps>) -> Vec<Mapping> {
    let lists = processes.into_iter().map(|maps| maps.mappings);
    lists
        .reduce(|mut all, mut more| {
            all.append(&mut more);
            all
        })
        .unwrap_or_default()
}

fn shareable(maps: &ProcessMaps) -> impl Iterator<Item = &Mapping> {
    maps.shareable.iter().filter_map(|index| maps.mappings.get(*index as usize))
}

/// What a mapping uses of its object; `None` if it has none, or if its last offset is no number.
fn use_of(mapping: &Mapping) -> Option<(Key, Use)> {
    let object = mapping.object.as_ref()?;
    let end = object.offset.checked_add(mapping.range.bytes())?;
    let Range { space, start: address, .. } = mapping.range;
    Some((Key::of(object, &mapping.name), Use { space, start: object.offset, end, address }))
}

/// Appends a view; the mappings of a library's sections are one.
fn add_view(views: &mut Vec<SharedView>, mapping: &Mapping, memory: Addr) {
    if let Some(last) = views.last_mut()
        && last.range.touches(&mapping.range)
        && last.memory.at + last.range.bytes() == memory.at
        && last.name == mapping.name
    {
        last.range.end = mapping.range.end;
        return;
    }
    views.push(SharedView { range: mapping.range, memory, name: Arc::clone(&mapping.name) });
}

/// The mappings of the shared space: each range of an object that a process maps, once. Writable is
/// what any process may write to.
fn united(shared: SpaceId, mut segments: Vec<Segment>) -> Vec<Mapping> {
    segments.sort_by_key(|segment| (segment.start, segment.end));
    let mut out: Vec<Mapping> = Vec::new();
    let mut last_key = None;
    for Segment { start, end, key, mapping } in segments {
        // Parts of one object may be neighbours without being continuous.
        let continues = |last: &Mapping| {
            let offset = |mapping: &Mapping| mapping.object.map_or(0, |object| object.offset);
            let there = start - last.range.start;
            start <= last.range.end && offset(&mapping).wrapping_sub(offset(last)) == there
        };
        match out.last_mut() {
            Some(last) if last_key == Some(key) && continues(last) => {
                last.range.end = last.range.end.max(end);
                last.writable |= mapping.writable;
            }
            _ => out.push(Mapping { range: Range::new(shared, start, end), ..mapping }),
        }
        last_key = Some(key);
    }
    out
}

#[cfg(test)]
pub(crate) mod tests;
