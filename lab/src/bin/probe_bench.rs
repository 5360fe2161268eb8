//! `probe-bench`: cost of the module's calls, and how long they hold locks.
//!
//! A child process populates memory in small pages. Every row uses a new attachment, so that its
//! statistics of lock holds contain only its own calls.

use std::io;
use std::process::ExitCode;
use std::ptr;
use std::time::Instant;

use clap::Parser;
use serde::Serialize;
use tierscope_core::{AccessedSet, Level, Range, Result, Rng, ScanMode, SpaceId};
use tierscope_lab::guest::holds::Holds;
use tierscope_lab::guest::servant::{Servant, gone};
use tierscope_linux::abi;
use tierscope_linux::module::{Attachment, Module, Presence};

/// Measure the kernel module. Prints JSON.
#[derive(Parser)]
struct Cli {
    /// MiB that the child populates.
    #[arg(long, default_value_t = 1024)]
    memory_mb: u64,
    /// MiB that are touched repeatedly in rows with a small hot set.
    #[arg(long, default_value_t = 16)]
    hot_mb: u64,
    /// Number of probes in a row.
    #[arg(long, default_value_t = 100_000)]
    probes: usize,
    /// Number of scans in a row, where they can be repeated.
    #[arg(long, default_value_t = 10)]
    scans: usize,
    /// Run as the child.
    #[arg(long, hide = true)]
    child: bool,
}

#[derive(Serialize)]
struct Report {
    kernel: String,
    memory_mb: u64,
    rows: Vec<Row>,
}

/// One figure, with the holds of both kinds of lock that its calls took.
#[derive(Serialize)]
struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    mmap_lock: Holds,
    mapping_lock: Holds,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.child {
        return child(cli.memory_mb);
    }
    match bench(&cli) {
        Ok(report) => {
            println!("{}", serde_json::to_string(&report).unwrap_or_default());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("probe-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(cli: &Cli) -> Result<Report> {
    let module = Module::open()?;
    let mut memory = Memory::start(cli.memory_mb)?;
    let mut rows = Vec::new();
    for (name, batch) in
        [("probe alone", 1), ("probe, batch of 100", 100), ("probe, batch of 1000", 1000)]
    {
        rows.push(probes(&module, &memory, name, (1, batch), cli.probes)?);
    }
    for level in 2..=4 {
        let name = format!("probe of level {level}, batch of 1000");
        rows.push(probes(&module, &memory, &name, (level, 1000), cli.probes)?);
    }
    let test = ScanMode::default();
    rows.push(scans(&module, &memory, "scan, test, all young", test, cli.scans)?);
    memory.fill()?;
    rows.push(scans(
        &module,
        &memory,
        "scan, clear, all young",
        ScanMode { clear: true, ..test },
        1,
    )?);
    rows.push(scans(&module, &memory, "scan, test, all old", test, cli.scans)?);
    let pruned = ScanMode { prune: true, clear: true, ..test };
    rows.push(hot_scans(
        &module,
        &mut memory,
        cli,
        "scan, clear, little hot",
        ScanMode { prune: false, ..pruned },
    )?);
    rows.push(hot_scans(&module, &mut memory, cli, "scan, clear, little hot, pruned", pruned)?);
    rows.push(scans(&module, &memory, "scan, clear, nothing hot, pruned", pruned, cli.scans)?);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(Report { kernel: kernel.trim().to_owned(), memory_mb: cli.memory_mb, rows })
}

/// Microseconds per probe of an entry of a level, at random addresses.
fn probes(
    module: &Module,
    memory: &Memory,
    name: &str,
    (level, batch): (u8, usize),
    count: usize,
) -> Result<Row> {
    let mut attachment = module.attach(memory.process.pid())?;
    let mut rng = Rng::seeded(1);
    let pages = memory.range.bytes() / 4096;
    let mut all: Vec<abi::Probe> = (0..count)
        .map(|_| abi::Probe {
            addr: memory.range.start + 4096 * rng.below(pages),
            level,
            op: abi::OP_TEST_AND_CLEAR,
            ..Default::default()
        })
        .collect();
    let started = Instant::now();
    for part in all.chunks_mut(batch) {
        here(attachment.probe(part)?)?;
    }
    let microseconds = started.elapsed().as_secs_f64() * 1e6;
    row(name, microseconds / count as f64, "µs/probe", &mut attachment)
}

/// Milliseconds per scan of the whole memory at level 1.
fn scans(
    module: &Module,
    memory: &Memory,
    name: &str,
    mode: ScanMode,
    count: usize,
) -> Result<Row> {
    let mut attachment = module.attach(memory.process.pid())?;
    let mut seconds = 0.0;
    for _ in 0..count {
        seconds += scan(&mut attachment, &memory.range, mode)?;
    }
    row(name, seconds * 1e3 / count as f64, "ms/scan", &mut attachment)
}

/// Milliseconds per scan as in [`scans`], with the hot part touched before each scan.
fn hot_scans(
    module: &Module,
    memory: &mut Memory,
    cli: &Cli,
    name: &str,
    mode: ScanMode,
) -> Result<Row> {
    let clear = ScanMode { clear: true, ..ScanMode::default() };
    for level in [Level::PTE, Level::PMD, Level::PUD] {
        scan_level(&mut module.attach(memory.process.pid())?, &memory.range, level, clear)?;
    }
    let mut attachment = module.attach(memory.process.pid())?;
    let mut seconds = 0.0;
    for _ in 0..cli.scans {
        memory.touch(cli.hot_mb)?;
        seconds += scan(&mut attachment, &memory.range, mode)?;
    }
    row(name, seconds * 1e3 / cli.scans as f64, "ms/scan", &mut attachment)
}

fn scan(attachment: &mut Attachment, range: &Range, mode: ScanMode) -> Result<f64> {
    scan_level(attachment, range, Level::PTE, mode)
}

fn scan_level(
    attachment: &mut Attachment,
    range: &Range,
    level: Level,
    mode: ScanMode,
) -> Result<f64> {
    let mut set = AccessedSet::default();
    let started = Instant::now();
    let stats = attachment.scan(range, level, mode, &mut set)?;
    let seconds = started.elapsed().as_secs_f64();
    stats.map(|_| seconds).ok_or_else(gone)
}

fn here(presence: Presence) -> Result<()> {
    if presence == Presence::Here { Ok(()) } else { Err(gone()) }
}

fn row(name: &str, value: f64, unit: &'static str, attachment: &mut Attachment) -> Result<Row> {
    let stats = attachment.stats()?;
    Ok(Row {
        name: name.to_owned(),
        value,
        unit,
        mmap_lock: Holds::from(&stats.mmap_holds),
        mapping_lock: Holds::from(&stats.mapping_holds),
    })
}

/// A child process whose memory is measured.
struct Memory {
    process: Servant,
    range: Range,
}

impl Memory {
    fn start(memory_mb: u64) -> Result<Self> {
        let mut process = Servant::start(["--child", "--memory-mb", &memory_mb.to_string()])?;
        let start: u64 = process.answer()?.parse().map_err(|_| gone())?;
        Ok(Self { process, range: Range::new(SpaceId(0), start, start + (memory_mb << 20)) })
    }

    /// Makes the child discard and touch all its memory again: all entries become young.
    fn fill(&mut self) -> Result<()> {
        self.process.ask("fill 0").map(|_| ())
    }

    /// Makes the child touch its first `megabytes` MiB.
    fn touch(&mut self, megabytes: u64) -> Result<()> {
        self.process.ask(&format!("touch {megabytes}")).map(|_| ())
    }
}

/// Main function of the child: maps and populates memory in small pages, prints its address, and
/// carries out the commands `fill 0` and `touch MIB`.
fn child(memory_mb: u64) -> ExitCode {
    let bytes = (memory_mb << 20) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe {
        libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if start == libc::MAP_FAILED {
        eprintln!("probe-bench: {memory_mb} MiB: {}", io::Error::last_os_error());
        return ExitCode::FAILURE;
    }
    // SAFETY: advice about a mapping of this process.
    unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
    touch(start, bytes);
    println!("{}", start as usize);
    for order in io::stdin().lines().map_while(io::Result::ok) {
        match order.split_once(' ') {
            Some(("touch", megabytes)) => {
                touch(start, megabytes.parse::<usize>().unwrap_or(0) << 20)
            }
            _ => {
                // SAFETY: the contents of the mapping do not matter.
                unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) };
                touch(start, bytes);
            }
        }
        println!("{}", start as usize);
    }
    ExitCode::SUCCESS
}

fn touch(start: *mut libc::c_void, bytes: usize) {
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: within the mapping, which is writable and not used by other code.
        unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
    }
}
