//! Resident memory of the target, and its placement on NUMA nodes: determined by a separate thread,
//! so that sampling never waits for it.
//!
//! Resident bytes are read once a second, the placement every ten seconds; either less often if it
//! would take more than 1/500 of a CPU. The pages of a space of up to [`COUNTED`] are counted one
//! by one (`numa_maps`), which holds the mmap lock for as long as it takes; of a larger space some
//! thousand pages are sampled instead.

mod draw;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tierscope_core::{
    Error, ErrorKind, Mappings, Node, OnNode, Placed, Range, Residence, Result, Rng, SpaceId,
    SpaceResidence, Time,
};

use crate::mover::kernel::Member;
use crate::proc::Proc;
use crate::tiers;

/// Spaces with more resident bytes than this are sampled instead of counted: for 2^20 pages of 4
/// KiB the lock is held for some ten milliseconds.
const COUNTED: u64 = 4 << 30;
/// Period of reading resident bytes.
const RESIDENT: Duration = Duration::from_secs(1);
/// Period of determining the placement on nodes.
const PLACES: Duration = Duration::from_secs(10);
/// Maximum share of one CPU for each of the two: 1/500.
const SHARE: u32 = 500;

/// The processes to observe, with their mappings.
struct Members {
    all: Vec<Member>,
    mappings: Arc<Mappings>,
}

/// The latest result.
type Board = Arc<Mutex<Arc<Residence>>>;

/// Handle of the observing thread, which ends when this is dropped.
pub(crate) struct Watcher {
    board: Board,
    members: Sender<Members>,
}

impl Watcher {
    /// Starts the thread, without processes to observe.
    pub(crate) fn start(proc: Proc) -> Result<Self> {
        let tiers = tiers::tiers(Path::new("/sys"));
        let board: Board = Arc::new(Mutex::new(Arc::new(Residence { tiers, spaces: Vec::new() })));
        let (members, told) = channel();
        let looker = Looker::new(proc, Arc::clone(&board));
        let name = "tierscope-nodes".to_owned();
        thread::Builder::new().name(name).spawn(move || watch(looker, &told)).map_err(|e| {
            Error::new(ErrorKind::Other, "cannot start a thread")
                .cause(e)
                .remedy("raise the limit of processes with `ulimit -u`")
        })?;
        Ok(Self { board, members })
    }

    /// Sets the processes to observe, and their mappings.
    pub(crate) fn set(&self, all: Vec<Member>, mappings: Arc<Mappings>) {
        // If the thread has ended, there is nothing to update.
        let _ = self.members.send(Members { all, mappings });
    }

    /// The latest result, restricted to the spaces for which `lives` holds.
    pub(crate) fn found(&self, lives: impl Fn(SpaceId) -> bool) -> Arc<Residence> {
        let found = Arc::clone(&self.board.lock().unwrap_or_else(PoisonError::into_inner));
        if found.spaces.iter().all(|of| lives(of.space)) {
            return found;
        }
        let spaces = found.spaces.iter().filter(|of| lives(of.space)).cloned().collect();
        Arc::new(Residence { tiers: found.tiers.clone(), spaces })
    }
}

/// Main loop of the thread: observes when due, until the handle is dropped.
fn watch(mut looker: Looker, told: &Receiver<Members>) {
    loop {
        let due = looker.due().since(now());
        match told.recv_timeout(due) {
            Ok(members) => looker.members = told.try_iter().last().unwrap_or(members),
            Err(RecvTimeoutError::Timeout) => looker.look(),
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

struct Looker {
    proc: Proc,
    board: Board,
    members: Members,
    found: BTreeMap<SpaceId, SpaceResidence>,
    resident: Pace,
    places: Pace,
    rng: Rng,
}

impl Looker {
    fn new(proc: Proc, board: Board) -> Self {
        Self {
            proc,
            board,
            members: Members { all: Vec::new(), mappings: Arc::default() },
            found: BTreeMap::new(),
            resident: Pace::every(RESIDENT),
            places: Pace::every(PLACES),
            rng: Rng::seeded(0),
        }
    }

    /// Time of the next run; always in ten seconds while there are no processes to observe.
    fn due(&self) -> Time {
        match self.members.all.is_empty() {
            true => now() + PLACES,
            false => self.resident.next.min(self.places.next),
        }
    }

    /// Does the tasks that are due, and publishes their results.
    fn look(&mut self) {
        let (began, before) = (now(), cpu());
        self.look_at_bytes(began);
        self.resident.done(began, cpu().saturating_sub(before));
        self.publish();
        if began >= self.places.next {
            let before = cpu();
            self.look_at_places();
            self.places.done(began, cpu().saturating_sub(before));
            self.publish();
        }
    }

    /// Updates resident bytes. Processes that have ended or cannot be read are omitted.
    fn look_at_bytes(&mut self, taken: Time) {
        let mut found = BTreeMap::new();
        for member in &self.members.all {
            let Ok(Some(bytes)) = self.proc.resident(member.pid) else { continue };
            if !is_still(&self.proc, member) {
                continue;
            }
            let placed = self.found.remove(&member.space).and_then(|before| before.placed);
            let space = member.space;
            found.insert(space, SpaceResidence { space, taken, bytes, placed });
        }
        self.found = found;
    }

    fn look_at_places(&mut self) {
        for index in 0..self.members.all.len() {
            let member = self.members.all[index];
            let Some(bytes) = self.found.get(&member.space).map(|found| found.bytes) else {
                continue;
            };
            let taken = now();
            let placed = match bytes {
                ..=COUNTED => self.count(member.pid),
                _ => self.draw(&member, bytes),
            };
            let placed = placed.filter(|_| is_still(&self.proc, &member));
            if let Some(found) = self.found.get_mut(&member.space) {
                found.placed = placed.map(|(nodes, drawn)| Placed { taken, nodes, drawn });
            }
        }
    }

    fn count(&self, pid: u32) -> Option<(Vec<OnNode>, u64)> {
        let nodes = self.proc.by_node(pid).ok()??;
        let on = |(node, bytes): (Node, u64)| OnNode { node, bytes };
        Some((nodes.into_iter().map(on).collect(), 0))
    }

    fn draw(&mut self, member: &Member, bytes: u64) -> Option<(Vec<OnNode>, u64)> {
        let mappings = self.members.mappings.mappings.iter().map(|mapping| mapping.range);
        let ranges: Vec<Range> = mappings.filter(|range| range.space == member.space).collect();
        let mut locate = |at: &[u64], nodes: &mut [i32]| draw::locate(member.pid, at, nodes);
        let drawn = draw::draw(&ranges, &mut self.rng, &mut locate)?;
        Some((drawn.share_out(bytes), drawn.pages))
    }

    fn publish(&self) {
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        let spaces = self.found.values().cloned().collect();
        *board = Arc::new(Residence { tiers: board.tiers.clone(), spaces });
    }
}

/// Whether the pid still refers to the same process.
fn is_still(proc: &Proc, member: &Member) -> bool {
    proc.stat(member.pid).is_ok_and(|stat| stat.is_some_and(|stat| stat.started == member.started))
}

fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Mapping;

    fn looker(proc: Proc) -> Looker {
        Looker::new(proc, Board::default())
    }

    fn me(started: u64) -> Member {
        Member { space: SpaceId(3), pid: std::process::id(), started }
    }

    fn started() -> u64 {
        Proc::default().stat(std::process::id()).unwrap().unwrap().started
    }

    fn told(looker: &Looker) -> Arc<Residence> {
        Arc::clone(&looker.board.lock().unwrap())
    }

    #[test]
    fn what_costs_much_is_done_seldom() {
        let mut pace = Pace::every(Duration::from_secs(1));
        pace.done(Time(5), Duration::from_millis(2));
        assert_eq!(pace.next, Time(5) + Duration::from_secs(1));
        pace.done(Time(5), Duration::from_millis(40));
        assert_eq!(pace.next, Time(5) + Duration::from_secs(20));
    }

    // This process touches 16 MiB: they are resident, and on some node if the kernel has NUMA.
    #[test]
    fn finds_what_this_process_touched() {
        let touched = std::hint::black_box(vec![1u8; 16 << 20]);
        let mut looker = looker(Proc::default());
        looker.members.all = vec![me(started())];
        looker.look();
        let found = told(&looker);
        let [of] = found.spaces.as_slice() else { panic!("{found:?}") };
        assert!(of.bytes >= 16 << 20 && of.space == SpaceId(3), "{of:?}");
        if let Some(placed) = &of.placed {
            let sum: u64 = placed.nodes.iter().map(|on| on.bytes).sum();
            assert!(sum >= 16 << 20 && placed.drawn == 0, "{placed:?}");
        }
        drop(touched);
    }

    // Samples the pages of a vector; the kernel returns their nodes even without NUMA hardware.
    #[test]
    fn the_kernel_tells_where_drawn_pages_are() {
        let touched = std::hint::black_box(vec![1u8; 16 << 20]);
        let at = touched.as_ptr() as u64 & !4095;
        let mut looker = looker(Proc::default());
        let range = Range::new(SpaceId(3), at + 4096, at + (16 << 20));
        let mapping = Mapping {
            range,
            backing: tierscope_core::Backing::Anonymous,
            name: "".into(),
            writable: true,
        };
        let mappings = Mappings { mappings: vec![mapping], ..Mappings::default() };
        looker.members.mappings = Arc::new(mappings);
        let mut one = [0];
        if !draw::locate(std::process::id(), &[range.start], &mut one) {
            eprintln!("skipped: this kernel has no move_pages, or forbids it");
            return;
        }
        let (nodes, drawn) = looker.draw(&me(0), 1000).unwrap();
        assert!(drawn >= 64 && !nodes.is_empty(), "{drawn} {nodes:?}");
        assert!((990..=1000).contains(&nodes.iter().map(|on| on.bytes).sum::<u64>()), "{nodes:?}");
        drop(touched);
    }

    #[test]
    fn another_bearer_of_the_pid_is_not_told_of() {
        let mut looker = looker(Proc::default());
        looker.members.all = vec![me(started() + 1)];
        looker.look();
        assert!(told(&looker).spaces.is_empty());
    }

    #[test]
    fn a_watcher_tells_of_living_spaces_only() {
        let watcher = Watcher::start(Proc::default()).unwrap();
        watcher.set(vec![me(started())], Arc::default());
        while watcher.found(|_| true).spaces.is_empty() {
            thread::yield_now();
        }
        assert!(watcher.found(|space| space != SpaceId(3)).spaces.is_empty());
    }
}
