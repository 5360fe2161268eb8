//! Resident memory of the target, and its placement on NUMA nodes: determined by a separate thread,
//! so that sampling never waits for it.
//!
//! Resident bytes are read once a second, as are the extents of resident and swapped memory, and
//! the placement every ten seconds; each less often if it would take more than 1/500 of a CPU.
//! Extents of large targets are found in steps. The pages of a space of up to [`COUNTED`] are
//! counted one by one (`numa_maps`), which holds the mmap lock for as long as it takes; of a larger
//! space some thousand pages are sampled instead.

mod extents;
mod page_runs;
mod page_sample;
mod page_set;
mod survey;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tierscope_core::{
    Addr, Error, ErrorKind, Mappings, Node, OnNode, Placed, Range, Residence, Result, Rng, SpaceId,
    SpaceResidence, Time,
};

use crate::clock;
use crate::latest::Latest;
use crate::proc::{ByNode, Cgroup, Proc};
use crate::space_owners::Owner;
use crate::tiers;
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

/// The processes to observe, with their mappings.
struct Target {
    owners: Vec<Owner>,
    mappings: Arc<Mappings>,
}

/// Handle of the observing thread, which ends when this is dropped.
pub(crate) struct NumaMonitor {
    latest: Latest<Residence>,
    targets: Sender<Target>,
}

impl NumaMonitor {
    /// Starts the thread, without processes to observe. If the target is a cgroup, also its
    /// zswapped memory is observed.
    pub(crate) fn start(proc: Proc, cgroup: Option<Cgroup>) -> Result<Self> {
        let tiers = tiers::tiers(Path::new("/sys"));
        let latest = Latest::new(Residence { tiers, ..Residence::default() });
        let (targets, updates) = channel();
        let observer = Observer { cgroup, ..Observer::new(proc, latest.clone()) };
        let name = "tierscope-nodes".to_owned();
        thread::Builder::new().name(name).spawn(move || observe(observer, &updates)).map_err(
            |e| {
                Error::new(ErrorKind::Other, "cannot start a thread")
                    .cause(e)
                    .remedy("raise the limit of processes with `ulimit -u`")
            },
        )?;
        Ok(Self { latest, targets })
    }

    /// Sets the processes to observe, and their mappings.
    pub(crate) fn set(&self, owners: Vec<Owner>, mappings: Arc<Mappings>) {
        // If the thread has ended, there is nothing to update.
        let _ = self.targets.send(Target { owners, mappings });
    }

    /// The latest result, restricted to the spaces for which `lives` holds.
    pub(crate) fn found(&self, lives: impl Fn(SpaceId) -> bool) -> Arc<Residence> {
        let found = self.latest.get();
        if found.spaces.iter().all(|of| lives(of.space)) {
            return found;
        }
        let spaces = found.spaces.iter().filter(|of| lives(of.space)).cloned().collect();
        Arc::new(Residence { tiers: found.tiers.clone(), spaces, zswapped: found.zswapped })
    }
}

/// Main loop of the thread: observes when due, until the handle is dropped.
fn observe(mut observer: Observer, updates: &Receiver<Target>) {
    loop {
        let due = observer.due().since(clock::monotonic());
        match updates.recv_timeout(due) {
            Ok(target) => observer.target = updates.try_iter().last().unwrap_or(target),
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
}

impl Pace {
    /// Due immediately, and from then on every `period`.
    fn every(period: Duration) -> Self {
        Self { period, next: Time(0) }
    }

    /// Schedules the next run, after one that began at `began` and took `cost` CPU time.
    fn done(&mut self, began: Time, cost: Duration) {
        self.next = began + self.period.max(cost * SHARE);
    }
}

struct Observer {
    proc: Proc,
    cgroup: Option<Cgroup>,
    zswapped: Option<u64>,
    latest: Latest<Residence>,
    target: Target,
    found: BTreeMap<SpaceId, SpaceResidence>,
    /// What the surveys found out so far, and the survey under way.
    surveyed: BTreeMap<SpaceId, Surveyed>,
    survey: Option<Survey>,
    survey_step: Duration,
    /// Bytes of the shared space by node, summed over its users.
    viewed: ByNode,
    resident: Pace,
    extents: Pace,
    placement: Pace,
    rng: Rng,
}

impl Observer {
    fn new(proc: Proc, latest: Latest<Residence>) -> Self {
        Self {
            proc,
            cgroup: None,
            zswapped: None,
            latest,
            target: Target { owners: Vec::new(), mappings: Arc::default() },
            found: BTreeMap::new(),
            surveyed: BTreeMap::new(),
            survey: None,
            survey_step: FIRST_STEP,
            viewed: ByNode::new(),
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
            let before = clock::thread_cpu();
            self.find_extents();
            self.extents.done(began, clock::thread_cpu().saturating_sub(before));
            self.publish();
        }
        if began >= self.placement.next {
            let before = clock::thread_cpu();
            self.read_placement();
            self.placement.done(began, clock::thread_cpu().saturating_sub(before));
            self.publish();
        }
    }

    /// Updates resident bytes. Processes that have ended or cannot be read are omitted.
    fn read_resident_bytes(&mut self, taken: Time) {
        let mut found = BTreeMap::new();
        for owner in &self.target.owners {
            let Ok(Some(bytes)) = self.proc.resident(owner.pid) else { continue };
            if !is_still(&self.proc, owner) {
                continue;
            }
            let placed = self.found.remove(&owner.space).and_then(|before| before.placed);
            let (space, extents) = (owner.space, None);
            found.insert(space, SpaceResidence { space, taken, bytes, placed, extents });
        }
        self.found = found;
        self.zswapped = self.cgroup.as_ref().and_then(Cgroup::zswapped);
        self.insert_extents();
    }

    /// Goes on with the survey of extents, or begins one.
    fn find_extents(&mut self) {
        let begin = || Survey::of(self.proc.clone(), &self.target);
        let mut survey = self.survey.take().unwrap_or_else(begin);
        let complete = survey.step(std::mem::replace(&mut self.survey_step, STEP));
        self.surveyed.extend(survey.take());
        if complete {
            let shared = survey.shared();
            self.surveyed.extend(shared.map(|(id, extents)| (id, Surveyed { extents, viewed: 0 })));
        } else {
            self.survey = Some(survey);
        }
        self.insert_extents();
    }

    /// Enters the extents into what was found. Memory of the shared space counts there only.
    fn insert_extents(&mut self) {
        let shared = self.target.mappings.shared;
        let lives = |space: &SpaceId| self.found.contains_key(space) || shared == Some(*space);
        self.surveyed.retain(|space, _| lives(space));
        for (space, surveyed) in &self.surveyed {
            let extents = Some(Arc::clone(&surveyed.extents));
            let found = self.found.get_mut(space).filter(|_| shared != Some(*space));
            match found {
                Some(found) if found.extents.is_none() => {
                    found.bytes = found.bytes.saturating_sub(surveyed.viewed);
                    found.extents = extents;
                }
                Some(found) => found.extents = extents,
                None => {
                    let bytes = surveyed.extents.iter().map(|extent| extent.resident).sum();
                    let (space, taken) = (*space, clock::monotonic());
                    let nodes = distribute(bytes, &self.viewed);
                    let placed = nodes.map(|nodes| Placed { taken, nodes, drawn: 0 });
                    let found = SpaceResidence { space, taken, bytes, placed, extents };
                    self.found.insert(space, found);
                }
            }
        }
    }

    fn read_placement(&mut self) {
        let mut viewed = ByNode::new();
        for index in 0..self.target.owners.len() {
            let owner = self.target.owners[index];
            let Some(bytes) = self.found.get(&owner.space).map(|found| found.bytes) else {
                continue;
            };
            let taken = clock::monotonic();
            let placed = match bytes {
                ..=COUNTED => self.count(&owner, &mut viewed),
                _ => self.sample(&owner, bytes),
            };
            let placed = placed.filter(|_| is_still(&self.proc, &owner));
            if let Some(found) = self.found.get_mut(&owner.space) {
                found.placed = placed.map(|(nodes, drawn)| Placed { taken, nodes, drawn });
            }
        }
        self.viewed = viewed;
        self.insert_extents();
    }

    /// The nodes of a process's own memory, page by page; those of shared memory are added to
    /// `viewed`.
    fn count(&self, owner: &Owner, viewed: &mut ByNode) -> Option<(Vec<OnNode>, u64)> {
        let views = &self.target.mappings.views;
        let is_view = |start: u64| {
            let first = Addr { space: owner.space, at: start };
            let key = (first.space, first.at);
            let next = views.partition_point(|v| (v.range.space, v.range.end) <= key);
            views.get(next).is_some_and(|view| view.range.contains(first))
        };
        let (nodes, others) = self.proc.by_node_apart(owner.pid, is_view).ok()??;
        for (node, bytes) in others {
            let sum = viewed.entry(node).or_default();
            *sum = sum.saturating_add(bytes);
        }
        let on = |(node, bytes): (Node, u64)| OnNode { node, bytes };
        Some((nodes.into_iter().map(on).collect(), 0))
    }

    fn sample(&mut self, owner: &Owner, bytes: u64) -> Option<(Vec<OnNode>, u64)> {
        let mappings = self.target.mappings.mappings.iter().map(|mapping| mapping.range);
        let ranges: Vec<Range> = mappings.filter(|range| range.space == owner.space).collect();
        let mut locate = |at: &[u64], nodes: &mut [i32]| page_sample::locate(owner.pid, at, nodes);
        let sample = page_sample::draw(&ranges, &mut self.rng, &mut locate)?;
        Some((sample.distribute(bytes), sample.pages))
    }

    fn publish(&self) {
        let tiers = self.latest.get().tiers.clone();
        let spaces = self.found.values().cloned().collect();
        self.latest.publish(Residence { tiers, spaces, zswapped: self.zswapped });
    }
}

/// Distributes `bytes` in proportion to `nodes`; `None` if those are empty.
fn distribute(bytes: u64, nodes: &ByNode) -> Option<Vec<OnNode>> {
    let all: u128 = nodes.values().map(|bytes| u128::from(*bytes)).sum();
    let share = |of: u64| (u128::from(bytes) * u128::from(of) / all.max(1)) as u64;
    let on = |(node, of): (&Node, &u64)| OnNode { node: *node, bytes: share(*of) };
    (all > 0).then(|| nodes.iter().map(on).collect())
}

/// Whether the pid still refers to the same process.
fn is_still(proc: &Proc, owner: &Owner) -> bool {
    proc.stat(owner.pid).is_ok_and(|stat| stat.is_some_and(|stat| stat.started == owner.started))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Mapping;

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
        observer.latest.get()
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
        let shares = distribute(4 << 20, &nodes);
        assert_eq!(shares, Some(vec![on(0, 1 << 20), on(2, 3 << 20)]));
        assert_eq!(distribute(4 << 20, &ByNode::new()), None);
    }

    // Samples the pages of a vector; the kernel returns their nodes even without NUMA hardware.
    #[test]
    fn the_kernel_locates_sampled_pages() {
        let touched = std::hint::black_box(vec![1u8; 16 << 20]);
        let at = touched.as_ptr() as u64 & !4095;
        let mut observer = observer(Proc::default());
        let range = Range::new(SpaceId(3), at + 4096, at + (16 << 20));
        let mapping = Mapping {
            range,
            backing: tierscope_core::Backing::Anonymous,
            name: "".into(),
            writable: true,
            object: None,
        };
        let mappings = Mappings { mappings: vec![mapping], ..Mappings::default() };
        observer.target.mappings = Arc::new(mappings);
        let mut one = [0];
        if !page_sample::locate(std::process::id(), &[range.start], &mut one) {
            eprintln!("skipped: this kernel has no move_pages, or forbids it");
            return;
        }
        let (nodes, drawn) = observer.sample(&me(0), 1000).unwrap();
        assert!(drawn >= 64 && !nodes.is_empty(), "{drawn} {nodes:?}");
        assert!((990..=1000).contains(&nodes.iter().map(|on| on.bytes).sum::<u64>()), "{nodes:?}");
        drop(touched);
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
        let monitor = NumaMonitor::start(Proc::default(), None).unwrap();
        monitor.set(vec![me(started())], Arc::default());
        while monitor.found(|_| true).spaces.is_empty() {
            thread::yield_now();
        }
        assert!(monitor.found(|space| space != SpaceId(3)).spaces.is_empty());
    }
}
