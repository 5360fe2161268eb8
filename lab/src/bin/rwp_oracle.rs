//! `rwp-oracle`: ACCESSED bits as the module reads them, against accesses that userfaultfd notes
//! (RWP, Linux 7.3) and PAGEMAP_SCAN reports: an oracle that needs no module.
//!
//! A process protects its memory from every access and touches a part of it; the kernel resolves
//! the fault of a page's first access and keeps the page among the accessed ones. What the process
//! touched is known, so that both are judged by it, for pages of 4 KiB, pages of folios of 64 KiB
//! (mTHP) and huge pages.
//!
//! Limits of the oracle, which the report counts: pages that were absent when the memory was
//! protected, ranges that are not registered, and what a fault of each page costs the process.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::process::ExitCode;
use std::ptr;
use std::time::Instant;

use clap::Parser;
use serde::Serialize;
use tierscope_core::{AccessedSet, Level, PAGE_SIZE, Result, Rng, ScanMode, SpaceId};
use tierscope_core::{Error, ErrorKind};
use tierscope_lab::guest::outcome::outcome;
use tierscope_lab::guest::servant::{Servant, gone};
use tierscope_lab::guest::userfault::{Mode, Userfaults};
use tierscope_linux::module::{Attachment, Module};
use tierscope_linux::pagemap_scan::{Answer, Wanted, scan};

const HUGE: u64 = 2 << 20;
/// Bytes of each of the three areas.
const BYTES: u64 = 32 << 20;
/// Rounds of each kind of memory.
const ROUNDS: u64 = 5;
/// One page, or huge page, of this many is touched.
const ONE_OF: u64 = 3;
/// Switches of the sizes of folios.
const SIZES: &str = "/sys/kernel/mm/transparent_hugepage";

#[derive(Debug, Parser)]
struct Cli {
    /// Run as the process that is observed.
    #[arg(long, hide = true)]
    child: bool,
}

/// Memory by the size of its folios.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Size of folios, as the switches of [`SIZES`] name it.
    folios: Option<&'static str>,
    /// Bytes that one ACCESSED bit stands for.
    bit: u64,
}

const KINDS: [Kind; 3] = [
    Kind { name: "small pages", folios: None, bit: PAGE_SIZE },
    Kind { name: "folios of 64 KiB", folios: Some("hugepages-64kB"), bit: PAGE_SIZE },
    Kind { name: "huge pages", folios: Some("hugepages-2048kB"), bit: HUGE },
];

#[derive(Default, Serialize)]
struct Report {
    rows: Vec<Row>,
    failures: Vec<String>,
}

#[derive(Default, Serialize)]
struct Row {
    memory: &'static str,
    /// Pages touched, of all rounds.
    touched: u64,
    oracle: Judged,
    module: Judged,
    /// Pages touched that were absent when the memory was protected; and how many of them the
    /// oracle found.
    absent: (u64, u64),
    /// Pages touched of a range that is not registered; and how many of them the oracle found.
    unregistered: (u64, u64),
    /// Nanoseconds of the first access to a protected page, and of the second.
    first_access_ns: f64,
    next_access_ns: f64,
}

/// Pages found, against those touched.
#[derive(Default, Serialize)]
struct Judged {
    missed: u64,
    wrong: u64,
}

impl Judged {
    fn add(&mut self, found: &BTreeSet<u64>, touched: &BTreeSet<u64>) {
        self.missed += touched.difference(found).count() as u64;
        self.wrong += found.difference(touched).count() as u64;
    }

    fn clean(&self) -> bool {
        self.missed == 0 && self.wrong == 0
    }
}

fn main() -> ExitCode {
    if Cli::parse().child {
        return child().map_or_else(
            |error| {
                eprintln!("rwp-oracle: {error}");
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        );
    }
    outcome("rwp-oracle", run(), |report| &report.failures)
}

fn run() -> Result<Report> {
    let mut report = Report::default();
    for kind in KINDS {
        select(kind.folios);
        let row = judge(kind)?;
        for (reader, judged) in [("userfaultfd", &row.oracle), ("the module", &row.module)] {
            if !judged.clean() {
                let Judged { missed, wrong } = judged;
                let why = format!("{}, {reader}: {missed} missed, {wrong} wrong", kind.name);
                report.failures.push(why);
            }
        }
        report.rows.push(row);
    }
    Ok(report)
}

/// Lets new memory have folios of one size only.
fn select(size: Option<&str>) {
    for kind in KINDS {
        let Some(folios) = kind.folios else { continue };
        let switch = if Some(folios) == size { "always" } else { "never" };
        // A kernel without folios of that size has no such file.
        let _ = std::fs::write(format!("{SIZES}/{folios}/enabled"), switch);
    }
}

/// Folios of a size that faults have made so far.
fn made(size: &str) -> u64 {
    let path = format!("{SIZES}/{size}/stats/anon_fault_alloc");
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn judge(kind: Kind) -> Result<Row> {
    let folios = kind.folios.map_or(0, made);
    let mut target = Target::start()?;
    if let Some(size) = kind.folios
        && made(size) == folios
    {
        let what = format!("the memory has no {}", kind.name);
        return Err(Error::new(ErrorKind::Other, what).remedy("use a kernel with folios of sizes"));
    }
    let mut attachment = Module::open()?.attach(target.process.pid())?;
    let mut row = Row { memory: kind.name, ..Row::default() };
    for seed in 0..ROUNDS {
        target.round(&mut attachment, &mut row, (seed, kind.bit))?;
    }
    row.first_access_ns /= row.touched as f64;
    row.next_access_ns /= row.touched as f64;
    row.touched *= kind.bit / PAGE_SIZE;
    Ok(row)
}

/// Indices of the bits that a round touches, of `count`.
fn chosen(seed: u64, count: u64) -> Vec<u64> {
    let mut rng = Rng::seeded(seed);
    (0..count).filter(|_| rng.below(ONE_OF) == 0).collect()
}

/// Pages of the bits that a round touches in an area.
fn touched(area: &Range<u64>, (seed, bit): (u64, u64)) -> BTreeSet<u64> {
    let pages = |index: u64| {
        let start = area.start + index * bit;
        (start..start + bit).step_by(PAGE_SIZE as usize)
    };
    chosen(seed, BYTES / bit).into_iter().flat_map(pages).collect()
}

/// The process that is observed.
struct Target {
    process: Servant,
    pagemap: File,
    registered: Range<u64>,
    absent: Range<u64>,
    unregistered: Range<u64>,
}

impl Target {
    fn start() -> Result<Self> {
        let mut process = Servant::start(["--child"])?;
        let mut area = || {
            let start: u64 = process.answer()?.parse().map_err(|_| gone())?;
            Ok::<_, Error>(start..start + BYTES)
        };
        let (registered, absent, unregistered) = (area()?, area()?, area()?);
        let path = format!("/proc/{}/pagemap", process.pid());
        let pagemap = File::open(path).map_err(|_| gone())?;
        Ok(Self { process, pagemap, registered, absent, unregistered })
    }

    /// Protects, touches, and judges both readers.
    fn round(
        &mut self,
        attachment: &mut Attachment,
        row: &mut Row,
        round: (u64, u64),
    ) -> Result<()> {
        self.process.ask("protect")?;
        young(attachment, &self.registered, true)?;
        attachment.flush()?;
        let (seed, bit) = round;
        let times = self.process.ask(&format!("touch {seed} {bit}"))?;
        let (first, next) = times.split_once(' ').ok_or_else(gone)?;
        row.first_access_ns += first.parse::<f64>().map_err(|_| gone())?;
        row.next_access_ns += next.parse::<f64>().map_err(|_| gone())?;

        let touched_here = touched(&self.registered, round);
        row.touched += touched_here.len() as u64 * PAGE_SIZE / bit;
        let found = accessed(&self.pagemap, &self.registered)?;
        row.oracle.add(&found, &touched_here);
        row.module.add(&young(attachment, &self.registered, false)?, &touched_here);
        let count = |area: &Range<u64>, (all, found): (u64, u64)| {
            let touched_there = touched(area, round);
            let there = accessed(&self.pagemap, area)?;
            let both = there.intersection(&touched_there).count() as u64;
            Ok::<_, Error>((all + touched_there.len() as u64, found + both))
        };
        row.absent = count(&self.absent, row.absent)?;
        row.unregistered = count(&self.unregistered, row.unregistered)?;
        Ok(())
    }
}

/// Pages whose ACCESSED bit is set, or cleared by this.
fn young(attachment: &mut Attachment, area: &Range<u64>, clear: bool) -> Result<BTreeSet<u64>> {
    let range = tierscope_core::Range::new(SpaceId(0), area.start, area.end);
    let mut set = AccessedSet::default();
    let mode = ScanMode { clear, ..ScanMode::default() };
    attachment.scan(&range, Level::PTE, mode, &mut set)?.ok_or_else(gone)?;
    let pages = (0..set.entries()).filter(|index| set.is_young(*index));
    Ok(pages.map(|index| area.start + index * PAGE_SIZE).collect())
}

/// PAGE_IS_ACCESSED (Linux 7.3).
const IS_ACCESSED: u64 = 1 << 9;

/// Pages that PAGEMAP_SCAN reports as accessed since they were protected.
fn accessed(pagemap: &File, area: &Range<u64>) -> Result<BTreeSet<u64>> {
    let mut runs = vec![Answer::default(); (BYTES / PAGE_SIZE) as usize];
    let wanted = Wanted { all_of: IS_ACCESSED, named: IS_ACCESSED, ..Wanted::default() };
    let (count, _) = scan(pagemap, (area.start, area.end), wanted, &mut runs)
        .map_err(|cause| Error::new(ErrorKind::Other, "cannot read accessed pages").cause(cause))?;
    let pages = |[start, end, _]: &Answer| (*start..*end).step_by(PAGE_SIZE as usize);
    Ok(runs[..count].iter().flat_map(pages).collect())
}

/// Main function of the process that is observed: prints the start of an area that is registered,
/// of one that is registered and whose pages are absent, and of one that is not registered; then
/// it protects them, or touches pages of them, as its input says.
fn child() -> io::Result<()> {
    let faults = Userfaults::of_accesses()?;
    let [registered, absent, unregistered] = [area()?, area()?, area()?];
    for area in [&registered, &unregistered] {
        fill(area, PAGE_SIZE);
    }
    for area in [&registered, &absent] {
        faults.register(area, Mode::Accesses)?;
    }
    for area in [&registered, &absent, &unregistered] {
        println!("{}", area.start);
    }
    for line in io::stdin().lines() {
        let line = line?;
        let mut words = line.split(' ').skip(1).map_while(|word| word.parse().ok());
        match (words.next(), words.next()) {
            (Some(seed), Some(bit)) => {
                let touch = |area: &Range<u64>| {
                    let started = Instant::now();
                    for index in chosen(seed, BYTES / bit) {
                        let at = area.start + index * bit;
                        // SAFETY: within an area, which no Rust object lies in.
                        unsafe { (at as *const u8).read_volatile() };
                    }
                    started.elapsed().as_nanos()
                };
                let (first, next) = (touch(&registered), touch(&registered));
                touch(&unregistered);
                fill_chosen(&absent, seed, bit);
                println!("{first} {next}");
            }
            _ => {
                // SAFETY: the contents of the area do not matter.
                unsafe {
                    libc::madvise(absent.start as *mut _, BYTES as usize, libc::MADV_DONTNEED)
                };
                faults.protect_from_accesses(&registered)?;
                faults.protect_from_accesses(&absent)?;
                println!("protected");
            }
        }
    }
    Ok(())
}

/// New anonymous memory that begins at a huge page.
fn area() -> io::Result<Range<u64>> {
    let bytes = (BYTES + HUGE) as usize;
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = (start as u64).next_multiple_of(HUGE);
    Ok(start..start + BYTES)
}

/// Writes to one byte in `step`.
fn fill(area: &Range<u64>, step: u64) {
    for at in (area.start..area.end).step_by(step as usize) {
        // SAFETY: within an area, which no Rust object lies in.
        unsafe { (at as *mut u8).write_volatile(1) };
    }
}

/// Writes to the first byte of each chosen page.
fn fill_chosen(area: &Range<u64>, seed: u64, bit: u64) {
    for index in chosen(seed, BYTES / bit) {
        let at = area.start + index * bit;
        fill(&(at..at + 1), PAGE_SIZE);
    }
}
