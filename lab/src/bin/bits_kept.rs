//! `bits-kept`: counts the ACCESSED bits that others take. It touches pages once, then only looks
//! at their bits, without clearing any: each bit that goes is one that another reader took.

use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Serialize;
use tierscope_core::{AccessedSet, Error, ErrorKind, Level, Range, Result, Rng, ScanMode, SpaceId};
use tierscope_linux::module::{Attachment, Module};

const PAGE: usize = 4096;

/// Count the ACCESSED bits that other readers take of pages that are not touched any more. Exit
/// codes: 0 counted, 1 the module refuses, 2 wrong use.
#[derive(Parser)]
struct Cli {
    /// Size of the idle memory.
    #[arg(long, default_value_t = 256)]
    mib: usize,
    /// Seconds between the first look and the last.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Size of other memory, of which a thread touches pages at random.
    #[arg(long, default_value_t = 0)]
    busy_mib: usize,
}

/// Bits that were left.
#[derive(Debug, Serialize)]
struct Report {
    pages: u64,
    /// After the touches, and after each second.
    left: Vec<u64>,
    /// Share of the first number that went in a second, over the whole time.
    lost_per_second: f64,
}

fn main() -> ExitCode {
    match count(&Cli::parse()) {
        Ok(report) => {
            println!("{}", serde_json::to_string(&report).unwrap_or_default());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bits-kept: {error}");
            ExitCode::FAILURE
        }
    }
}

fn count(cli: &Cli) -> Result<Report> {
    let mut attachment = Module::open()?.attach(std::process::id())?;
    let idle = Memory::map(cli.mib << 20)?;
    let busy = Memory::map(cli.busy_mib.max(1) << 20)?;
    idle.pages().for_each(|page| idle.touch(page));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        if cli.busy_mib > 0 {
            scope.spawn(|| busy.touch_until(&over));
        }
        let left = looks(&mut attachment, &idle, cli.seconds);
        over.store(true, Ordering::Relaxed);
        let left = left?;
        let (first, last) = (left[0], left[left.len() - 1]);
        let lost = first.saturating_sub(last) as f64 / first.max(1) as f64;
        let lost_per_second = lost / cli.seconds.max(1) as f64;
        Ok(Report { pages: idle.pages().len() as u64, left, lost_per_second })
    })
}

/// Bits that are left now, and after each second.
fn looks(attachment: &mut Attachment, idle: &Memory, seconds: u64) -> Result<Vec<u64>> {
    let begin = Instant::now();
    let mut left = Vec::new();
    for second in 0..=seconds {
        let at = begin + Duration::from_secs(second);
        thread::sleep(at.saturating_duration_since(Instant::now()));
        left.push(young(attachment, &idle.range())?);
    }
    Ok(left)
}

fn young(attachment: &mut Attachment, range: &Range) -> Result<u64> {
    let mut set = AccessedSet::default();
    let mode = ScanMode { clear: false, prune: false, present: false };
    let stats = attachment.scan(range, Level::PTE, mode, &mut set)?;
    match stats {
        Some(_) => Ok(set.young.iter().map(|word| u64::from(word.count_ones())).sum()),
        None => Err(Error::new(ErrorKind::Gone, "this process has no memory")),
    }
}

/// Anonymous memory in pages of 4 KiB.
struct Memory {
    start: usize,
    bytes: usize,
}

impl Memory {
    fn map(bytes: usize) -> Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            let cause = std::io::Error::last_os_error();
            return Err(Error::new(ErrorKind::Other, "cannot map memory").cause(cause));
        }
        // SAFETY: advice on the new mapping.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Self { start: start as usize, bytes })
    }

    fn range(&self) -> Range {
        Range::new(SpaceId(0), self.start as u64, (self.start + self.bytes) as u64)
    }

    fn pages(&self) -> std::ops::Range<usize> {
        0..self.bytes / PAGE
    }

    fn touch(&self, page: usize) {
        // SAFETY: the page is one of the mapping, which stays to the end of the process.
        unsafe { ((self.start + page * PAGE) as *mut u8).write_volatile(1) };
    }

    fn touch_until(&self, over: &AtomicBool) {
        let mut rng = Rng::seeded(1);
        while !over.load(Ordering::Relaxed) {
            self.touch(rng.below(self.pages().len() as u64) as usize);
        }
    }
}
