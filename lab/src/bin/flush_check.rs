//! `flush-check`: checks the FLUSH operation of the kernel module on a real kernel.
//!
//! A child keeps using a small set of pages. Emulated TLBs hold such a set indefinitely, so that
//! bits stay clear once cleared; after a FLUSH they are set again. The child runs in two ways:
//! spinning on a CPU of its own (the interrupt drops its translations), and sleeping during the
//! FLUSH (it drops them when it wakes). Its system calls in the second case use a page or two of
//! its TLB, so that upper levels are judged in the first case only. Under page-table isolation only
//! the state after a FLUSH is judged. Also checked: cleared bits are handed back to their pages.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tierscope_linux::abi;
use tierscope_linux::device::{CharDevice, Device};
use tierscope_linux::module::{Attachment, Module, Presence};

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
/// Number of pages in the set: they fit in a TLB of 256 entries without conflict.
const PAGES: usize = 64;
/// Number of rounds with and without a flush; an interrupt drops the child's TLB entries and spoils
/// a round.
const ROUNDS: usize = 20;
/// Mask of levels 1 to 4, bit `level - 1`.
const ALL: u8 = 0b1111;
/// Mask of levels 1 and 2, whose tables belong to the set alone; accesses to other memory in the
/// same gigabyte set the bits above.
const LOWEST: u8 = 0b11;
/// Shortest time for which a spinning child uses its set before a look.
const PAUSE: Duration = Duration::from_millis(30);
/// Longest time in which a spinning child passes over its set: a busy host may not run its CPU.
const PASS: Duration = Duration::from_secs(10);
/// Number of consecutive flushes, for the checks of their rate and counts.
const IN_A_ROW: u32 = 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("spin") => child(false),
        Some("serve") => child(true),
        _ => check(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flush-check: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Results for one way of using the set.
#[derive(Debug, Default, Serialize)]
struct Found {
    way: &'static str,
    /// Maximum number of pages, over all rounds and of [`PAGES`], that stay clear without a flush.
    clear_without: usize,
    /// Levels that stayed clear in that round, bit `level - 1`.
    levels_without: u8,
    /// Minimum number of pages, over all rounds, that are set again after a flush.
    young_after: usize,
    /// Levels that are set again after every flush, bit `level - 1`.
    levels_after: u8,
    flushes: u64,
    interrupts: u64,
}

fn check() -> Outcome<()> {
    pin(0)?;
    refusals()?;
    hands_back()?;
    // With page-table isolation and without PCIDs, which emulated CPUs lack, every entry into the
    // kernel drops translations.
    let turns_over = Module::open()?.info().features & abi::FEATURE_PTI != 0;
    for way in ["spin", "serve"] {
        let found = Watched::start(way)?.judge()?;
        println!("{}", serde_json::to_string(&found)?);
        let resident = found.clear_without >= PAGES * 3 / 4
            && (way != "spin" || found.levels_without & LOWEST == LOWEST);
        let set_again = found.young_after == PAGES && found.levels_after == ALL;
        let holds = set_again && (resident || turns_over);
        if !holds {
            return Err(format!("{way}: bits are not as they should be").into());
        }
    }
    pace_and_end()
}

/// Checks that cleared bits of leaves are handed back to their pages, where the module says so: the
/// kernel counts such pages as referenced (`Referenced` of smaps), and ages them as before.
fn hands_back() -> Outcome<()> {
    let promised = Module::open()?.info().features & abi::FEATURE_HANDBACK != 0;
    let mut watched = Watched::start("serve")?;
    watched.use_set()?;
    let (young, _) = watched.look(abi::OP_TEST_AND_CLEAR)?;
    let (left, _) = watched.look(abi::OP_TEST)?;
    let referenced = referenced(watched.child.id(), watched.start)? * 1024 / PAGE;
    println!(
        "handed back: {referenced} of {young} pages, {left} still young, promised: {promised}"
    );
    let holds = young == PAGES && left == 0 && (referenced >= PAGES) == promised;
    if holds { Ok(()) } else { Err("young pages are not handed back as promised".into()) }
}

/// KiB that the kernel counts as referenced of the mapping that contains an address.
fn referenced(pid: u32, address: u64) -> Outcome<usize> {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let mut here = false;
    for line in smaps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        if let Some((start, end)) = range {
            let hex = |text| u64::from_str_radix(text, 16);
            here = (hex(start)?..hex(end)?).contains(&address);
        } else if let Some(text) = line.strip_prefix("Referenced:").filter(|_| here) {
            return Ok(text.trim().trim_end_matches(" kB").parse()?);
        }
    }
    Err("the set is in no mapping".into())
}

/// Checks errors of FLUSH that do not depend on a target.
fn refusals() -> Outcome<()> {
    let mut channel = CharDevice::default().open()?;
    let size = size_of::<abi::Flush>() as u32;
    expect(channel.flush(&mut abi::Flush { size, cpus: 0 }), libc::ENXIO)?;
    expect(channel.flush(&mut abi::Flush { size: size + 1, cpus: 0 }), libc::EINVAL)
}

fn expect(answer: io::Result<()>, errno: i32) -> Outcome<()> {
    let got = answer.err().and_then(|e| e.raw_os_error());
    if got == Some(errno) { Ok(()) } else { Err(format!("{got:?} instead of {errno}").into()) }
}

/// Checks that flushes are rate-limited and counted, and that they report the target's end.
fn pace_and_end() -> Outcome<()> {
    let mut watched = Watched::start("spin")?;
    let least = Module::open()?.flush_interval();
    let began = Instant::now();
    let mut asked = 0;
    for _ in 0..IN_A_ROW {
        asked += u64::from(watched.attachment.flush()?.ok_or("it is gone")?);
    }
    let took = began.elapsed();
    let stats = watched.attachment.stats()?;
    println!("{IN_A_ROW} flushes in a row: {took:?}, {} interrupts", stats.interrupts);
    if least.is_zero() || took < least * (IN_A_ROW - 1) {
        return Err("flushes follow each other too fast".into());
    }
    // Since v6.14 a CPU that ran the child once may stay in its mask: this one too, which needs no
    // interrupt.
    let without_own = asked.saturating_sub(IN_A_ROW.into())..=asked;
    if stats.flushes != u64::from(IN_A_ROW) || !without_own.contains(&stats.interrupts) {
        let abi::Stats { flushes, interrupts, .. } = stats;
        return Err(
            format!("{asked} CPUs were to drop, but {flushes} and {interrupts} count").into()
        );
    }
    watched.child.kill()?;
    watched.child.wait()?;
    // Wait for the kernel to tear down the address space.
    thread::sleep(Duration::from_millis(100));
    match watched.attachment.flush()? {
        None => Ok(()),
        Some(_) => Err("a target that ended was flushed".into()),
    }
}

/// A child, its set of pages, and the attachment that observes it.
struct Watched {
    way: &'static str,
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    start: u64,
    attachment: Attachment,
}

impl Watched {
    fn start(way: &'static str) -> Outcome<Self> {
        let mut command = Command::new("/proc/self/exe");
        let mut child = command.arg(way).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let commands = child.stdin.take().ok_or("no pipe")?;
        let mut answers = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let start = answer(&mut answers)?;
        let attachment = Module::open()?.attach(child.id())?;
        Ok(Self { way, child, commands, answers, start, attachment })
    }

    fn judge(mut self) -> Outcome<Found> {
        let mut found = Found { way: self.way, young_after: PAGES, ..Found::default() };
        found.levels_after = self.attachment.proven().bits();
        for _ in 0..ROUNDS {
            let (young, levels) = self.round(false)?;
            let clear = (PAGES - young, !levels & self.attachment.proven().bits());
            (found.clear_without, found.levels_without) =
                clear.max((found.clear_without, found.levels_without));
            let (young, levels) = self.round(true)?;
            found.young_after = found.young_after.min(young);
            found.levels_after &= levels;
        }
        let stats = self.attachment.stats()?;
        (found.flushes, found.interrupts) = (stats.flushes, stats.interrupts);
        if found.flushes != ROUNDS as u64 {
            return Err(format!("{} flushes counted", found.flushes).into());
        }
        Ok(found)
    }

    /// Clears the bits, optionally flushes, and lets the child use its set; returns the number of
    /// young pages and the young levels.
    fn round(&mut self, flush: bool) -> Outcome<(usize, u8)> {
        self.use_set()?;
        self.look(abi::OP_TEST_AND_CLEAR)?;
        if flush && self.attachment.flush()?.is_none() {
            return Err("the child is gone".into());
        }
        self.use_set()?;
        self.look(abi::OP_TEST)
    }

    fn use_set(&mut self) -> Outcome<()> {
        if self.way == "spin" {
            return self.await_pass();
        }
        writeln!(self.commands, "use")?;
        answer(&mut self.answers).map(drop)
    }

    /// Waits until a spinning child has begun and ended a pass over its set, without a system call
    /// of the child.
    fn await_pass(&self) -> Outcome<()> {
        let passes = || -> io::Result<u64> {
            let mut count = [0; 8];
            let memory = File::open(format!("/proc/{}/mem", self.child.id()))?;
            memory.read_exact_at(&mut count, self.start + (PAGES * PAGE) as u64)?;
            Ok(u64::from_ne_bytes(count))
        };
        let (first, began) = (passes()?, Instant::now());
        thread::sleep(PAUSE);
        while passes()? < first + 2 {
            if began.elapsed() > PASS {
                return Err("the child does not pass over its set".into());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn look(&mut self, op: u8) -> Outcome<(usize, u8)> {
        let leaf = |page: usize| (1, self.start + (page * PAGE) as u64);
        let upper = [4, 3, 2].map(|level| (level, self.start));
        let probe = |(level, addr)| abi::Probe { addr, level, op, ..Default::default() };
        let mut probes: Vec<_> = (0..PAGES).map(leaf).chain(upper).map(probe).collect();
        if self.attachment.probe(&mut probes)? == Presence::Gone {
            return Err("the child is gone".into());
        }
        let young = |probe: &&abi::Probe| probe.state == abi::STATE_YOUNG;
        let pages = probes[..PAGES].iter().filter(young).count();
        let levels = probes.iter().filter(young).fold(0, |all, p| all | 1 << (p.level - 1));
        Ok((pages, levels))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(answers: &mut impl BufRead) -> Outcome<u64> {
    let mut line = String::new();
    answers.read_line(&mut line)?;
    Ok(line.trim().parse()?)
}

/// Main function of the child: uses its set permanently, or once for each line that it reads.
fn child(serves: bool) -> Outcome<()> {
    pin(1)?;
    let set = map_set()?;
    println!("{}", set.expose_provenance());
    if !serves {
        for passes in 1u64.. {
            read_all(set);
            // SAFETY: the page behind the set, within the same mapping.
            unsafe { ptr::write_volatile(set.add(PAGES * PAGE).cast(), passes) };
        }
    }
    for _ in io::stdin().lock().lines() {
        read_all(set);
        println!("0");
    }
    Ok(())
}

fn read_all(set: *const u8) {
    for page in 0..PAGES {
        // SAFETY: within the set, which this process has mapped permanently.
        unsafe { ptr::read_volatile(set.add(page * PAGE)) };
    }
}

/// Maps the set in pages of 4 KiB, all present, with a level-2 entry of their own, and a page for
/// the number of passes behind it.
fn map_set() -> io::Result<*mut u8> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let raw = unsafe { libc::mmap(ptr::null_mut(), 2 * HUGE, prot, flags, -1, 0) };
    if raw == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let set = raw.cast::<u8>().wrapping_add(raw.align_offset(HUGE));
    // SAFETY: all addresses are within the mapping made above.
    unsafe {
        // A kernel without huge pages does not know the advice, and needs none.
        match checked(libc::madvise(raw, 2 * HUGE, libc::MADV_NOHUGEPAGE)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => result?,
        }
        for page in 0..PAGES {
            ptr::write_volatile(set.add(page * PAGE), 1);
        }
    }
    Ok(set)
}

fn pin(cpu: usize) -> io::Result<()> {
    // SAFETY: a CPU set is plain bits, and the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        checked(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set))
    }
}

fn checked(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
