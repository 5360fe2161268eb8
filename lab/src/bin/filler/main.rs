//! `filler`: tests and measures the lab's filler of page tables.
//!
//! `filler check` checks its guarantees, `filler time GIB` measures its speed, and `filler hold GIB
//! HOT_MIB` fills memory and keeps a hot set inside it busy until stopped.

mod check;
mod filled;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tierscope_core::Rng;

use filled::Filled;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const PAGE: u64 = 4096;

/// Exit codes: 0 success, 1 failure, 2 wrong use.
#[derive(Parser)]
enum Cli {
    /// Check every guarantee of tierscope_filler.h.
    Check,
    /// Fill and empty, and print how long that takes.
    Time {
        /// GiB of address space to fill.
        gib: u64,
    },
    /// Fill, print `PID START END FIRST LAST`, addresses of the hot set and of all, and touch the
    /// hot set at random until stopped.
    Hold {
        /// GiB of address space to fill.
        gib: u64,
        /// MiB of the hot set.
        hot_mib: u64,
        /// Percentage of the touches that go to any of the memory.
        #[arg(long, default_value_t = 0)]
        background: u64,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse() {
        Cli::Check => check::check(),
        Cli::Time { gib } => time(gib).map_err(|e| e.to_string()),
        Cli::Hold { gib, hot_mib, background } => {
            hold(gib, hot_mib, background).map_err(|e| e.to_string())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("filler: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Maps and fills `gib` GiB, with a line of progress every 256 GiB.
fn fill(gib: u64) -> io::Result<Filled> {
    let filled = Filled::map(gib * GIB)?;
    let mut fill = filled.all();
    fill.budget = 256 * GIB;
    let began = Instant::now();
    while fill.cursor < fill.end {
        filled.fill(&mut fill).map_err(|error| {
            let mib = |bytes| bytes / MIB;
            io::Error::other(format!(
                "{gib} GiB cannot be filled: {error}; {} MiB needed for page tables, {} available",
                mib(fill.needed),
                mib(fill.available)
            ))
        })?;
        let done = (fill.cursor - fill.start) / GIB;
        eprintln!("filler: {done} GiB after {:.1} s", began.elapsed().as_secs_f64());
    }
    Ok(filled)
}

fn time(gib: u64) -> io::Result<()> {
    let seconds = |span: Duration| span.as_secs_f64();
    let began = Instant::now();
    let filled = fill(gib)?;
    println!("fill  {gib} GiB {:.2} s", seconds(began.elapsed()));
    let began = Instant::now();
    filled.empty(&mut filled.all())?;
    println!("empty {gib} GiB {:.2} s", seconds(began.elapsed()));
    Ok(())
}

fn hold(gib: u64, hot_mib: u64, background: u64) -> io::Result<()> {
    let filled = fill(gib)?;
    let all = filled.end - filled.start;
    // At no border of page tables, nor of equal parts of the memory.
    let start = filled.start + all / PAGE * 3 / 7 * PAGE;
    let bytes = (hot_mib * MIB).min(filled.end - start);
    let pid = std::process::id();
    println!("{pid} {start} {} {} {}", start + bytes, filled.start, filled.end);
    io::stdout().flush()?;
    let mut rng = Rng::seeded(1);
    loop {
        let (from, bytes) =
            if rng.below(100) < background { (filled.start, all) } else { (start, bytes) };
        let at = from + rng.below(bytes / PAGE) * PAGE;
        // SAFETY: the page is in the filled mapping, which is never unmapped.
        unsafe { std::ptr::read_volatile(at as *const u8) };
    }
}
