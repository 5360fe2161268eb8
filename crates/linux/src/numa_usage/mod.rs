//! Resident memory of the target, and its placement on NUMA nodes: determined by a separate thread,
//! so that sampling never waits for it.
//!
//! Resident bytes are read once a second, as are the extents of resident and swapped memory, and
//! the placement every ten seconds; each less often if it would take more than 1/500 of a CPU. The
//! processes of a large target are placed in steps. Its extents are found in steps, too, and are
//! even until they are found; those of new processes, and of what others have mapped since, at
//! once, and those of the newest mappings are estimated (`current`), so that the extents follow a
//! target that grows.
//!
//! The pages of a space of up to [`COUNTED`] are counted one by one (`numa_maps`), which holds the
//! mmap lock for as long as it takes; of a larger space some thousand pages are sampled instead.

mod current;
mod extents;
mod page_runs;
mod page_sample;
mod page_set;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tierscope_core::{
    Addr, Backing, Error, ErrorKind, Extent, Mappings, Node, OnNode, Placed, Range, RangeSet,
    Residence, Result, Rng, SpaceId, SpaceResidence, Time, distribute,
};

use crate::cgroup_memory::CgroupMemory;
use crate::clock;
use crate::latest::Latest;
use crate::proc::{ByNode, Cgroup, Proc, Resident};
use crate::space_owners::Owner;
use crate::tiers;
use current::{Current, Found};
use survey::{Survey, Surveyed};

/// Spaces with more resident bytes than this are sampled instead of counted: for 2^20 pages of 4
/// KiB the lock is held for some ten milliseconds.
const COUNTED: u64 = 4 << 30;
/// Period of reading resident bytes.
const RESIDENT: Duration = Duration::from_secs(1);
/// Period of determining the placement on nodes.
const PLACEMENT: Duration = Duration::from_secs(10);
/// CPU time of a step of finding extents: about a GiB of small pages.
const STEP: Duration = Duration::from_millis(4);
/// CPU time of the first step, so that the first window of most targets has extents.
const FIRST_STEP: Duration = Duration::from_millis(100);
/// Maximum share of one CPU for each of the three: 1/500.
const SHARE: u32 = 500;

/// What is known of a space by its last survey.
#[derive(Default)]
struct Known {
    extents: Arc<[Extent]>,
    /// Resident bytes of the process that are listed in the shared space; and those that it
    /// inherited, which count in another process.
    viewed: u64,
    inherited: u64,
    /// Parts of inherited memory of which the process has copied pages.
    copied: Vec<Range>,
}

/// The processes to observe, with their mappings.
#[derive(Default)]
struct Target {
    owners: Vec<Owner>,
    mappings: Arc<Mappings>,
    /// Processes that inherited memory by fork: what they share counts elsewhere.
    heirs: BTreeSet<SpaceId>,
}

/// Handle of the observing thread, which ends when this is dropped.
pub(crate) struct NumaMonitor {
    proc: Proc,
    latest: Latest<Found>,
    /// What was found last, brought up to the mappings in use.
    current: Current,
    copied: Latest<RangeSet>,
    targets: Sender<Target>,
    /// The tiers that were configured, instead of the machine's.
    tiers: Option<Vec<Vec<Node>>>,
}

impl NumaMonitor {
    /// Starts the thread, without processes to observe. If the target is a cgroup, also its
    /// own memory is observed: zswapped, or in no page table.
    pub(crate) fn start(proc: Proc, cgroup: Option<Cgroup>) -> Result<Self> {
        let tiers = tiers::tiers(Path::new("/sys"));
        let residence = Residence { tiers, ..Residence::default() };
        let latest = Latest::new(Found { residence: residence.into(), ..Found::default() });
        let (targets, updates) = channel();
        let observer = Observer { cgroup, ..Observer::new(proc.clone(), latest.clone()) };
        let copied = observer.copied.clone();
        let name = "tierscope-nodes".to_owned();
        thread::Builder::new().name(name).spawn(move || observe(observer, &updates)).map_err(
            |e| {
                Error::new(ErrorKind::Other, "cannot start a thread")
                    .cause(e)
                    .remedy("raise the limit of processes with `ulimit -u`")
            },
        )?;
        Ok(Self { proc, latest, current: Current::default(), copied, targets, tiers: None })
    }

    /// Sets the nodes of each tier, fastest first.
    pub(crate) fn set_tiers(&mut self, tiers: Vec<Vec<Node>>) {
        self.tiers = Some(tiers);
    }

    /// Sets the processes to observe, their mappings, and which of them inherited memory by fork.
    pub(crate) fn set(
        &self,
        owners: Vec<Owner>,
        mappings: Arc<Mappings>,
        heirs: BTreeSet<SpaceId>,
    ) {
        // If the thread has ended, there is nothing to update.
        let _ = self.targets.send(Target { owners, mappings, heirs });
    }

    /// Parts of inherited memory that processes have copied, by the latest survey.
    pub(crate) fn copied(&self) -> Arc<RangeSet> {
        self.copied.get()
    }

    /// The latest result, brought up to the mappings in use, and restricted to the spaces for which
    /// `lives` holds.
    pub(crate) fn found(
        &mut self,
        mappings: &Arc<Mappings>,
        owner: impl Fn(SpaceId) -> Option<Owner>,
        lives: impl Fn(SpaceId) -> bool,
    ) -> Arc<Residence> {
        let read = |space| Some(read_resident(&self.proc, &owner(space)?)?.bytes);
        let found = self.current.at(&self.latest.get(), mappings, read);
        let tiers = self.tiers.as_ref().filter(|tiers| **tiers != found.tiers);
        if tiers.is_none() && found.spaces.iter().all(|of| lives(of.space)) {
            return found;
        }
        let spaces = found.spaces.iter().filter(|of| lives(of.space)).cloned().collect();
        let tiers = tiers.unwrap_or(&found.tiers).clone();
        Arc::new(Residence { tiers, spaces, ..Residence::clone(&found) })
    }
}

/// Main loop of the thread: observes when due, until the handle is dropped.
fn observe(mut observer: Observer, updates: &Receiver<Target>) {
    loop {
        let due = observer.due().since(clock::monotonic());
        match updates.recv_timeout(due) {
            Ok(target) => observer.set(updates.try_iter().last().unwrap_or(target)),
            Err(RecvTimeoutError::Timeout) => observer.observe(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Schedule of a periodic task that may use a share of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    period: Duration,
    next: Time,
    /// Time before which the share of a CPU would be exceeded.
    earliest: Time,
}

impl Pace {
    /// Due immediately, and from then on every `period`.
    fn every(period: Duration) -> Self {
        Self { period, next: Time(0), earliest: Time(0) }
    }

    /// Schedules the next run, after one that began at `began` and took `cost` CPU time.
    fn done(&mut self, began: Time, cost: Duration) {
        self.earliest = began + cost * SHARE;
        self.next = self.earliest.max(began + self.period);
    }

    /// Schedules the next run as early as possible.
    fn hurry(&mut self) {
        self.next = self.next.min(self.earliest);
    }
}

/// CPU time of a step that counts for the pause after it: the first step is long, so that regions
/// soon are of resident memory, and must not delay the rest of its survey.
fn charged(step: Duration, spent: Duration) -> Duration {
    if step == FIRST_STEP { spent.min(STEP) } else { spent }
}

/// A round in which all processes are placed on nodes, in steps.
#[derive(Debug, Default)]
struct Round {
    /// The last process that was placed: the next ones have greater numbers.
    placed: Option<SpaceId>,
    /// Bytes of the shared space by node, summed over the processes placed so far.
    viewed: ByNode,
}

struct Observer {
    proc: Proc,
    cgroup: Option<Cgroup>,
    cgroup_memory: CgroupMemory,
    latest: Latest<Found>,
    copied: Latest<RangeSet>,
    target: Target,
    found: BTreeMap<SpaceId, SpaceResidence>,
    /// Resident bytes of each process, with all shared memory that it maps.
    read: BTreeMap<SpaceId, Resident>,
    /// What the surveys found out so far, and the survey under way.
    surveyed: BTreeMap<SpaceId, Known>,
    survey: Option<Survey>,
    survey_step: Duration,
    /// Mappings that `surveyed` covers.
    covered: Arc<Mappings>,
    /// Bytes of the shared space by node, summed over its users; and the round of placing all
    /// processes that is under way.
    viewed: ByNode,
    round: Option<Round>,
    placement_step: Duration,
    resident: Pace,
    extents: Pace,
    growth: Pace,
    placement: Pace,
    rng: Rng,
}

impl Observer {
    fn new(proc: Proc, latest: Latest<Found>) -> Self {
        Self {
            proc,
            cgroup: None,
            cgroup_memory: CgroupMemory::default(),
            latest,
            copied: Latest::default(),
            target: Target::default(),
            found: BTreeMap::new(),
            read: BTreeMap::new(),
            surveyed: BTreeMap::new(),
            survey: None,
            survey_step: FIRST_STEP,
            covered: Arc::default(),
            viewed: ByNode::new(),
            round: None,
            placement_step: FIRST_STEP,
            growth: Pace::every(Duration::ZERO),
            extents: Pace::every(RESIDENT),
            resident: Pace::every(RESIDENT),
            placement: Pace::every(PLACEMENT),
            rng: Rng::seeded(0),
        }
    }

    /// Time of the next run; always in ten seconds while there are no processes to observe.
    fn due(&self) -> Time {
        match self.target.owners.is_empty() {
            true => clock::monotonic() + PLACEMENT,
            false => self.resident.next.min(self.extents.next).min(self.placement.next),
        }
    }

    /// Replaces the processes and their mappings.
    fn set(&mut self, target: Target) {
        // A process from which the others inherited is listed with all of its memory.
        for space in self.target.heirs.difference(&target.heirs) {
            self.surveyed.entry(*space).and_modify(|known| known.inherited = 0);
        }
        self.target = target;
        self.resident.hurry();
        self.take_up_growth();
    }

    /// Finds the extents of memory that was mapped since the last survey, unless that is too early.
    fn take_up_growth(&mut self) {
        let (began, before) = (clock::monotonic(), clock::thread_cpu());
        let is_covered = Arc::ptr_eq(&self.covered, &self.target.mappings);
        if self.surveyed.is_empty() || is_covered || began < self.growth.next {
            return;
        }
        self.survey_growth(STEP);
        self.growth.done(began, clock::thread_cpu().saturating_sub(before));
        self.publish();
    }

    /// Surveys new memory. If that takes longer than `limit`, it is left to the next survey of all.
    fn survey_growth(&mut self, limit: Duration) {
        let covered = Arc::clone(&self.covered);
        let mut survey = Survey::of_growth(self.proc.clone(), &self.target, covered);
        let complete = survey.step(limit);
        self.read_resident_bytes(clock::monotonic());
        if complete {
            self.covered = Arc::clone(&self.target.mappings);
            for (space, new) in survey.take() {
                match self.surveyed.get_mut(&space) {
                    Some(known) => known.extents = with_new(&known.extents, &new.extents),
                    None => self.keep(space, new),
                }
            }
            self.publish_copied();
            self.insert_extents();
        }
    }

    /// Does the tasks that are due, and publishes their results.
    fn observe(&mut self) {
        let began = clock::monotonic();
        if began >= self.resident.next {
            let before = clock::thread_cpu();
            self.read_resident_bytes(began);
            self.resident.done(began, clock::thread_cpu().saturating_sub(before));
            self.publish();
        }
        if began >= self.extents.next {
            let (step, before) = (self.survey_step, clock::thread_cpu());
            self.find_extents();
            let spent = clock::thread_cpu().saturating_sub(before);
            self.extents.done(began, charged(step, spent));
            self.publish();
            self.take_up_growth();
        }
        if began >= self.placement.next {
            let (step, before) = (self.placement_step, clock::thread_cpu());
            self.placement_step = STEP;
            let is_complete = self.read_placement(step);
            let spent = clock::thread_cpu().saturating_sub(before);
            self.placement.done(began, charged(step, spent));
            if !is_complete {
                self.placement.hurry();
            }
            self.publish();
        }
    }

    /// Updates resident bytes. Processes that have ended or cannot be read are omitted.
    fn read_resident_bytes(&mut self, taken: Time) {
        let mut found = BTreeMap::new();
        self.read.clear();
        for owner in &self.target.owners {
            let Some(read) = read_resident(&self.proc, owner) else { continue };
            let placed = self.found.remove(&owner.space).and_then(|before| before.placed);
            let (space, bytes, extents) = (owner.space, read.bytes, None);
            self.read.insert(space, read);
            found.insert(space, SpaceResidence { space, taken, bytes, placed, extents });
        }
        self.found = found;
        let of = |cgroup: &Cgroup| CgroupMemory::read(cgroup.path());
        self.cgroup_memory = self.cgroup.as_ref().map(of).unwrap_or_default();
        self.insert_extents();
    }

    /// Goes on with the survey of extents, or begins one.
    fn find_extents(&mut self) {
        let begin = || Survey::of(self.proc.clone(), &self.target);
        let mut survey = self.survey.take().unwrap_or_else(begin);
        let complete = survey.step(std::mem::replace(&mut self.survey_step, STEP));
        survey.take().into_iter().for_each(|(space, found)| self.keep(space, found));
        if complete {
            self.covered = Arc::clone(survey.mappings());
            let shared = survey.shared();
            let known = |extents| Known { extents, ..Known::default() };
            self.surveyed.extend(shared.map(|(id, extents)| (id, known(extents))));
        } else {
            self.survey = Some(survey);
        }
        self.publish_copied();
        self.insert_extents();
    }

    /// Keeps what was found of a process. What else it has in memory is listed in the shared space.
    fn keep(&mut self, space: SpaceId, found: Surveyed) {
        let Surveyed { extents, inherited, copied } = found;
        let own: u64 = extents.iter().map(|extent| extent.resident).sum();
        let read = self.read.get(&space).map_or(0, |read| read.bytes);
        let most = bytes_in_views(&self.target.mappings, space);
        let viewed = read.saturating_sub(own + inherited).min(most);
        self.surveyed.insert(space, Known { extents, viewed, inherited, copied });
    }

    /// Enters the extents into what was found. Memory of the shared space counts there only.
    fn insert_extents(&mut self) {
        let shared = self.target.mappings.shared;
        let lives = |space: &SpaceId| self.found.contains_key(space) || shared == Some(*space);
        self.surveyed.retain(|space, _| lives(space));
        let mut most_viewed = 0;
        for (space, read) in &self.read {
            let Some(found) = self.found.get_mut(space) else { continue };
            let surveyed = self.surveyed.get(space);
            let viewed = surveyed.map_or_else(
                || read.shareable.min(bytes_in_views(&self.target.mappings, *space)),
                |surveyed| surveyed.viewed,
            );
            most_viewed = most_viewed.max(viewed);
            let inherited = surveyed.map_or(0, |surveyed| surveyed.inherited);
            found.bytes = read.bytes.saturating_sub(viewed + inherited);
            let extents = surveyed.map(|surveyed| {
                let new = survey::new_ranges(&self.target.mappings, &self.covered, *space);
                grown(&surveyed.extents, found.bytes, &new)
            });
            found.extents =
                extents.or_else(|| provisional(&self.target.mappings, found.bytes, *space));
        }
        if let Some(space) = shared {
            let found = self.shared_residence(space, most_viewed);
            self.found.insert(space, found);
        }
    }

    /// The shared space. Before its first survey it has as much in memory as the process that
    /// has most of it, at least: the sum would count it once for each process.
    fn shared_residence(&self, space: SpaceId, most_viewed: u64) -> SpaceResidence {
        let extents = self.surveyed.get(&space).map(|surveyed| Arc::clone(&surveyed.extents));
        let sum = |extents: &Arc<[Extent]>| extents.iter().map(|extent| extent.resident).sum();
        let bytes = extents.as_ref().map_or(most_viewed, sum);
        let extents = extents.or_else(|| provisional(&self.target.mappings, bytes, space));
        let taken = clock::monotonic();
        let nodes = distribute(bytes, &by_node(&self.viewed));
        let placed = (!nodes.is_empty()).then_some(Placed { taken, nodes, drawn: 0 });
        SpaceResidence { space, taken, bytes, placed, extents }
    }

    /// Goes on with the round in which all processes are placed, or begins one: at least one
    /// process, and more until `limit` of CPU time is spent. Returns whether the round is complete.
    fn read_placement(&mut self, limit: Duration) -> bool {
        let mut round = self.round.take().unwrap_or_default();
        let before = clock::thread_cpu();
        let is_left = |owner: &&Owner| round.placed.is_none_or(|last| owner.space > last);
        let mut left: Vec<Owner> = self.target.owners.iter().filter(is_left).copied().collect();
        left.sort_unstable_by_key(|owner| owner.space);
        for (number, owner) in left.into_iter().enumerate() {
            if number > 0 && clock::thread_cpu().saturating_sub(before) >= limit {
                self.round = Some(round);
                return false;
            }
            self.place(&owner, &mut round.viewed);
            round.placed = Some(owner.space);
        }
        self.viewed = round.viewed;
        self.insert_extents();
        true
    }

    /// Places a process's memory on nodes; adds what it shares to `viewed`.
    fn place(&mut self, owner: &Owner, viewed: &mut ByNode) {
        let Some(bytes) = self.found.get(&owner.space).map(|found| found.bytes) else { return };
        let taken = clock::monotonic();
        let placed = match bytes {
            ..=COUNTED => self.count(owner, viewed),
            _ => self.sample(owner, bytes),
        };
        let placed = placed.filter(|_| is_still(&self.proc, owner));
        if let Some(found) = self.found.get_mut(&owner.space) {
            found.placed = placed.map(|(nodes, drawn)| Placed { taken, nodes, drawn });
        }
    }

    /// The nodes of a process's own memory, page by page; those of shared memory are added to
    /// `viewed`.
    fn count(&self, owner: &Owner, viewed: &mut ByNode) -> Option<(Vec<OnNode>, u64)> {
        let views = &self.target.mappings.views;
        let is_view = |start: u64| {
            let first = Addr { space: owner.space, at: start };
            let key = (first.space, first.at);
            let next = views.partition_point(|v| (v.range.space, v.range.end) <= key);
            let view = views.get(next).filter(|view| view.range.contains(first));
            view.is_some_and(|view| self.target.mappings.shared == Some(view.memory.space))
        };
        let (nodes, others) = self.proc.by_node_apart(owner.pid, is_view).ok()??;
        for (node, bytes) in others {
            let sum = viewed.entry(node).or_default();
            *sum = sum.saturating_add(bytes);
        }
        Some((by_node(&nodes), 0))
    }

    fn sample(&mut self, owner: &Owner, bytes: u64) -> Option<(Vec<OnNode>, u64)> {
        let mappings = self.target.mappings.mappings.iter().map(|mapping| mapping.range);
        let ranges: Vec<Range> = mappings.filter(|range| range.space == owner.space).collect();
        let mut locate = |at: &[u64], nodes: &mut [i32]| page_sample::locate(owner.pid, at, nodes);
        let sample = page_sample::draw(&ranges, &mut self.rng, &mut locate)?;
        Some((sample.distribute(bytes), sample.pages))
    }

    fn publish_copied(&self) {
        let copied = self.surveyed.values().flat_map(|of| &of.copied);
        let copied: RangeSet = copied.copied().collect();
        if copied != *self.copied.get() {
            self.copied.publish(copied);
        }
    }

    fn publish(&self) {
        let tiers = self.latest.get().residence.tiers.clone();
        let mapped = bytes_by_space(&self.target.mappings);
        let spaces = self.found.values().cloned().map(|mut of| {
            // Of a process that was not surveyed yet, it is not known what counts elsewhere; copies
            // of inherited memory are listed some time after they are found.
            if !self.surveyed.contains_key(&of.space) || self.target.heirs.contains(&of.space) {
                of.bytes = of.bytes.min(mapped.get(&of.space).copied().unwrap_or(of.bytes));
            }
            scaled(of)
        });
        let spaces = spaces.collect();
        let CgroupMemory { zswapped, charges } = self.cgroup_memory.clone();
        let residence = Arc::new(Residence { tiers, spaces, zswapped, charges });
        let read = self.read.iter().map(|(space, read)| (*space, read.bytes)).collect();
        let mappings = Arc::clone(&self.target.mappings);
        self.latest.publish(Found { residence, mappings, read });
    }
}

/// Bytes that each space maps of its own.
fn bytes_by_space(mappings: &Mappings) -> BTreeMap<SpaceId, u64> {
    let mut sums: BTreeMap<SpaceId, u64> = mappings.spaces.iter().map(|of| (of.id, 0)).collect();
    for mapping in &mappings.mappings {
        *sums.entry(mapping.range.space).or_default() += mapping.range.bytes();
    }
    sums
}

/// Extents of a space before its survey: all that is known is how much is resident. `None` without
/// mappings.
fn provisional(mappings: &Mappings, bytes: u64, space: SpaceId) -> Option<Arc<[Extent]>> {
    let of = mappings.mappings.iter();
    let of = of.filter(|one| one.range.space == space && one.backing != Backing::Kernel);
    let ranges: Vec<Range> = of.map(|one| one.range).collect();
    (!ranges.is_empty()).then(|| extents::spread(bytes, &ranges))
}

/// The extents with those of memory that was mapped since their survey: of that, only the sum of
/// the resident bytes is known.
fn grown(known: &Arc<[Extent]>, bytes: u64, new: &[Range]) -> Arc<[Extent]> {
    let before: u64 = known.iter().map(|extent| extent.resident).sum();
    match bytes.saturating_sub(before) {
        more if more > 0 && !new.is_empty() => with_new(known, &extents::spread(more, new)),
        _ => Arc::clone(known),
    }
}

/// Bytes of a process's mappings that are listed in the shared space.
fn bytes_in_views(mappings: &Mappings, space: SpaceId) -> u64 {
    let views = mappings.views.iter().filter(|view| mappings.shared == Some(view.memory.space));
    let here = views.map(|view| view.range).filter(|range| range.space == space);
    here.map(|range| range.bytes()).sum()
}

/// The extents of a space with those of new memory, which replace what was there before.
fn with_new(known: &[Extent], new: &[Extent]) -> Arc<[Extent]> {
    let is_replaced = |old: &Extent| {
        let next = new.partition_point(|extent| extent.range.end <= old.range.start);
        new.get(next).is_some_and(|extent| extent.range.intersect(&old.range).is_some())
    };
    let kept = known.iter().filter(|old| !is_replaced(old));
    let mut all: Vec<Extent> = kept.chain(new).copied().collect();
    all.sort_unstable_by_key(|extent| extent.range);
    all.into()
}

/// A space whose bytes by node add up to its resident bytes, which are read more often: in between,
/// the nodes keep their shares.
fn scaled(mut space: SpaceResidence) -> SpaceResidence {
    space.set_bytes(space.bytes);
    space
}

fn by_node(bytes: &ByNode) -> Vec<OnNode> {
    bytes.iter().map(|(node, bytes)| OnNode { node: *node, bytes: *bytes }).collect()
}

/// Resident bytes of a process; `None` if it has ended or cannot be read.
fn read_resident(proc: &Proc, owner: &Owner) -> Option<Resident> {
    proc.resident(owner.pid).ok().flatten().filter(|_| is_still(proc, owner))
}

/// Whether the pid still refers to the same process.
fn is_still(proc: &Proc, owner: &Owner) -> bool {
    proc.stat(owner.pid).is_ok_and(|stat| stat.is_some_and(|stat| stat.started == owner.started))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake_root::Root;
    use tierscope_core::{Mapping, SharedView, Space};

    fn observer(proc: Proc) -> Observer {
        Observer::new(proc, Latest::default())
    }

    fn me(started: u64) -> Owner {
        Owner { space: SpaceId(3), pid: std::process::id(), started }
    }

    fn started() -> u64 {
        Proc::default().stat(std::process::id()).unwrap().unwrap().started
    }

    fn published(observer: &Observer) -> Arc<Residence> {
        Arc::clone(&observer.latest.get().residence)
    }

    // A survey that takes more than its first step of 100 ms goes on after 2 s, not after 50 s.
    #[test]
    fn the_first_step_does_not_delay_the_next_one() {
        let pause = |step, spent| charged(step, Duration::from_millis(spent)) * SHARE;
        assert_eq!(pause(FIRST_STEP, 100), Duration::from_secs(2));
        assert_eq!(pause(STEP, 10), Duration::from_secs(5));
    }

    #[test]
    fn expensive_readings_are_made_less_often() {
        let mut pace = Pace::every(Duration::from_secs(1));
        pace.done(Time(5), Duration::from_millis(2));
        assert_eq!(pace.next, Time(5) + Duration::from_secs(1));
        pace.done(Time(5), Duration::from_millis(40));
        assert_eq!(pace.next, Time(5) + Duration::from_secs(20));
    }

    // This process touches 16 MiB: they are resident, and on some node if the kernel has NUMA.
    #[test]
    fn finds_memory_that_this_process_touched() {
        let touched = std::hint::black_box(vec![1u8; 16 << 20]);
        let mut observer = observer(Proc::default());
        observer.target.owners = vec![me(started())];
        observer.observe();
        let found = published(&observer);
        let [of] = found.spaces.as_slice() else { panic!("{found:?}") };
        assert!(of.bytes >= 16 << 20 && of.space == SpaceId(3), "{of:?}");
        assert!(of.extents.is_some(), "the first step finds the extents of a small process");
        if let Some(placed) = &of.placed {
            let sum: u64 = placed.nodes.iter().map(|on| on.bytes).sum();
            assert!(sum >= 16 << 20 && placed.drawn == 0, "{placed:?}");
        }
        drop(touched);
    }

    // Two users of shared memory have 3 and 9 MiB of it on two nodes: of its 4 MiB, a quarter and
    // three quarters are there.
    #[test]
    fn shared_memory_is_distributed_like_its_users() {
        let nodes = [(Node(0), 3 << 20), (Node(2), 9 << 20)].into();
        let on = |node, bytes| OnNode { node: Node(node), bytes };
        let shares = distribute(4 << 20, &by_node(&nodes));
        assert_eq!(shares, [on(0, 1 << 20), on(2, 3 << 20)]);
    }

    // Each of two processes has 24 KiB of its own and all of an object of 1000 KiB in memory. The
    // object counts once before the survey too, which this procfs does not allow.
    #[test]
    fn shared_memory_counts_once_before_its_survey() {
        let root = Root::new();
        for pid in [1, 2] {
            root.process(pid, "toy", 'S');
            let status = "VmRSS:\t 1024 kB\nRssAnon:\t 20 kB\n";
            std::fs::write(root.path(&format!("{pid}/status")), status).unwrap();
        }
        let started = root.proc().stat(1).unwrap().unwrap().started;
        let object = Range::new(SpaceId(9), 0, 1000 << 10);
        let view = |space| SharedView {
            range: Range { space, ..object },
            memory: object.at(0),
            name: "toy".into(),
        };
        let (one, two) = (SpaceId(1), SpaceId(2));
        let views = vec![view(one), view(two)];
        let mappings = Mappings { shared: Some(SpaceId(9)), views, ..Mappings::default() };
        let mut observer = observer(root.proc());
        observer.target.owners =
            [(one, 1), (two, 2)].map(|(space, pid)| Owner { space, pid, started }).into();
        observer.target.mappings = Arc::new(mappings);
        observer.read_resident_bytes(Time(1));
        let kib = |space| observer.found[&space].bytes >> 10;
        assert_eq!([kib(one), kib(two), kib(SpaceId(9))], [24, 24, 1000]);
    }

    // A step without time places one of two processes; the next one, the other.
    #[test]
    fn processes_are_placed_in_steps() {
        let root = Root::new();
        let mut observer = observer(root.proc());
        for pid in [1, 2] {
            root.process(pid, "toy", 'S');
            let status = "VmRSS:\t 8 kB\nRssAnon:\t 8 kB\n";
            std::fs::write(root.path(&format!("{pid}/status")), status).unwrap();
            let pages = format!("7f00 default anon=2 N{pid}=2 kernelpagesize_kB=4\n");
            std::fs::write(root.path(&format!("{pid}/numa_maps")), pages).unwrap();
            let started = root.proc().stat(pid).unwrap().unwrap().started;
            observer.target.owners.push(Owner { space: SpaceId(pid), pid, started });
        }
        observer.read_resident_bytes(Time(0));
        let mut step = || {
            let is_complete = observer.read_placement(Duration::ZERO);
            let placed = |of: &SpaceResidence| Some(of.placed.as_ref()?.nodes[0].node.0);
            (is_complete, observer.found.values().map(placed).collect::<Vec<_>>())
        };
        assert_eq!(step(), (false, vec![Some(1), None]));
        assert_eq!(step(), (true, vec![Some(1), Some(2)]));
        assert_eq!(step(), (false, vec![Some(1), Some(2)]));
    }

    // 4 pages of 10 were resident; of 6 more pages in two new mappings, 3 must be.
    #[test]
    fn new_memory_has_what_else_is_resident() {
        let range = |from: u64, to: u64| Range::new(SpaceId(3), from << 12, to << 12);
        let extent = |range, pages: u64| Extent { range, resident: pages << 12, swapped: 0 };
        let known: Arc<[Extent]> = [extent(range(0, 10), 4)].into();
        let new = [range(10, 12), range(20, 24)];
        let all = grown(&known, 7 << 12, &new);
        assert_eq!(*all, [extent(range(0, 10), 4), extent(new[0], 1), extent(new[1], 2)]);
        assert_eq!(grown(&known, 4 << 12, &new), known);
        assert_eq!(grown(&known, 7 << 12, &[]), known);
    }

    // A reading that took 1 ms may be repeated after half a second instead of one.
    #[test]
    fn a_change_makes_readings_due_sooner() {
        let mut pace = Pace::every(Duration::from_secs(1));
        pace.done(Time(5), Duration::from_millis(1));
        pace.hurry();
        assert_eq!(pace.next, Time(5) + Duration::from_millis(500));
    }

    // Pages 1, 4 and 9; then 2 and 4 to 6 are new.
    #[test]
    fn new_extents_replace_known_ones() {
        let extent = |from: u64, to: u64| {
            let range = Range::new(SpaceId(3), from << 12, to << 12);
            Extent { range, resident: 4096, swapped: 0 }
        };
        let known = [extent(1, 2), extent(4, 5), extent(9, 10)];
        let new = [extent(2, 3), extent(4, 7)];
        let all = with_new(&known, &new);
        assert_eq!(*all, [extent(1, 2), extent(2, 3), extent(4, 7), extent(9, 10)]);
        assert_eq!(*with_new(&known, &[]), known);
    }

    // A mapping of this process becomes known after the first survey, which has its extents at the
    // next change of the mappings, long before the next survey.
    #[test]
    fn extents_of_new_memory_are_found_at_once() {
        let touched = std::hint::black_box(vec![1u8; 16 << 20]);
        let start = (touched.as_ptr() as u64 & !4095) + 4096;
        let mapping = |from: u64, to: u64| {
            Mapping::anonymous(Range::new(SpaceId(3), start + (from << 20), start + (to << 20)))
        };
        let target = |end: u64| {
            let spaces = vec![tierscope_core::Space { id: SpaceId(3), name: "toy".into() }];
            let mappings = vec![mapping(0, end)];
            let mappings = Arc::new(Mappings { spaces, mappings, ..Mappings::default() });
            Target { owners: vec![me(started())], mappings, ..Target::default() }
        };
        let mut observer = observer(Proc::default());
        observer.set(target(4));
        observer.observe();
        let resident = |observer: &Observer| -> u64 {
            let found = published(observer);
            let extents = found.spaces[0].extents.as_ref().unwrap();
            extents.iter().map(|extent| extent.resident).sum()
        };
        assert_eq!(resident(&observer), 4 << 20);
        // A survey that is not complete finds nothing; what else is resident must be there.
        observer.target = target(12);
        observer.survey_growth(Duration::ZERO);
        observer.publish();
        assert_eq!(resident(&observer), 12 << 20);
        observer.set(target(15));
        assert_eq!(resident(&observer), 15 << 20);
        drop(touched);
    }

    // Samples the pages of a vector; the kernel returns their nodes even without NUMA hardware.
    #[test]
    fn the_kernel_locates_sampled_pages() {
        let touched = std::hint::black_box(vec![1u8; 16 << 20]);
        let at = touched.as_ptr() as u64 & !4095;
        let mut observer = observer(Proc::default());
        let range = Range::new(SpaceId(3), at + 4096, at + (16 << 20));
        let mapping = Mapping::anonymous(range);
        let mappings = Mappings { mappings: vec![mapping], ..Mappings::default() };
        observer.target.mappings = Arc::new(mappings);
        let mut one = [0];
        if !page_sample::locate(std::process::id(), &[range.start], &mut one) {
            tierscope_conformance::skip::skipped("this kernel has no move_pages, or forbids it");
            return;
        }
        let (nodes, drawn) = observer.sample(&me(0), 1000).unwrap();
        assert!(drawn >= 64 && !nodes.is_empty(), "{drawn} {nodes:?}");
        assert!((990..=1000).contains(&nodes.iter().map(|on| on.bytes).sum::<u64>()), "{nodes:?}");
        drop(touched);
    }

    // A process that is known to map 3 pages of its own has all else in views of other memory.
    #[test]
    fn resident_bytes_are_at_most_the_mapped_ones_until_a_survey() {
        let mut observer = observer(Proc::default());
        let (space, name) = (SpaceId(3), Arc::<str>::from(""));
        let mapping = Mapping {
            range: Range::new(space, 1 << 30, (1 << 30) + 3 * 4096),
            backing: tierscope_core::Backing::Anonymous,
            name: Arc::clone(&name),
            writable: true,
            object: None,
        };
        let spaces = vec![Space { id: space, name }];
        let mappings = Mappings { spaces, mappings: vec![mapping], ..Mappings::default() };
        observer.target = Target {
            owners: vec![me(started())],
            mappings: Arc::new(mappings),
            heirs: [space].into(),
        };
        observer.read_resident_bytes(Time(0));
        observer.publish();
        assert_eq!(published(&observer).spaces[0].bytes, 3 * 4096);
    }

    #[test]
    fn a_process_with_a_reused_pid_is_omitted() {
        let mut observer = observer(Proc::default());
        observer.target.owners = vec![me(started() + 1)];
        observer.observe();
        assert!(published(&observer).spaces.is_empty());
    }

    #[test]
    fn only_living_spaces_are_reported() {
        let mut monitor = NumaMonitor::start(Proc::default(), None).unwrap();
        monitor.set(vec![me(started())], Arc::default(), BTreeSet::new());
        let mut found =
            |lives: fn(SpaceId) -> bool| monitor.found(&Arc::default(), |_| None, lives);
        while found(|_| true).spaces.is_empty() {
            thread::yield_now();
        }
        assert!(found(|space| space != SpaceId(3)).spaces.is_empty());
    }

    #[test]
    fn configured_tiers_are_reported_instead_of_those_of_the_machine() {
        let mut monitor = NumaMonitor::start(Proc::default(), None).unwrap();
        let tiers = vec![vec![Node(7)], vec![Node(0), Node(3)]];
        monitor.set_tiers(tiers.clone());
        assert_eq!(monitor.found(&Arc::default(), |_| None, |_| true).tiers, tiers);
    }
}
