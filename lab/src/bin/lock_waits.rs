//! `lock-waits`: how long a process waits for the module's locks.
//!
//! A process with a large mapping maps and unmaps small ones all the time, and measures each call,
//! while the module looks at nothing, scans the large mapping, or probes it at random.

use std::io;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use tierscope_core::{AccessedSet, Level, Range, Result, Rng, ScanMode, SpaceId};
use tierscope_lab::guest::servant::{Servant, gone};
use tierscope_lab::guest::waits::{Report, Row, Waits};
use tierscope_linux::abi;
use tierscope_linux::module::{Attachment, Module, Presence};

/// Bytes of the small mappings.
const SMALL: usize = 64 << 10;

#[derive(Debug, Parser)]
struct Cli {
    /// MiB of the large mapping, in small pages.
    #[arg(long, default_value_t = 2048)]
    memory_mb: u64,
    /// Seconds of each row.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Run as the process that waits.
    #[arg(long, hide = true)]
    child: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.child {
        return child(cli.memory_mb);
    }
    match measure(&cli) {
        Ok(report) => {
            println!("{}", serde_json::to_string(&report).unwrap_or_default());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("lock-waits: {error}");
            ExitCode::FAILURE
        }
    }
}

type Look = fn(&mut Attachment, &Range, &mut Rng) -> Result<()>;

fn measure(cli: &Cli) -> Result<Report> {
    let module = Module::open()?;
    let mut target = Target::start(cli.memory_mb)?;
    let looks: [(&'static str, Look); 3] = [("none", nothing), ("scan", scan), ("probe", probe)];
    let mut rows = Vec::new();
    for (name, look) in looks {
        let mut attachment = module.attach(target.process.pid())?;
        let mut rng = Rng::seeded(1);
        target.waits()?;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(cli.seconds) {
            look(&mut attachment, &target.range, &mut rng)?;
        }
        let waits = target.waits()?;
        let stats = attachment.stats()?;
        rows.push(Row {
            look: name.to_owned(),
            entries: stats.probes + stats.scanned,
            waits,
            mmap_lock: (&stats.mmap_holds).into(),
            mapping_lock: (&stats.mapping_holds).into(),
        });
    }
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mapping_locks = module.info().features & abi::FEATURE_MAPPING_LOCKS != 0;
    Ok(Report { kernel: kernel.trim().to_owned(), mapping_locks, rows })
}

fn nothing(_: &mut Attachment, _: &Range, _: &mut Rng) -> Result<()> {
    std::thread::sleep(Duration::from_millis(100));
    Ok(())
}

fn scan(attachment: &mut Attachment, range: &Range, _: &mut Rng) -> Result<()> {
    let mode = ScanMode { clear: true, ..ScanMode::default() };
    let mut young = AccessedSet::default();
    let scanned = attachment.scan(range, Level::PTE, mode, &mut young)?;
    scanned.map(|_| ()).ok_or_else(gone)
}

fn probe(attachment: &mut Attachment, range: &Range, rng: &mut Rng) -> Result<()> {
    let mut probes: Vec<abi::Probe> = (0..1000)
        .map(|_| abi::Probe {
            addr: range.start + 4096 * rng.below(range.bytes() / 4096),
            level: 1,
            op: abi::OP_TEST_AND_CLEAR,
            ..Default::default()
        })
        .collect();
    match attachment.probe(&mut probes)? {
        Presence::Here => Ok(()),
        Presence::Gone => Err(gone()),
    }
}

/// The process that waits.
struct Target {
    process: Servant,
    range: Range,
}

impl Target {
    fn start(memory_mb: u64) -> Result<Self> {
        let mut process = Servant::start(["--child", "--memory-mb", &memory_mb.to_string()])?;
        let start: u64 = process.answer()?.parse().map_err(|_| gone())?;
        Ok(Self { process, range: Range::new(SpaceId(0), start, start + (memory_mb << 20)) })
    }

    /// What it waited since the last call.
    fn waits(&mut self) -> Result<Waits> {
        serde_json::from_str(&self.process.ask("report")?).map_err(|_| gone())
    }
}

/// Main function of the process that waits: prints the address of its large mapping, and at each
/// line of its input what its calls took since the line before.
fn child(memory_mb: u64) -> ExitCode {
    let bytes = (memory_mb << 20) as usize;
    let start = map(bytes, libc::PROT_READ | libc::PROT_WRITE);
    if start == libc::MAP_FAILED {
        eprintln!("lock-waits: {memory_mb} MiB: {}", io::Error::last_os_error());
        return ExitCode::FAILURE;
    }
    // SAFETY: advice about a mapping of this process.
    unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: within the mapping, which is writable and not used by other code.
        unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
    }
    println!("{}", start as usize);
    let wanted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| calls(&wanted));
        for _ in io::stdin().lines().map_while(io::Result::ok) {
            wanted.store(true, Ordering::Relaxed);
        }
        std::process::exit(0)
    })
}

/// Maps and unmaps for ever; prints what the calls took when that is `wanted`.
fn calls(wanted: &AtomicBool) {
    let mut ns = Vec::new();
    loop {
        let started = Instant::now();
        // Of another protection than the large mapping: they are not merged.
        let small = map(SMALL, libc::PROT_NONE);
        // SAFETY: nothing is in the mapping. If there is none, the call fails.
        unsafe { libc::munmap(small, SMALL) };
        ns.push(started.elapsed().as_nanos() as u64);
        if wanted.swap(false, Ordering::Relaxed) {
            let waits = Waits::of(std::mem::take(&mut ns));
            println!("{}", serde_json::to_string(&waits).unwrap_or_default());
        }
    }
}

/// A new private mapping at an address of the kernel's choice, or `MAP_FAILED`.
fn map(bytes: usize, protection: i32) -> *mut libc::c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: no memory of this process is touched.
    unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) }
}
