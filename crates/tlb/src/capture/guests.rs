//! Programs in a guest, with a monitor on the memory bus (PTAT,
//! section 7).
//!
//! The hypervisor keeps those page tables whose entries map pages, the guest's and its own, in the
//! uncached region, so that the bus shows both dimensions of a walk: reads of the guest's entries,
//! and reads of the host entries that translate the addresses of these entries and of the page. The
//! dump marks the guest machine itself, and the processes that run in it. The programs go through
//! the MMUs of a machine; caches and time are not simulated: requests are spaced by a fixed
//! interval of more than a tick.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tierscope_core::{
    Access, Backing, BusObserver, BusRecord, Error, ErrorKind, Level, Result, Time,
};
use tierscope_hw::PageSize;
use tierscope_hw::entry::{FRAME_MASK, WRITABLE};
use tierscope_sim::experiment::Experiment;
use tierscope_trace::Event;
use tierscope_trace::compact::Writer;
use tierscope_workloads::{Program, Stream, Touch};

use super::simulated::TABLES;
use super::{NAMES, create};
use crate::attribution::{Model, Second, Side, Step, Tables};
use crate::ptat::{Boards, Change, DumpHeader, Files, KernelEvent, Monitor, Stage, What, Window};

/// The guest machine's id in the dump; its processes have the ids that follow.
const MACHINE: u32 = 1;
/// Accesses of a process per turn in the round robin.
const TURN: usize = 512;
/// Nanoseconds from one request to the next: more than a tick of the boards.
const STEP: u64 = 10;

/// The hypervisor's state: use of the uncached region, and the messages to the monitor.
struct Hypervisor<W: Write> {
    monitor: Monitor<W>,
    region: Window,
    tags: Window,
    /// Index of each page table in the region, by side and address; each table follows its control
    /// block.
    tables: HashMap<(Side, u64), u64>,
    mapped: HashSet<u64>,
    /// Reads of entries that were not present: walks that ended in a fault.
    faulted: HashMap<u64, u8>,
    /// Processes by the address of their root table.
    pids: HashMap<u64, u32>,
    now: u64,
    tag: u64,
}

impl<W: Write> Hypervisor<W> {
    fn new(monitor: Monitor<W>, header: &DumpHeader) -> Self {
        Self {
            monitor,
            region: header.region,
            tags: header.tags,
            tables: HashMap::new(),
            mapped: HashSet::new(),
            faulted: HashMap::new(),
            pids: HashMap::new(),
            now: 0,
            tag: 0,
        }
    }

    /// Address of an entry within the region; `None` if its table is not in the region.
    fn place(&self, side: Side, entry: u64) -> Option<u64> {
        let table = self.tables.get(&(side, entry & !4095))?;
        Some(self.region.start + (table << 13) + 4096 + (entry & 4095))
    }

    fn read(&mut self, address: u64) {
        self.now += STEP;
        self.monitor.observe(&[BusRecord::new(Time(self.now), address, false)]);
    }

    /// Replays one step of a walk, or the resolution of its fault, on the bus.
    fn step(&mut self, step: &Step, guest: &Tables, host: &Tables) -> Result<()> {
        match *step {
            Step::Read(side, entry) => {
                let Some(address) = self.place(side, entry) else { return Ok(()) };
                if !self.mapped.contains(&address) {
                    *self.faulted.entry(address).or_default() += 1;
                }
                self.read(address);
                Ok(())
            }
            Step::Map { side, root, linear } => {
                let tables = if side == Side::Guest { guest } else { host };
                let Some((entry, value, level)) = tables.leaf(root, linear) else { return Ok(()) };
                self.map(side, (root.table, linear), (entry, value), level)
            }
        }
    }

    /// Makes an entry map a page, and writes the change to the dump.
    fn map(
        &mut self,
        side: Side,
        (root, linear): (u64, u64),
        (entry, value): (u64, u64),
        level: Level,
    ) -> Result<()> {
        let room = self.region.bytes >> 13;
        let next = self.tables.len() as u64;
        if next < room {
            self.tables.entry((side, entry & !4095)).or_insert(next);
        }
        // A table that does not fit into the region is placed elsewhere, unseen by the monitor.
        let address = self.place(side, entry).unwrap_or(entry & 0xffff_f000);
        let pid = if side == Side::Host { MACHINE } else { self.pid(root)? };
        let change = Change {
            what: What::Map,
            pid,
            level,
            writable: value & WRITABLE != 0,
            page: (linear & !(level.entry_bytes() - 1)) >> 12,
            frame: (value & FRAME_MASK) >> 12,
            entry: address,
            reads: self.faulted.remove(&address).unwrap_or(0),
        };
        self.mapped.insert(address);
        self.send(KernelEvent::Change(change))
    }

    /// The process id of a root table; a new process is announced to the monitor first.
    fn pid(&mut self, root: u64) -> Result<u32> {
        if let Some(pid) = self.pids.get(&root) {
            return Ok(*pid);
        }
        let pid = MACHINE + 1 + self.pids.len() as u32;
        self.pids.insert(root, pid);
        for stage in [Stage::Announced, Stage::Within(MACHINE), Stage::Executes] {
            self.monitor.record(&[KernelEvent::Process { pid, stage }], 0)?;
        }
        Ok(pid)
    }

    /// Sends the monitor a message, followed by a tag that marks when it takes effect.
    fn send(&mut self, event: KernelEvent) -> Result<()> {
        self.monitor.record(&[event, KernelEvent::Tag(self.tag)], 0)?;
        self.read(self.tags.start + self.tag * 64 % self.tags.bytes);
        self.tag += 1;
        Ok(())
    }
}

/// Counts of a capture: accesses and walks of the guest's programs, and lookups in the hypervisor's
/// tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Accesses of the programs.
    pub accesses: u64,
    /// Walks of the guest's tables.
    pub walks: u64,
    /// Lookups in the hypervisor's tables.
    pub second: Second,
}

/// Captures the experiment's processes in a guest that the hypervisor backs with pages of the given
/// size, for `accesses` accesses each, into a directory.
///
/// # Errors
/// A process computes its accesses, which needs a machine with time; or a write failed.
pub fn capture(
    experiment: &Experiment,
    host_pages: PageSize,
    accesses: u64,
    boards: Boards,
    directory: &Path,
    stop: &AtomicBool,
) -> Result<Captured> {
    let header = header(experiment.setup.hardware.processor.physical_bits, TABLES);
    let files = Files::of(directory, boards.count);
    let monitor = Monitor::new(boards, header, |board| {
        create(board.map_or(&files.dump, |board| &files.boards[usize::from(board)]))
    })?;
    names(experiment, &directory.join(NAMES))?;
    run(experiment, host_pages, accesses, monitor, &header, stop)
}

/// A program's endless stream of accesses.
struct Running {
    stream: Stream,
    touches: Vec<Touch>,
    size: PageSize,
}

/// Runs the experiment's processes in the guest.
fn run<W: Write>(
    experiment: &Experiment,
    host_pages: PageSize,
    accesses: u64,
    monitor: Monitor<W>,
    header: &DumpHeader,
    stop: &AtomicBool,
) -> Result<Captured> {
    let hardware = &experiment.setup.hardware;
    let mut model = Model::new(hardware, None)?.nested(hardware, host_pages)?.heard();
    let mut hypervisor = Hypervisor::new(monitor, header);
    hypervisor.send(KernelEvent::Process { pid: MACHINE, stage: Stage::Machine })?;
    let mut running = Vec::new();
    for process in &experiment.processes {
        let workload = process.work.described().ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("cannot run {} in a guest", process.name))
                .cause("it computes its accesses, which takes a machine with time")
                .remedy("give workloads that are described: masim's, or `contiguous` and its like")
        })?;
        let stream =
            Stream::new(&Arc::new(Program::new(&workload)), &bases(process), process.seed, 0, 1);
        let touches = vec![Touch::default(); TURN];
        running.push(Running { stream, touches, size: process.pages });
    }
    for _ in 0..accesses.div_ceil(TURN as u64) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        for (number, program) in running.iter_mut().enumerate() {
            program.stream.fill(&mut program.touches);
            for touch in &program.touches {
                let access = if touch.writes() { Access::Store } else { Access::Load };
                model.access((0, number as u64), touch.address(), access, program.size);
                let (steps, guest, host) = model.take_steps();
                steps.iter().try_for_each(|step| hypervisor.step(step, guest, host))?;
            }
        }
    }
    let second = model.second().unwrap_or_default();
    let mut pids: Vec<u32> = hypervisor.pids.values().copied().collect();
    pids.sort_unstable();
    for pid in pids.into_iter().chain([MACHINE]) {
        hypervisor.send(KernelEvent::Process { pid, stage: Stage::Exited })?;
    }
    hypervisor.monitor.finish()?;
    Ok(Captured { accesses: model.counts.accesses, walks: model.counts.walks, second })
}

/// Base addresses of a process's areas: one after another, each aligned to 1 GiB.
fn bases(process: &tierscope_sim::exact::Process) -> Vec<u64> {
    let mut next = 1 << 32;
    let place = |bytes: u64| {
        let base = next;
        next += bytes.next_multiple_of(1 << 30);
        base
    };
    process.work.areas().iter().map(|area| area.bytes).map(place).collect()
}

/// Placement of the uncached region and of the tags, the same as on a machine without a guest.
fn header(physical_bits: u32, tables: u32) -> DumpHeader {
    let (half, tags) = (1u64 << (physical_bits - 1), 1u64 << 20);
    DumpHeader {
        record: 13,
        region: Window { start: half, bytes: u64::from(tables) << 13 },
        tags: Window { start: 2 * half - tags, bytes: tags },
    }
}

/// Writes the names of mappings: areas of the processes, and the guest's memory.
fn names(experiment: &Experiment, path: &Path) -> Result<()> {
    let (name, out) = create(path)?;
    let mut names = Writer::new(&name, out)?;
    let mut map = |pid: u32, start, bytes, name: &str| {
        let (time, backing) = (Time(0), Backing::Anonymous);
        let (pid, name) = (u64::from(pid), Arc::from(name));
        names.event(&Event::Map { time, pid, start, bytes, backing, writable: true, name })
    };
    let half = 1u64 << (experiment.setup.hardware.processor.physical_bits - 1);
    map(MACHINE, 0, half, "guest-physical memory")?;
    map(MACHINE, half, half, "page tables of the guest")?;
    for (number, process) in experiment.processes.iter().enumerate() {
        let pid = MACHINE + 1 + number as u32;
        for (area, base) in process.work.areas().iter().zip(bases(process)) {
            map(pid, base, area.bytes.next_multiple_of(1 << 21), &area.name)?;
        }
    }
    names.finish(true).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptat::{BoardReader, Boards, Capture, DumpReader};

    const TEXT: &str = "\
name = 'guests'\nabout = 'toy'\nsource = 'toy'\ntime = '1ms'\nwindow = '1ms'\n
[machine]\nhardware = 'xeon-e5-2620v2'\n[[machine.tier]]\nname = 'dram'\nsize = '1GiB'\n
[[process]]\nworkload = 'contiguous:space=16MiB,hot=16MiB'\n
[[process]]\nworkload = 'contiguous:space=8MiB,hot=8MiB'\n";

    // Two alternating programs: the parser finds exactly the walks of each, and of the hypervisor's
    // tables, that the MMUs counted.
    #[test]
    fn both_dimensions_are_seen_to_the_last() {
        let experiment = Experiment::parse("toy", TEXT).expect("it makes sense");
        for size in [PageSize::K4, PageSize::M2] {
            let header = header(46, 4096);
            let dir = tempfile::tempdir().expect("a directory");
            let path = |board: Option<u8>| {
                dir.path().join(board.map_or("dump".into(), |n| format!("{n}")))
            };
            let open = |board| {
                let file = std::fs::File::create(path(board)).expect("there is room");
                Ok(("file".to_owned(), file))
            };
            let monitor = Monitor::new(Boards::default(), header, open).expect("there is room");
            let stop = AtomicBool::new(false);
            let captured =
                run(&experiment, size, 20_000, monitor, &header, &stop).expect("it runs");
            let board = |n| BoardReader::new("board", std::fs::File::open(path(Some(n))).unwrap());
            let boards = vec![board(0).unwrap(), board(1).unwrap()];
            let dump = DumpReader::new("dump", std::fs::File::open(path(None)).unwrap()).unwrap();
            let mut capture = Capture::of(boards, dump).expect("one machine");
            while capture.step(&mut ()) {}
            let (misses, damage) = capture.finish();
            assert_eq!(damage.count, 0, "{:?}", damage.first);
            let of = |machine: bool| -> f64 {
                let pages =
                    misses.pages.iter().filter(|(page, _)| (page.pid == MACHINE) == machine);
                pages.map(|(_, counts)| counts.total()).sum()
            };
            println!("{captured:?}");
            assert!((of(false) - captured.walks as f64).abs() < 1e-6, "{} {captured:?}", of(false));
            assert!((of(true) - captured.second.walks as f64).abs() < 1e-6, "{}", of(true));
            assert!(captured.walks > 10_000 && misses.is_exact(), "{captured:?}");
            assert_eq!(misses.within.into_iter().collect::<Vec<_>>(), [(2, 1), (3, 1)]);
            assert!(misses.machines.contains(&1));
        }
    }
}
