//! The objects that addresses belong to: mappings, named symbols within them, and heap allocations,
//! grouped by call site. Their names are [plain], whatever the trace holds.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use tierscope_core::names::plain;
use tierscope_core::{Backing, Result};
use tierscope_trace::{Batch, Event, Options, read_all};

/// Without known mappings, addresses further apart than this belong to different objects.
const GAP: u64 = 16 << 20;

/// A range of memory with a name, or all allocations of one call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its process.
    pub pid: u64,
    /// Its name.
    pub name: Arc<str>,
    /// First byte.
    pub start: u64,
    /// One past its last byte, at its largest extent.
    pub end: u64,
    /// For the allocations of a call site: their number, and their bytes.
    pub allocated: Option<(u64, u64)>,
}

/// All objects of a trace, and the current ranges of each.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub(crate) list: Vec<Object>,
    /// By process and first byte: end of the range, index into the list.
    maps: BTreeMap<(u64, u64), (u64, usize)>,
    symbols: BTreeMap<(u64, u64), (u64, usize)>,
    allocations: BTreeMap<(u64, u64), (u64, usize)>,
    /// Indices into the list: of mappings and symbols by process, first byte and name; of call
    /// sites by process and name.
    known: HashMap<(u64, u64, Arc<str>), usize>,
    call_sites: HashMap<(u64, Arc<str>), usize>,
    /// Clusters of addresses that belong to no known object.
    clusters: BTreeMap<(u64, u64), (u64, usize)>,
}

impl Objects {
    /// Mappings of a capture, by its file of names; none if there is no such file. Unmapped memory
    /// keeps its name.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn of_names(path: &Path) -> Result<Self> {
        let mut objects = Self::default();
        if !path.is_file() {
            return Ok(objects);
        }
        let mut batch = Batch::default();
        read_all(&mut *tierscope_trace::open(path, Options::default())?.source, &mut batch)?;
        let events = batch.events.iter().map(|(_, event)| event);
        events
            .filter(|event| !matches!(event, Event::Unmap { .. }))
            .for_each(|event| objects.event(event));
        Ok(objects)
    }

    /// Applies a map, unmap or symbol event.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Map { pid, start, bytes, name, backing, .. } => {
                let end = start.saturating_add(*bytes);
                cut(&mut self.maps, *pid, *start, end);
                let at = self.mapped(*pid, *start, end, &called(name, *backing));
                self.maps.insert((*pid, *start), (end, at));
            }
            Event::Unmap { pid, start, bytes, .. } => {
                let end = start.saturating_add(*bytes);
                cut(&mut self.maps, *pid, *start, end);
                cut(&mut self.allocations, *pid, *start, end);
            }
            Event::Symbol { pid, start, bytes, name } => {
                let end = start.saturating_add(*bytes);
                let at = self.add(*pid, *start, end, &shown(name));
                cut(&mut self.symbols, *pid, *start, end);
                self.symbols.insert((*pid, *start), (end, at));
            }
            // These events carry no pid; the listener resolves it from the thread.
            Event::Thread { .. } | Event::Given { .. } => {}
        }
    }

    /// Records an allocation by a call site. The range stays with that call site until it is
    /// allocated again, or unmapped.
    pub(crate) fn allocated(&mut self, pid: u64, start: u64, bytes: u64, site: &Arc<str>) {
        let end = start.saturating_add(bytes.max(1));
        let at = match self.call_sites.get(&(pid, Arc::clone(site))) {
            Some(at) => *at,
            None => {
                let name = shown(site);
                self.list.push(Object { pid, name, start, end, allocated: Some((0, 0)) });
                self.call_sites.insert((pid, Arc::clone(site)), self.list.len() - 1);
                self.list.len() - 1
            }
        };
        let object = &mut self.list[at];
        (object.start, object.end) = (object.start.min(start), object.end.max(end));
        let (times, sum) = object.allocated.unwrap_or_default();
        object.allocated = Some((times + 1, sum.saturating_add(bytes)));
        cut(&mut self.allocations, pid, start, end);
        self.allocations.insert((pid, start), (end, at));
    }

    /// Finds or adds the object of a mapping; a mapping that continues another one of the same name
    /// extends its object.
    fn mapped(&mut self, pid: u64, start: u64, end: u64, name: &Arc<str>) -> usize {
        let before = self.maps.range((pid, 0)..(pid, start)).next_back();
        if let Some((_, (touching, at))) = before
            && *touching == start
            && self.list[*at].name == *name
        {
            self.list[*at].end = self.list[*at].end.max(end);
            return *at;
        }
        self.add(pid, start, end, name)
    }

    fn add(&mut self, pid: u64, start: u64, end: u64, name: &Arc<str>) -> usize {
        let key = (pid, start, Arc::clone(name));
        if let Some(at) = self.known.get(&key) {
            self.list[*at].end = self.list[*at].end.max(end);
            return *at;
        }
        self.list.push(Object { pid, name: Arc::clone(name), start, end, allocated: None });
        self.known.insert(key, self.list.len() - 1);
        self.list.len() - 1
    }

    /// Index of the object that an address currently belongs to.
    pub(crate) fn find(&self, pid: u64, address: u64) -> Option<usize> {
        let in_map = |map: &BTreeMap<(u64, u64), (u64, usize)>| {
            let (_, (end, at)) = map.range((pid, 0)..=(pid, address)).next_back()?;
            (address < *end).then_some(*at)
        };
        in_map(&self.allocations)
            .or_else(|| in_map(&self.symbols))
            .or_else(|| in_map(&self.maps))
            .or_else(|| in_map(&self.clusters))
    }

    /// Index of the named function that contains a code address.
    pub(crate) fn code(&self, pid: u64, address: u64) -> Option<usize> {
        let (_, (end, at)) = self.symbols.range((pid, 0)..=(pid, address)).next_back()?;
        (address < *end).then_some(*at)
    }

    /// Groups addresses of unknown objects into clusters by distance, each of which becomes an
    /// object.
    pub(crate) fn cluster(&mut self, mut pages: Vec<(u64, u64)>) {
        pages.sort_unstable();
        let mut groups: Vec<(u64, u64, u64)> = Vec::new();
        for (pid, page) in pages {
            match groups.last_mut() {
                Some((of, _, end)) if *of == pid && page - *end <= GAP => *end = page + 4096,
                _ => groups.push((pid, page, page + 4096)),
            }
        }
        for (pid, start, end) in groups {
            let name: Arc<str> = format!("{start:#x}").into();
            let at = self.add(pid, start, end, &name);
            self.clusters.insert((pid, start), (end, at));
        }
    }

    /// State for a second pass over the same trace: its events will assign the same indices again,
    /// and the clusters are kept.
    pub(crate) fn cleared(&self) -> Self {
        Self { clusters: self.clusters.clone(), ..Self::default() }
    }
}

/// Display name of a mapping.
fn called(name: &Arc<str>, backing: Backing) -> Arc<str> {
    match (&**name, backing) {
        ("", Backing::Heap) => "[heap]".into(),
        ("", Backing::Stack) => "[stack]".into(),
        ("", _) => "[anonymous]".into(),
        _ => shown(name),
    }
}

/// The name as it is shown.
fn shown(name: &Arc<str>) -> Arc<str> {
    match plain(name) {
        Cow::Borrowed(_) => Arc::clone(name),
        Cow::Owned(shown) => shown.into(),
    }
}

/// Removes a range from a map of ranges, splitting those at its edges.
fn cut(map: &mut BTreeMap<(u64, u64), (u64, usize)>, pid: u64, start: u64, end: u64) {
    while let Some((&(_, from), &(to, at))) = map.range((pid, 0)..(pid, end)).next_back()
        && to > start
    {
        map.remove(&(pid, from));
        if from < start {
            map.insert((pid, from), (start, at));
        }
        if to > end {
            map.insert((pid, end), (to, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Time;

    fn map(start: u64, bytes: u64, name: &str) -> Event {
        let (time, pid, backing) = (Time(0), 1, Backing::Anonymous);
        Event::Map { time, pid, start, bytes, backing, writable: true, name: name.into() }
    }

    // Two adjoining mappings of one name, a symbol in the second, and its tail unmapped ("gone"):
    //   0    100       200       300
    //   heap heap      [     gone ]
    //          symbol
    #[test]
    fn addresses_belong_to_the_narrowest() {
        let mut objects = Objects::default();
        objects.event(&map(0, 100, "heap"));
        objects.event(&map(100, 200, "heap"));
        objects.event(&Event::Symbol { pid: 1, start: 110, bytes: 10, name: "table".into() });
        objects.event(&Event::Unmap { time: Time(1), pid: 1, start: 200, bytes: 100 });
        let name = |at| objects.find(1, at).map(|at| &*objects.list[at].name);
        assert_eq!([0, 109, 119, 120].map(name), ["heap", "heap", "table", "heap"].map(Some));
        assert_eq!((name(200), objects.find(2, 0)), (None, None));
        assert_eq!((objects.list[0].start, objects.list[0].end), (0, 300));
    }

    // The table allocates twice; the list allocates once, from within the table's first block.
    #[test]
    fn memory_belongs_to_its_last_allocation() {
        let mut objects = Objects::default();
        let (table, list): (Arc<str>, Arc<str>) = ("main+0x5".into(), "main+0x9".into());
        objects.event(&map(0, 1000, "[heap]"));
        objects.allocated(1, 100, 100, &table);
        objects.allocated(1, 400, 50, &table);
        objects.allocated(1, 150, 10, &list);
        let name =
            |objects: &Objects, at| objects.find(1, at).map(|at| objects.list[at].name.to_string());
        let names = [99, 100, 150, 160, 200, 449].map(|at| name(&objects, at).unwrap());
        assert_eq!(names, ["[heap]", "main+0x5", "main+0x9", "main+0x5", "[heap]", "main+0x5"]);
        let of_table = &objects.list[1];
        assert_eq!((of_table.start, of_table.end, of_table.allocated), (100, 450, Some((2, 150))));
        objects.event(&Event::Unmap { time: Time(1), pid: 1, start: 0, bytes: 1000 });
        assert_eq!(name(&objects, 100), None);
    }

    #[test]
    fn unnamed_memory_is_grouped_by_address() {
        let mut objects = Objects::default();
        objects.cluster(vec![(1, 0x5000), (1, 0x1000), (1, 0x1000 + (32 << 20)), (2, 0x1000)]);
        let names: Vec<_> = objects.list.iter().map(|o| (o.pid, &*o.name, o.end)).collect();
        let far = 0x1000 + (32 << 20);
        assert_eq!(
            names,
            [(1, "0x1000", 0x6000), (1, "0x2001000", far + 4096), (2, "0x1000", 0x2000)]
        );
    }
}
