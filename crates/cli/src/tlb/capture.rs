//! `tierscope tlb capture`: runs the simulated machine with a monitor on its memory bus (PTAT).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tierscope_core::{Clock, Error, ErrorKind, Mappings, Result, SpaceId, Target, Time, Wake};
use tierscope_exchange::PartialDir;
use tierscope_hw::PageSize;
use tierscope_sim::exact::{Machine, Process, Setup};
use tierscope_sim::experiment::{Experiment, Mode};
use tierscope_tlb::ptat::{Boards, DumpHeader, Files, KernelEvent, Monitor};
use tierscope_trace::Event;
use tierscope_trace::compact::Writer;

use super::guests;
use super::source::page_size;
use crate::print as report;
use crate::sim::{Otherwise, experiment};
use crate::stop::stop_flag;
use crate::ticker::Ticker;
use crate::units::show_duration;

/// Page tables that fit into the paper's uncached region: 256 MB, half of it control blocks.
pub(crate) const TABLES: u32 = 32_768;
/// File of a capture that holds the names of mappings.
pub(super) const NAMES: &str = "names.trace";
/// Simulated time between two drains of the kernel's messages to the monitor.
const STEP: Duration = Duration::from_millis(1);

/// Flags of `tierscope tlb capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// A ready-made experiment of `tierscope sim run`, or a TOML file. All its processes have their
    /// page tables in the uncached region, of the size of its table-region, or 256 MiB
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: String,

    /// Directory to write to; must be new
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// Boards of the monitor; cache lines are interleaved over them
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u8).range(1..=16))]
    pub boards: u8,

    /// Granularity of the monitor, in bytes
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = ["64", "32"])]
    pub grain: String,

    /// Requests that a board buffers, and nanoseconds to fetch one, as 1024,5; by default boards
    /// lose nothing
    #[arg(long, value_name = "N,NS", value_parser = buffer)]
    pub buffer: Option<(u64, u64)>,

    /// Areas of the processes whose every access the monitor is to see, by name: they are put into
    /// the uncached region as well, in pages of 4 KiB
    #[arg(long, value_name = "AREAS", value_delimiter = ',')]
    pub watch: Vec<String>,

    /// Run the processes in a guest, which a hypervisor backs with pages of this size: both
    /// dimensions of its walks are captured. The programs then go through TLBs only; caches and
    /// time are not simulated
    #[arg(long, value_name = "SIZE", value_parser = page_size, conflicts_with_all = ["watch", "buffer"])]
    pub guest: Option<PageSize>,

    /// Number of accesses of each process in a guest
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "guest")]
    pub accesses: u64,

    /// Overrides of the experiment's settings.
    #[command(flatten)]
    pub otherwise: Otherwise,

    /// Print a summary of the capture as JSON
    #[arg(long)]
    pub json: bool,
}

fn buffer(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once(',').and_then(|(room, each)| {
        Some((room.trim().parse().ok()?, each.trim().parse().ok().filter(|ns| *ns > 0)?))
    });
    parts.ok_or_else(|| "give requests and nanoseconds, as 1024,5".into())
}

/// The simulated machine with a monitor that writes to files.
pub(crate) type Watched = Machine<Monitor<BufWriter<File>>>;

pub(super) fn run(args: &CaptureArgs) -> Result<()> {
    let experiment = experiment(&args.experiment, &args.otherwise, &[])?;
    if let Some(size) = args.guest {
        return of_guest(args, &experiment, size);
    }
    if experiment.mode != Mode::Exact {
        return Err(Error::new(ErrorKind::Usage, "cannot capture what no machine carries out")
            .cause("the experiment is simulated by densities: nothing crosses a bus")
            .remedy("give an experiment with mode = \"exact\""));
    }
    check_areas(&experiment, &args.watch)?;
    let setup = setup(&experiment);
    setup.check()?;
    let stop = stop_flag()?;
    let directory = PartialDir::create(&args.output)?;
    let grain = if args.grain == "32" { 5 } else { 6 };
    let boards = Boards { count: args.boards, grain, buffer: args.buffer, ..Boards::default() };
    let monitor = monitor(boards, &setup, directory.path())?;
    let mut machine = Machine::observed(&setup, monitor)?.with_stop(Arc::clone(&stop));
    let mut names = Names::new(&directory.path().join(NAMES))?;
    for process in &experiment.processes {
        machine.start(&watched(process, &args.watch))?;
    }
    let captured = watch(&mut machine, &experiment, &mut names, &stop);
    experiment.ran()?;
    let walks: u64 = machine.walks().values().sum();
    let accesses = machine.account().counts.accesses;
    let time = machine.now() - Time(0);
    finish(machine)?;
    names.finish()?;
    captured?;
    directory.keep()?;
    told(args, time, [walks, accesses], stop.load(Ordering::Relaxed))
}

/// Runs a capture with `--guest`: walks of programs in a guest.
fn of_guest(args: &CaptureArgs, experiment: &Experiment, size: PageSize) -> Result<()> {
    let stop = stop_flag()?;
    let directory = PartialDir::create(&args.output)?;
    let grain = if args.grain == "32" { 5 } else { 6 };
    let boards = Boards { count: args.boards, grain, ..Boards::default() };
    let header = guests::header(experiment.setup.hardware.processor.physical_bits, TABLES);
    let files = Files::of(directory.path(), args.boards);
    let monitor = Monitor::new(boards, header, |board| {
        create(board.map_or(&files.dump, |board| &files.boards[usize::from(board)]))
    })?;
    guests::names(experiment, &directory.path().join(NAMES))?;
    let captured = guests::run(experiment, size, args.accesses, monitor, &header, &stop)?;
    directory.keep()?;
    let name = args.output.display();
    let stopped = if stop.load(Ordering::Relaxed) { ", as far as it came" } else { "" };
    eprintln!("tierscope: captured {} accesses in a guest into {name}{stopped}", captured.accesses);
    if !args.json {
        return Ok(());
    }
    let said = json!({
        "capture": name.to_string(), "accesses": captured.accesses, "boards": args.boards,
        "walks_of_the_guest": captured.walks, "walks_of_the_hypervisor": captured.second.walks,
    });
    report::print(&format!("{said:#}\n"))
}

/// The process with its page tables, and its areas among the given ones, in the uncached region.
fn watched(process: &Process, areas: &[String]) -> Process {
    let own = process.work.areas();
    let chosen = areas.iter().filter(|name| own.iter().any(|area| area.name == **name));
    let watched = process.watched.iter().chain(chosen).cloned().collect();
    Process { uncached_tables: true, watched, ..process.clone() }
}

/// Refuses an area of `--watch` that no process has.
fn check_areas(experiment: &Experiment, areas: &[String]) -> Result<()> {
    let known: Vec<String> = experiment
        .processes
        .iter()
        .flat_map(|process| {
            process.work.areas().iter().map(|area| area.name.clone()).collect::<Vec<_>>()
        })
        .collect();
    match areas.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Error::new(ErrorKind::Usage, format!("cannot watch {name}"))
            .cause("no process has an area of that name")
            .remedy(format!("choose from {}", known.join(", ")))),
    }
}

fn told(
    args: &CaptureArgs,
    time: Duration,
    [walks, accesses]: [u64; 2],
    stopped: bool,
) -> Result<()> {
    let name = args.output.display();
    let stopped = if stopped { ", as far as it came" } else { "" };
    eprintln!("tierscope: captured {} of simulated time into {name}{stopped}", show_duration(time));
    if args.json {
        let said = json!({
            "capture": name.to_string(),
            "simulated_ns": time.as_nanos() as u64,
            "walks_of_the_machine": walks,
            "accesses_of_the_machine": accesses,
            "boards": args.boards,
        });
        return report::print(&format!("{said:#}\n"));
    }
    Ok(())
}

fn setup(experiment: &Experiment) -> Setup {
    let tables = match experiment.setup.uncached_tables {
        0 => TABLES,
        some => some,
    };
    Setup { uncached_tables: tables, watch_tables: true, ..experiment.setup.clone() }
}

/// Creates a monitor for a machine, writing its boards and dump into a directory.
pub(crate) fn monitor(
    boards: Boards,
    setup: &Setup,
    directory: &Path,
) -> Result<Monitor<BufWriter<File>>> {
    let (region, tags) = setup.watched();
    // Tiers are laid out one after another, each starting at a multiple of 1 GiB.
    let end =
        setup.hardware.tiers.iter().fold(0u64, |end, tier| end.next_multiple_of(1024) + tier.mib);
    let record = if end > 64 << 10 { 14 } else { 13 };
    let files = Files::of(directory, boards.count);
    Monitor::new(boards, DumpHeader { record, region, tags }, |board| {
        let path = board.map_or(&files.dump, |board| &files.boards[usize::from(board)]);
        create(path)
    })
}

/// Creates a file of a capture; returns its name and a buffered writer.
pub(super) fn create(path: &Path) -> Result<(String, BufWriter<File>)> {
    let name = path.display().to_string();
    let file = File::create(path).map_err(|e| {
        Error::new(ErrorKind::Io, format!("cannot write {name}")).cause(e).remedy("check the disk")
    })?;
    Ok((name, BufWriter::with_capacity(1 << 18, file)))
}

/// Runs the machine for the experiment's time, writing mappings and the kernel's messages.
fn watch(
    machine: &mut Watched,
    experiment: &Experiment,
    names: &mut Names,
    stop: &AtomicBool,
) -> Result<()> {
    let end = Time(0) + experiment.time;
    let mut ticker = Ticker::new("simulating", |done, all| {
        let show = |nanos| show_duration(Duration::from_nanos(nanos));
        format!("{} of {}", show(done), show(all))
    });
    let mut told = Vec::new();
    while machine.now() < end && !stop.load(Ordering::Relaxed) {
        let wake = machine.wait(end.min(machine.now() + STEP));
        let mapped = machine.mappings(Duration::ZERO)?;
        names.look(&mapped)?;
        hand_on(machine, &mut told)?;
        ticker.tick(machine.now().0, end.0);
        if matches!(wake, Wake::Gone | Wake::Stop) {
            break;
        }
    }
    Ok(())
}

/// Writes the kernel's messages since the last call; the vector is a buffer for reuse.
pub(crate) fn hand_on(machine: &mut Watched, told: &mut Vec<KernelEvent>) -> Result<()> {
    told.clear();
    let lost = machine.told(told);
    machine.observer().told(told, lost.0)
}

/// Writes the last messages and closes the monitor's files.
pub(crate) fn finish(mut machine: Watched) -> Result<()> {
    hand_on(&mut machine, &mut Vec::new())?;
    machine.into_observer().finish().map(drop)
}

/// Writes mappings, and their changes, as events of a compact trace: reports name objects by them.
struct Names {
    writer: Writer<BufWriter<File>>,
    known: BTreeMap<(u64, u64), u64>,
}

impl Names {
    fn new(path: &Path) -> Result<Self> {
        let (name, out) = create(path)?;
        Ok(Self { writer: Writer::new(&name, out)?, known: BTreeMap::new() })
    }

    fn look(&mut self, mappings: &Mappings) -> Result<()> {
        let pid = |space: SpaceId| u64::from(space.0) + 1;
        let mut now = BTreeMap::new();
        for mapping in &mappings.mappings {
            let (start, bytes) = (mapping.range.start, mapping.range.bytes());
            let key = (pid(mapping.range.space), start);
            now.insert(key, bytes);
            if self.known.get(&key) != Some(&bytes) {
                let (time, backing, writable) = (mappings.taken, mapping.backing, mapping.writable);
                let (pid, name) = (key.0, Arc::clone(&mapping.name));
                self.writer.event(&Event::Map {
                    time,
                    pid,
                    start,
                    bytes,
                    backing,
                    writable,
                    name,
                })?;
            }
        }
        for ((pid, start), bytes) in &self.known {
            if !now.contains_key(&(*pid, *start)) {
                let (time, pid, start, bytes) = (mappings.taken, *pid, *start, *bytes);
                self.writer.event(&Event::Unmap { time, pid, start, bytes })?;
            }
        }
        self.known = now;
        Ok(())
    }

    fn finish(self) -> Result<()> {
        self.writer.finish(true).map(drop)
    }
}
