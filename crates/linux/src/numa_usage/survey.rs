//! Finds out which memory of the target is resident, a limited amount at a time: one process after
//! the other, and of each its mappings. What several processes map is found by uniting their pages;
//! where all pages were found in one process, the others are not examined. Of memory that a process
//! inherited by fork, the pages that it has copied count: those that no other process maps. Of a
//! large process, a sample of them is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{Addr, Backing, Extent, Mappings, PAGE_SHIFT, Range, SpaceId};

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

/// Size and alignment of a block whose copied pages are estimated.
const BLOCK: u64 = 2 << 20;
/// Bytes of a block that are looked at in a large process.
const SAMPLE: u64 = 256 << 10;
/// Resident bytes above which a process is large.
const LARGE: u64 = 64 << 20;
/// Ratio of mapped to resident memory above which what is populated is searched for.
const SPARSE: u64 = 4;
/// Number of parts of a process that are found copied or not, each as a whole.
const PARTS: u64 = 512;
/// A part is copied if more than 1/16 of its resident pages are.
const COPIED: u64 = 16;

/// What a survey found out about a space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Surveyed {
    pub(super) extents: Arc<[Extent]>,
    /// Resident bytes of the process that it inherited, and that count in another process.
    pub(super) inherited: u64,
    /// Parts of inherited memory of which the process has copied pages.
    pub(super) copied: Vec<Range>,
}

/// Which pages of a part count in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    All,
    /// Those that no other process maps; of a view or of a mapping.
    Copies {
        view: bool,
    },
    /// None: its first byte has this address in the shared space.
    Shared(Addr),
}

/// A part of a process's memory to examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    range: Range,
    /// Address from which on it is still to examine.
    at: u64,
    counted: Counted,
}

/// A survey of a target: its processes and mappings as they were when it began.
pub(super) struct Survey {
    proc: Proc,
    mappings: Arc<Mappings>,
    heirs: BTreeSet<SpaceId>,
    /// Mappings whose memory is known, and is left out.
    known: Arc<Mappings>,
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
    inherited: u64,
    /// Whether inherited memory is looked at without a search for what is populated.
    dense: bool,
    /// Whether samples of blocks are looked at.
    large: bool,
    /// Size and alignment of the parts that are found copied or not.
    part_bytes: u64,
    /// The last such part: its number, resident and copied bytes.
    last: (Range, u64, u64),
    copied: Vec<Range>,
}

impl Survey {
    /// Begins a survey.
    pub(super) fn of(proc: Proc, target: &Target) -> Self {
        Self::of_growth(proc, target, Arc::default())
    }

    /// Begins a survey of new processes, and of what others have mapped of their own since `known`.
    pub(super) fn of_growth(proc: Proc, target: &Target, known: Arc<Mappings>) -> Self {
        let mut owners = target.owners.clone();
        owners.reverse();
        Self {
            proc,
            mappings: Arc::clone(&target.mappings),
            heirs: target.heirs.clone(),
            known,
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

    /// The mappings that are surveyed.
    pub(super) fn mappings(&self) -> &Arc<Mappings> {
        &self.mappings
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
            let is_heir = self.heirs.contains(&owner.space);
            let mut parts = parts(&self.mappings, owner.space, is_heir);
            if self.known.has_space(owner.space) {
                parts = new_parts(&parts, &self.known);
            }
            let resident = match is_heir {
                true => self.proc.resident(owner.pid).ok().flatten().map_or(0, |read| read.bytes),
                false => 0,
            };
            let copies = |part: &&Part| matches!(part.counted, Counted::Copies { .. });
            let listed: u64 = parts.iter().filter(copies).map(|part| part.range.bytes()).sum();
            let dense = is_heir && listed / SPARSE <= resident;
            if !map.skips_holes()
                && !dense
                && let Ok(Some(populated)) = self.proc.populated(owner.pid)
            {
                parts.retain(|part| overlaps(&populated, &part.range));
            }
            parts.reverse();
            self.current = Some(Process::new(owner, map, parts, (resident, dense)));
        }
    }

    /// Ends with a process, and keeps what was found if the pid still is that process.
    fn close(&mut self) {
        let Some(mut process) = self.current.take() else { return };
        if is_still(&self.proc, &process.owner) {
            process.end_part();
            let Process { owner, extents, inherited, copied, .. } = process;
            let extents = extents.finish();
            self.found.insert(owner.space, Surveyed { extents, inherited, copied });
        }
    }
}

impl Process {
    fn new(owner: Owner, map: PageMap, parts: Vec<Part>, (resident, dense): (u64, bool)) -> Self {
        let (extents, inherited, copied) = (ExtentList::default(), 0, Vec::new());
        let (large, last) = (resident > LARGE, (Range::default(), 0, 0));
        let part_bytes = (resident / PARTS).next_power_of_two().max(BLOCK);
        Self { owner, map, parts, extents, inherited, dense, large, part_bytes, last, copied }
    }

    /// Examines the next piece; returns whether there was one.
    fn examine(&mut self, shared: &mut PageSet) -> bool {
        let Some(part) = self.parts.last_mut() else { return false };
        let Part { range, at, counted } = *part;
        let end = at.saturating_add(PIECE).min(range.end);
        part.at = end;
        if end == range.end {
            self.parts.pop();
        }
        // Special mappings have no page map; if others fail, the process has ended.
        let _ = match counted {
            Counted::All => self.map.runs(at, end, &mut |run| self.extents.add(&range, run)),
            Counted::Shared(memory) => {
                self.find_shared(&Range { start: at, end, ..range }, shared, {
                    memory.at + (at - range.start)
                })
            }
            Counted::Copies { .. } if self.dense || !self.map.skips_holes() => {
                self.count_copies(&range, at, end);
                Ok(())
            }
            Counted::Copies { .. } => {
                let mut populated = Vec::new();
                let found = self.map.runs(at, end, &mut |run| populated.push((run.start, run.end)));
                for (from, to) in blocks_of(&populated) {
                    self.count_copies(&range, from.max(at), to.min(end));
                }
                found
            }
        };
        true
    }

    /// Adds the pages of a view to those of the shared space, in which it begins at `memory`,
    /// except where all pages are known.
    fn find_shared(&mut self, view: &Range, shared: &mut PageSet, memory: u64) -> io::Result<()> {
        let listed = |address: u64| memory + (address - view.start);
        let mapped = |listed: u64| view.start + (listed - memory);
        let mut parts = shared.incomplete(listed(view.start), listed(view.end)).into_iter();
        parts.try_for_each(|(from, to)| {
            self.map.runs(mapped(from), mapped(to), &mut |run: PageRun| {
                if !run.swapped {
                    shared.add(listed(run.start), listed(run.end));
                }
            })
        })
    }

    /// Counts the copied pages of a part between two addresses.
    fn count_copies(&mut self, part: &Range, at: u64, end: u64) {
        let mut at = at;
        while at < end {
            let next = (at / BLOCK * BLOCK).saturating_add(BLOCK).min(end);
            self.count_block(part, Range { start: at, end: next, ..*part });
            at = next;
        }
    }

    /// Counts the copied pages of a block of a part; of a large process, by a sample.
    fn count_block(&mut self, part: &Range, block: Range) {
        let looked_at = if self.large { sample(&block, self.owner.pid) } else { block };
        let Ok(found) = self.map.count(looked_at.start, looked_at.end) else { return };
        let bytes = |pages: u64| {
            let all = u128::from(pages) * u128::from(block.bytes());
            (all / u128::from(looked_at.bytes())) as u64 >> PAGE_SHIFT << PAGE_SHIFT
        };
        let (resident, copied) =
            (bytes(found.present << PAGE_SHIFT), bytes(found.exclusive << PAGE_SHIFT));
        let swapped = bytes(found.swapped << PAGE_SHIFT);
        // In a block, only the numbers of pages are kept.
        let run =
            |from: u64, bytes: u64, swapped| PageRun { start: from, end: from + bytes, swapped };
        self.extents.add(part, run(block.start, copied, false));
        self.extents.add(part, run(block.start + copied, swapped, true));
        self.inherited += resident - copied;
        self.add_to_part(&block, resident, copied);
    }

    /// Adds a block to the part that it belongs to.
    fn add_to_part(&mut self, block: &Range, resident: u64, copied: u64) {
        let (part, of) = (block.start / self.part_bytes, self.last.0);
        if self.last.1 > 0 && of.start / self.part_bytes == part && of.end == block.start {
            self.last.0.end = block.end;
            self.last.1 += resident;
            self.last.2 += copied;
        } else {
            self.end_part();
            self.last = (*block, resident, copied);
        }
    }

    /// Keeps the last part if it is copied.
    fn end_part(&mut self) {
        let (range, resident, copied) = std::mem::take(&mut self.last);
        if copied * COPIED > resident {
            self.copied.push(range);
        }
    }
}

/// The blocks that overlap sorted ranges of addresses, neighbours as one range.
fn blocks_of(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        let (start, end) = (start / BLOCK * BLOCK, end.div_ceil(BLOCK) * BLOCK);
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// The pages of a block that are looked at in a large process: others in each process.
fn sample(block: &Range, pid: u32) -> Range {
    let number = (block.start / BLOCK).wrapping_add(u64::from(pid) << 32);
    let choices = (BLOCK / SAMPLE).ilog2();
    let choice = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - choices);
    let start = block.start / BLOCK * BLOCK + choice * SAMPLE;
    let sample = Range { start, end: start + SAMPLE, ..*block }.intersect(block);
    sample.unwrap_or(*block)
}

/// The parts of a process's memory, in order of address.
fn parts(mappings: &Mappings, space: SpaceId, is_heir: bool) -> Vec<Part> {
    let own = mappings.mappings.iter().filter(|m| m.backing != Backing::Kernel);
    let own = own.map(|mapping| match is_heir && mapping.object.is_none() {
        true => (mapping.range, Counted::Copies { view: false }),
        false => (mapping.range, Counted::All),
    });
    let views = mappings.views.iter().map(|view| match mappings.shared {
        Some(shared) if shared == view.memory.space => (view.range, Counted::Shared(view.memory)),
        _ => (view.range, Counted::Copies { view: true }),
    });
    let here = own.chain(views).filter(|(range, _)| range.space == space);
    let part = |(range, counted): (Range, _)| Part { range, at: range.start, counted };
    let mut parts: Vec<Part> = here.map(part).collect();
    parts.sort_by_key(|part| part.range);
    parts
}

/// Mapped parts of a process's own memory that are not in `known`; none of a process that is not.
pub(super) fn new_ranges(mappings: &Mappings, known: &Mappings, space: SpaceId) -> Vec<Range> {
    if std::ptr::eq(mappings, known) || !known.has_space(space) {
        return Vec::new();
    }
    new_parts(&parts(mappings, space, false), known).into_iter().map(|part| part.range).collect()
}

/// What is not in `known` of the parts of a process that are no views.
fn new_parts(parts: &[Part], known: &Mappings) -> Vec<Part> {
    let mut new = Vec::new();
    let is_view =
        |part: &&Part| matches!(part.counted, Counted::Shared(_) | Counted::Copies { view: true });
    for Part { range, counted, .. } in parts.iter().filter(|part| !is_view(part)) {
        let before = |m: &tierscope_core::Mapping| {
            (m.range.space, m.range.end) <= (range.space, range.start)
        };
        let rest = &known.mappings[known.mappings.partition_point(before)..];
        let mut at = range.start;
        let mut add = |from: u64, to: u64| {
            let range = Range { start: from, end: to, ..*range };
            new.push(Part { range, at: from, counted: *counted });
        };
        for old in rest.iter().map_while(|mapping| mapping.range.intersect(range)) {
            if at < old.start {
                add(at, old.start);
            }
            at = old.end;
        }
        if at < range.end {
            add(at, range.end);
        }
    }
    new
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

    type Found = BTreeMap<SpaceId, Surveyed>;

    /// Surveys everything; returns what was found, and the extents of the shared space.
    fn surveyed(target: &Target) -> (Found, Option<Arc<[Extent]>>) {
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
        let target =
            Target { owners: vec![me(OWN)], mappings: Arc::new(mappings), ..Target::default() };
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
        let target = Target {
            owners: vec![me(one), me(other)],
            mappings: Arc::new(mappings),
            ..Target::default()
        };
        let (found, shared) = surveyed(&target);
        let resident = |extents: &[Extent]| extents.iter().map(|e| e.resident).sum::<u64>() / PAGE;
        assert_eq!([one, other].map(|space| resident(&found[&space].extents)), [1, 0]);
        let shared = shared.unwrap();
        assert_eq!((resident(&shared), shared[0].range), (6, memory));
    }

    /// A process forked from this one.
    struct Child(libc::pid_t);

    impl Child {
        /// Forks, and writes to these pages of `memory` in the child.
        fn with_copies(memory: &Touched, pages: std::ops::Range<usize>) -> Self {
            let (mut ready, mut byte) = ([0; 2], 0u8);
            // SAFETY: the child of a process with threads may call what is safe in a signal
            // handler: it writes to memory and to a pipe, and pauses.
            let pid = unsafe {
                assert_eq!(libc::pipe(ready.as_mut_ptr()), 0);
                let pid = libc::fork();
                if pid == 0 {
                    for page in pages {
                        memory.0.cast::<u8>().add(page << 12).write_volatile(2);
                    }
                    libc::write(ready[1], (&raw const byte).cast(), 1);
                    loop {
                        libc::pause();
                    }
                }
                assert_eq!(libc::read(ready[0], (&raw mut byte).cast(), 1), 1);
                ready.into_iter().for_each(|end| assert_eq!(libc::close(end), 0));
                pid
            };
            Self(pid)
        }
    }

    impl Drop for Child {
        fn drop(&mut self) {
            // SAFETY: the child of `with_copies`, which was not waited for yet.
            unsafe {
                libc::kill(self.0, libc::SIGKILL);
                libc::waitpid(self.0, std::ptr::null_mut(), 0);
            }
        }
    }

    // 6 MiB, all touched, of which two blocks of 2 MiB are inherited. The child writes to the last
    // 100 pages of the first block: more than 1/16 of 512, so that the block becomes its own. Of
    // the second block it writes to no page. It is found the same whether or not it is listed as
    // its own already.
    #[test]
    fn of_inherited_memory_the_copied_pages_count() {
        let all: Vec<usize> = (0..1536).collect();
        let memory = Touched::new(6 << 20, &all);
        let whole = memory.range(OWN);
        let start = whole.start.next_multiple_of(BLOCK);
        let inherited = Range { start, end: start + 2 * BLOCK, ..whole };
        let first = ((start - whole.start) >> 12) as usize;
        let child = Child::with_copies(&memory, first + 412..first + 512);
        let pid = child.0 as u32;
        let started = Proc::default().stat(pid).unwrap().unwrap().started;
        let (heir, parent) = (SpaceId(4), inherited);
        let theirs = Range { space: heir, ..inherited };
        let view = SharedView { range: theirs, memory: parent.at(0), name: "".into() };
        let listed = [
            Mappings { mappings: vec![mapping(parent)], views: vec![view], ..Mappings::default() },
            Mappings { mappings: vec![mapping(parent), mapping(theirs)], ..Mappings::default() },
        ];
        for mappings in listed {
            let owners = vec![me(OWN), Owner { space: heir, pid, started }];
            let target = Target { owners, mappings: Arc::new(mappings), heirs: [heir].into() };
            let (found, _) = surveyed(&target);
            let resident = |space| {
                let of: &Surveyed = &found[&space];
                of.extents.iter().map(|e| e.resident).sum::<u64>() / PAGE
            };
            assert_eq!([resident(OWN), resident(heir)], [1024, 100]);
            assert_eq!(found[&heir].inherited / PAGE, 924);
            let block = Range { end: theirs.start + BLOCK, ..theirs };
            assert_eq!(found[&heir].copied, [block]);
        }
    }

    #[test]
    fn populated_blocks_are_found_once() {
        let mib = |mib: u64| mib << 20;
        let found = blocks_of(&[(mib(1), mib(3)), (mib(3), mib(5)), (mib(9), mib(10))]);
        assert_eq!(found, [(0, mib(6)), (mib(8), mib(10))]);
    }

    // Blocks 0 to 99 of two processes: each sample is 64 pages of its block, all eight places are
    // used, and the processes' differ. Of pages 500 to 520 of block 0, a sample is in these.
    #[test]
    fn samples_are_spread_over_their_blocks() {
        let block = |number: u64| Range::new(OWN, number * BLOCK, (number + 1) * BLOCK);
        let place = |number: u64, pid| {
            let sample = sample(&block(number), pid);
            assert!(block(number).covers(&sample) && sample.bytes() == SAMPLE);
            (sample.start - block(number).start) / SAMPLE
        };
        let places = |pid| (0..100).map(|number| place(number, pid)).collect::<Vec<u64>>();
        let counts = |pid| (0..8).map(|at| places(pid).iter().filter(|p| **p == at).count()).min();
        assert!(counts(7) >= Some(5) && places(7) != places(8));
        let part = Range::new(OWN, 500 * PAGE, 520 * PAGE);
        assert!(part.covers(&sample(&part, 7)));
    }

    // Of the pages 0 to 9 of a mapping, 2 to 4 and 6 to 8 were mapped before.
    #[test]
    fn memory_mapped_before_is_left_out() {
        let range = |from: u64, to: u64| Range::new(OWN, from * PAGE, to * PAGE);
        let part = |range: Range, counted| Part { range, at: range.start, counted };
        let old = [range(2, 4), range(6, 8)].map(mapping).to_vec();
        let known = Mappings { mappings: old, ..Mappings::default() };
        let view = part(range(20, 30), Counted::Shared(Addr { space: SHARED, at: 0 }));
        let new = new_parts(&[part(range(0, 9), Counted::All), view], &known);
        let expected =
            [range(0, 2), range(4, 6), range(8, 9)].map(|range| part(range, Counted::All));
        assert_eq!(new, expected);
        assert_eq!(new_parts(&[part(range(2, 4), Counted::All)], &known), []);
    }

    #[test]
    fn a_process_that_has_ended_is_left_out() {
        let owner = Owner { started: me(OWN).started + 1, ..me(OWN) };
        let target = Target { owners: vec![owner], mappings: Arc::default(), ..Target::default() };
        assert!(surveyed(&target).0.is_empty());
    }
}
