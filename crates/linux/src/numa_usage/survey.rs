//! Finds out which memory of the target is resident, a limited amount at a time: one process after
//! the other, and of each its mappings. What several processes map is found by uniting their pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{Addr, Backing, Extent, Mappings, Range, SpaceId};

use super::extents::{ExtentList, of_runs};
use super::page_runs::{PageMap, PageRun};
use super::page_set::PageSet;
use super::{Target, is_still};
use crate::clock;
use crate::proc::Proc;
use crate::space_owners::Owner;

/// Bytes that are examined at once: the kernel holds the mmap lock for some milliseconds at most,
/// for 2^18 pages.
const PIECE: u64 = 1 << 30;

/// What a survey found out about a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Surveyed {
    pub(super) extents: Arc<[Extent]>,
    /// Resident bytes of the process that are listed in the shared space.
    pub(super) viewed: u64,
}

/// A part of a process's memory to examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    range: Range,
    /// Address from which on it is still to examine.
    at: u64,
    /// Address of its first byte in the shared space, if it is listed there.
    memory: Option<Addr>,
}

/// A survey of a target: its processes and mappings as they were when it began.
pub(super) struct Survey {
    proc: Proc,
    mappings: Arc<Mappings>,
    /// Processes still to examine, the next one last.
    owners: Vec<Owner>,
    current: Option<Process>,
    /// Pages of the shared space that any process has in memory.
    shared: PageSet,
    found: BTreeMap<SpaceId, Surveyed>,
}

/// A process that is being examined.
struct Process {
    owner: Owner,
    map: PageMap,
    /// Parts still to examine, the next one last.
    parts: Vec<Part>,
    extents: ExtentList,
    viewed: u64,
}

impl Survey {
    /// Begins a survey.
    pub(super) fn of(proc: Proc, target: &Target) -> Self {
        let mut owners = target.owners.clone();
        owners.reverse();
        Self {
            proc,
            mappings: Arc::clone(&target.mappings),
            owners,
            current: None,
            shared: PageSet::default(),
            found: BTreeMap::new(),
        }
    }

    /// Examines memory for about `limit` of CPU time; returns whether the survey is complete.
    pub(super) fn step(&mut self, limit: Duration) -> bool {
        let before = clock::thread_cpu();
        while clock::thread_cpu().saturating_sub(before) < limit {
            match &mut self.current {
                Some(process) => {
                    if !process.examine(&mut self.shared) {
                        self.close();
                    }
                }
                None => match self.owners.pop() {
                    Some(owner) => self.open(owner),
                    None => return true,
                },
            }
        }
        false
    }

    /// The spaces that were completed since the last call.
    pub(super) fn take(&mut self) -> BTreeMap<SpaceId, Surveyed> {
        std::mem::take(&mut self.found)
    }

    /// The extents of the shared space, and its id, after a complete survey.
    pub(super) fn shared(&self) -> Option<(SpaceId, Arc<[Extent]>)> {
        let space = self.mappings.shared?;
        let mapped = self.mappings.mappings.iter().map(|mapping| mapping.range);
        let mapped: Vec<Range> = mapped.filter(|range| range.space == space).collect();
        Some((space, of_runs(&mapped, space, self.shared.runs())))
    }

    /// Begins with a process, unless it has ended or cannot be read.
    fn open(&mut self, owner: Owner) {
        if let Ok(map) = PageMap::open(&self.proc.path(owner.pid, "pagemap")) {
            let mut parts = parts(&self.mappings, owner.space);
            if !map.skips_holes()
                && let Ok(Some(populated)) = self.proc.populated(owner.pid)
            {
                parts.retain(|part| overlaps(&populated, &part.range));
            }
            parts.reverse();
            let extents = ExtentList::default();
            self.current = Some(Process { owner, map, parts, extents, viewed: 0 });
        }
    }

    /// Ends with a process, and keeps what was found if the pid still is that process.
    fn close(&mut self) {
        let Some(process) = self.current.take() else { return };
        if is_still(&self.proc, &process.owner) {
            let (extents, viewed) = (process.extents.finish(), process.viewed);
            self.found.insert(process.owner.space, Surveyed { extents, viewed });
        }
    }
}

impl Process {
    /// Examines the next piece; returns whether there was one.
    fn examine(&mut self, shared: &mut PageSet) -> bool {
        let Some(part) = self.parts.last_mut() else { return false };
        let Part { range, at, memory } = *part;
        let end = at.saturating_add(PIECE).min(range.end);
        let (extents, viewed) = (&mut self.extents, &mut self.viewed);
        let mut take = |run: PageRun| match memory {
            None => extents.add(&range, run),
            Some(_) if run.swapped => {}
            Some(memory) => {
                let listed = |address: u64| memory.at + (address - range.start);
                shared.add(listed(run.start), listed(run.end));
                *viewed += run.end - run.start;
            }
        };
        // Special mappings have no page map; if others fail, the process has ended.
        let _ = self.map.runs(at, end, &mut take);
        part.at = end;
        if end == range.end {
            self.parts.pop();
        }
        true
    }
}

/// The parts of a process's memory, in order of address: its own mappings, then its views.
fn parts(mappings: &Mappings, space: SpaceId) -> Vec<Part> {
    let own = mappings.mappings.iter().filter(|m| m.backing != Backing::Kernel);
    let own = own.map(|mapping| (mapping.range, None));
    let views = mappings.views.iter().map(|view| (view.range, Some(view.memory)));
    let here = own.chain(views).filter(|(range, _)| range.space == space);
    here.map(|(range, memory)| Part { range, at: range.start, memory }).collect()
}

/// Whether one of the sorted `ranges` of addresses overlaps `range`.
fn overlaps(ranges: &[(u64, u64)], range: &Range) -> bool {
    let next = ranges.partition_point(|(_, end)| *end <= range.start);
    ranges.get(next).is_some_and(|(start, _)| *start < range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use tierscope_core::{Mapping, SharedView};

    const PAGE: u64 = 4096;
    const OWN: SpaceId = SpaceId(3);
    const SHARED: SpaceId = SpaceId(9);

    fn mapping(range: Range) -> Mapping {
        let (backing, name) = (Backing::Anonymous, "".into());
        Mapping { range, backing, name, writable: true, object: None }
    }

    /// This process as the owner of space `space`.
    fn me(space: SpaceId) -> Owner {
        let pid = std::process::id();
        let started = Proc::default().stat(pid).unwrap().unwrap().started;
        Owner { space, pid, started }
    }

    /// Surveys everything; returns what was found, and the extents of the shared space.
    fn surveyed(target: &Target) -> (BTreeMap<SpaceId, Surveyed>, Option<Arc<[Extent]>>) {
        let mut survey = Survey::of(Proc::default(), target);
        while !survey.step(Duration::from_micros(1)) {}
        (survey.take(), survey.shared().map(|(_, extents)| extents))
    }

    /// Memory in which these pages are touched.
    struct Touched(*mut std::ffi::c_void, usize);

    impl Touched {
        fn new(bytes: usize, pages: &[usize]) -> Self {
            // SAFETY: new memory, which nothing else refers to.
            let memory = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            };
            let memory = memory.unwrap();
            // SAFETY: the memory is that of the mapping; the writes are inside of it.
            unsafe {
                madvise(memory, bytes, Advice::LinuxNoHugepage).unwrap();
                for page in pages {
                    memory.cast::<u8>().add(page << 12).write_volatile(1);
                }
            }
            Self(memory, bytes)
        }

        fn range(&self, space: SpaceId) -> Range {
            Range::new(space, self.0 as u64, self.0 as u64 + self.1 as u64)
        }
    }

    impl Drop for Touched {
        fn drop(&mut self) {
            // SAFETY: the mapping of `new`, no longer used.
            let _ = unsafe { munmap(self.0, self.1) };
        }
    }

    // 64 GiB are reserved, of which two pages far apart are touched.
    #[test]
    fn a_reservation_has_the_extents_of_its_touched_pages() {
        let memory = Touched::new(64 << 30, &[7, 9_000_000]);
        let range = memory.range(OWN);
        let mappings = Mappings { mappings: vec![mapping(range)], ..Mappings::default() };
        let target = Target { owners: vec![me(OWN)], mappings: Arc::new(mappings) };
        let (found, shared) = surveyed(&target);
        let extents = &found[&OWN].extents;
        let pages: Vec<_> = extents.iter().map(|e| (e.resident / PAGE, e.swapped)).collect();
        assert_eq!(pages, [(1, 0), (1, 0)], "{extents:?}");
        let holds = |page: u64| {
            let page = range.start + page * PAGE;
            extents.iter().any(|e| e.range.start <= page && page < e.range.end)
        };
        assert!(holds(7) && holds(9_000_000) && shared.is_none());
        assert!(extents.iter().all(|extent| extent.range.bytes() <= 2 << 20));
    }

    // Two processes (both are this one, at two places) map an object of eight pages. The first has
    // its pages 0 to 3 in memory, the second 2 to 5: united, six. A page of private memory counts
    // in the first process.
    #[test]
    fn shared_memory_is_the_union_of_its_users() {
        let (first, second) =
            (Touched::new(8 << 12, &[0, 1, 2, 3]), Touched::new(8 << 12, &[2, 3, 4, 5]));
        let private = Touched::new(1 << 12, &[0]);
        let (one, other) = (SpaceId(1), SpaceId(2));
        let memory = Range::new(SHARED, 1 << 30, (1 << 30) + 8 * PAGE);
        let view = |range| SharedView { range, memory: memory.at(0), name: "toy".into() };
        let mappings = Mappings {
            mappings: vec![mapping(private.range(one)), mapping(memory)],
            shared: Some(SHARED),
            views: vec![view(first.range(one)), view(second.range(other))],
            ..Mappings::default()
        };
        let target = Target { owners: vec![me(one), me(other)], mappings: Arc::new(mappings) };
        let (found, shared) = surveyed(&target);
        let resident = |extents: &[Extent]| extents.iter().map(|e| e.resident).sum::<u64>() / PAGE;
        let of = |space: SpaceId| (resident(&found[&space].extents), found[&space].viewed / PAGE);
        assert_eq!([of(one), of(other)], [(1, 4), (0, 4)]);
        let shared = shared.unwrap();
        assert_eq!((resident(&shared), shared[0].range), (6, memory));
    }

    #[test]
    fn a_process_that_has_ended_is_left_out() {
        let owner = Owner { started: me(OWN).started + 1, ..me(OWN) };
        let target = Target { owners: vec![owner], mappings: Arc::default() };
        assert!(surveyed(&target).0.is_empty());
    }
}
