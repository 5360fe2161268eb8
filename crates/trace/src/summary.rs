//! Totals of a trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use tierscope_core::Time;
use tierscope_core::names::plain;

use crate::access::{Access, Event, Kind};
use crate::pages::{PAGE, Pages};

/// A thread and its accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Pid of its process.
    pub pid: u64,
    /// Its tid in the traced system.
    pub tid: u64,
    /// Name for display, [plain].
    pub name: Arc<str>,
    /// Accesses by kind, in the order of [`Kind::ALL`].
    pub accesses: [u64; 4],
}

/// Touched pages of a process, by blocks of 2 MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Pid of the process.
    pub pid: u64,
    /// Blocks with data accesses: block number, and touched 4 KiB pages in it.
    pub data: Vec<(u64, u64)>,
    /// Blocks with instruction fetches: block number, and touched 4 KiB pages in it.
    pub code: Vec<(u64, u64)>,
}

/// Totals of a whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Threads, by number.
    pub threads: Vec<Thread>,
    /// Bytes accessed by kind; accesses of unknown length are left out.
    pub bytes: [u64; 4],
    /// Time of the last access; 0 if the trace has no times.
    pub last: Time,
    /// Touched pages of each process.
    pub footprints: Vec<Footprint>,
    /// Whether the trace covers the program's whole run; not if writing it was stopped.
    pub whole: bool,
}

impl Summary {
    /// Accesses by kind.
    #[must_use]
    pub fn accesses(&self) -> [u64; 4] {
        let add = |mut sum: [u64; 4], thread: &Thread| {
            sum.iter_mut().zip(thread.accesses).for_each(|(sum, more)| *sum += more);
            sum
        };
        self.threads.iter().fold([0; 4], add)
    }

    /// Number of all accesses.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.accesses().iter().sum()
    }

    /// Number of data accesses.
    #[must_use]
    pub fn data(&self) -> u64 {
        self.total() - self.accesses()[Kind::Fetch as usize]
    }

    /// Bytes of the pages that data accesses touched.
    #[must_use]
    pub fn data_footprint(&self) -> u64 {
        self.footprints.iter().flat_map(|f| &f.data).map(|(_, pages)| pages * PAGE).sum()
    }

    /// Bytes of the pages that instructions were fetched from.
    #[must_use]
    pub fn code_footprint(&self) -> u64 {
        self.footprints.iter().flat_map(|f| &f.code).map(|(_, pages)| pages * PAGE).sum()
    }
}

/// Accumulates the totals of a trace.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    threads: Vec<Thread>,
    /// For each thread, the index of its process in [`Tally::processes`].
    process_of: Vec<usize>,
    processes: Vec<Process>,
    numbers: BTreeMap<u64, usize>,
    bytes: [u64; 4],
    last: Time,
}

#[derive(Clone, Debug, Default)]
struct Process {
    pid: u64,
    data: Pages,
    code: Pages,
}

impl Tally {
    /// Counts an access. Threads without an event belong to process 0.
    #[inline]
    pub fn access(&mut self, access: &Access) {
        let at = access.thread as usize;
        if at >= self.threads.len() {
            self.reach(at);
        }
        self.threads[at].accesses[access.kind as usize] += 1;
        self.bytes[access.kind as usize] += u64::from(access.bytes);
        self.last = self.last.max(access.time);
        let process = &mut self.processes[self.process_of[at]];
        let pages = if access.kind == Kind::Fetch { &mut process.code } else { &mut process.data };
        pages.touch(access.address, access.bytes);
    }

    #[cold]
    fn reach(&mut self, thread: usize) {
        let process = self.process(0);
        self.threads.resize(thread + 1, Thread::default());
        self.process_of.resize(thread + 1, process);
    }

    fn process(&mut self, pid: u64) -> usize {
        *self.numbers.entry(pid).or_insert_with(|| {
            self.processes.push(Process { pid, ..Process::default() });
            self.processes.len() - 1
        })
    }

    /// Records the identity of a thread; other events are ignored.
    pub fn event(&mut self, event: &Event) {
        let Event::Thread { number, pid, tid, name } = event else { return };
        let at = *number as usize;
        if at >= self.threads.len() {
            self.reach(at);
        }
        let accesses = self.threads[at].accesses;
        let name = Arc::from(plain(name));
        self.threads[at] = Thread { pid: *pid, tid: *tid, name, accesses };
        self.process_of[at] = self.process(*pid);
    }

    /// The totals so far.
    #[must_use]
    pub fn summary(&self, whole: bool) -> Summary {
        let touched = |process: &Process| Footprint {
            pid: process.pid,
            data: process.data.blocks().collect(),
            code: process.code.blocks().collect(),
        };
        let some = |footprint: &Footprint| !footprint.data.is_empty() || !footprint.code.is_empty();
        Summary {
            threads: self.threads.clone(),
            bytes: self.bytes,
            last: self.last,
            footprints: self.processes.iter().map(touched).filter(some).collect(),
            whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_thread_and_process() {
        let mut tally = Tally::default();
        let name: Arc<str> = "x".into();
        tally.event(&Event::Thread { number: 1, pid: 7, tid: 8, name: name.clone() });
        let access =
            |thread, address, kind| Access { thread, address, kind, bytes: 8, time: Time(3) };
        for access in [
            access(0, 0x1000, Kind::Load),
            access(1, 0x1000, Kind::Store),
            access(1, 0x1ffc, Kind::Load),
            access(1, 0x40_0000, Kind::Fetch),
        ] {
            tally.access(&access);
        }
        let summary = tally.summary(true);
        let expected = [
            Thread { accesses: [1, 0, 0, 0], ..Thread::default() },
            Thread { pid: 7, tid: 8, name, accesses: [1, 1, 0, 1] },
        ];
        assert_eq!(summary.threads, expected);
        assert_eq!((summary.total(), summary.data(), summary.bytes), (4, 3, [16, 8, 0, 8]));
        assert_eq!((summary.data_footprint(), summary.code_footprint()), (3 * PAGE, PAGE));
        assert_eq!(summary.last, Time(3));
    }
}
