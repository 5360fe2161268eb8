//! `call-fuzz`: calls the kernel module with wrong arguments of every kind, on targets that change
//! and end meanwhile. Children make the calls, since an argument can name any part of their memory
//! for the answer; the parent judges errors, time, and what stays behind.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::ptr;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;
use tierscope_core::Rng;
use tierscope_lab::guest::leaks::{Held, settle};
use tierscope_lab::guest::outcome::outcome;
use tierscope_lab::guest::unload::{Unload, unload};
use tierscope_linux::abi;
use tierscope_linux::module::{Module, Presence};

/// Calls the kernel module with wrong arguments. Exit codes: 0 all checks pass, 1 a check fails.
#[derive(Parser)]
struct Cli {
    /// Number of calls.
    #[arg(long, default_value_t = 100_000)]
    calls: u64,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Name or path of the program whose processes are the targets.
    #[arg(long, default_value = "mutator")]
    mutator: PathBuf,
}

/// Errors of tierscope_abi.h; no other may come.
const DOCUMENTED: [i32; 14] = [
    libc::EACCES,
    libc::EPERM,
    libc::ENOMEM,
    libc::EFAULT,
    libc::EINVAL,
    libc::ENOTTY,
    libc::EPROTO,
    libc::EALREADY,
    libc::EBUSY,
    libc::EOPNOTSUPP,
    libc::ESRCH,
    libc::EINTR,
    libc::ENXIO,
    libc::EAGAIN,
];
/// Calls of one child.
const CALLS: u64 = 2000;
/// Seconds after which a call is interrupted, and after which a child is stuck.
const PATIENCE: (u32, u32) = (1, 60);
/// Most descriptors of a child.
const MOST_OPEN: u64 = 6;
/// Bytes of a child's memory for arguments and bitmaps.
const ARENA: usize = 1 << 20;
/// A byte that no call may change.
const CANARY: u8 = 0xa5;

/// What the children's calls returned.
struct Tally {
    /// Calls that succeeded, by number: INFO, ATTACH, PROBE, SCAN, STATS, FLUSH.
    done: [u64; 6],
    /// Calls that failed, by error.
    failed: [u64; 256],
    /// Bytes behind an argument that were changed.
    spoiled: u64,
    /// Calls that returned something else than 0 or an error.
    strange: u64,
}

/// What a call returned, as four bytes: number of the call, one of the three kinds, error, and how
/// many bytes behind its argument were changed. A child sends it to the parent through a pipe,
/// which holds those of all its calls: no memory that an answer may hit has any count.
type Returned = [u8; 4];
const DONE: u8 = 0;
const FAILED: u8 = 1;
const STRANGE: u8 = 2;

impl Tally {
    fn new() -> Self {
        Self { done: [0; 6], failed: [0; 256], spoiled: 0, strange: 0 }
    }

    fn count(&mut self, [number, kind, error, spoiled]: Returned) {
        match kind {
            DONE => self.done[usize::from(number) % 6] += 1,
            FAILED => self.failed[usize::from(error)] += 1,
            _ => self.strange += 1,
        }
        self.spoiled += u64::from(spoiled);
    }
}

#[derive(Debug, Default, Serialize)]
struct Report {
    calls: u64,
    done: [u64; 6],
    failed: BTreeMap<i32, u64>,
    children: u64,
    /// Children that ended by a signal: an answer was written over what they live on.
    crashed: u64,
    failures: Vec<String>,
}

fn main() -> ExitCode {
    outcome("call-fuzz", run(&Cli::parse()), |report| &report.failures)
}

fn run(cli: &Cli) -> Result<Report, Box<dyn std::error::Error>> {
    let before = Held::now();
    let mut tally = Tally::new();
    let mut report = Report::default();
    let mut targets = Targets { program: cli.mutator.clone(), born: 0, running: Vec::new() };
    while report.calls < cli.calls && report.failures.is_empty() {
        let pids = targets.pids()?;
        let seed = cli.seed.wrapping_mul(1 << 32) + report.children;
        match batch(&pids, seed, &mut tally)? {
            Ended::Well => {}
            Ended::ByASignal => report.crashed += 1,
            Ended::Stuck => report.failures.push(format!("child of seed {seed} is stuck")),
        }
        report.children += 1;
        report.calls = tally.done.iter().chain(&tally.failed).sum();
    }
    drop(targets);
    judge(&tally, &mut report);
    if !works()? {
        report.failures.push("a sound session does not work any more".into());
    }
    let freed = settle(&before, Duration::from_secs(20)).is_back_at(&before);
    let checks = [
        (freed, "address spaces or page tables stayed behind"),
        (unload(abi::DEVICE_NAME) == Unload::Done, "the module could not be unloaded"),
    ];
    let failed = checks.into_iter().filter(|(holds, _)| !holds);
    report.failures.extend(failed.map(|(_, failure)| failure.to_owned()));
    Ok(report)
}

fn judge(tally: &Tally, report: &mut Report) {
    report.done = tally.done;
    let failed = (0..).zip(&tally.failed).filter(|(_, count)| **count > 0);
    report.failed = failed.map(|(errno, count)| (errno, *count)).collect();
    let undocumented = report.failed.keys().filter(|errno| !DOCUMENTED.contains(errno));
    let undocumented: Vec<i32> = undocumented.copied().collect();
    let checks = [
        (undocumented.is_empty(), format!("errors that are not documented: {undocumented:?}")),
        (tally.spoiled == 0, format!("{} bytes behind arguments were changed", tally.spoiled)),
        (tally.strange == 0, format!("{} calls returned no error and no 0", tally.strange)),
        (
            report.done.iter().all(|done| *done > 0),
            format!("of a call none succeeded: {:?}", report.done),
        ),
    ];
    report.failures.extend(checks.into_iter().filter(|(holds, _)| !holds).map(|(_, why)| why));
}

/// Whether a sound session works, on a process that waits.
fn works() -> tierscope_core::Result<bool> {
    let mut module_of = Command::new("sleep");
    let Ok(mut child) = module_of.arg("100").stdin(Stdio::null()).spawn() else { return Ok(false) };
    let here = Module::open()?.attach(child.id())?.presence()? == Presence::Here;
    let _ = child.kill();
    let _ = child.wait();
    Ok(here)
}

/// Processes that change all the time, and end.
struct Targets {
    program: PathBuf,
    born: u32,
    running: Vec<Child>,
}

impl Targets {
    /// Pids of two targets; those that ended are replaced.
    fn pids(&mut self) -> io::Result<Vec<u32>> {
        self.running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        while self.running.len() < 2 {
            self.born += 1;
            let arguments = [self.born.to_string(), "2".into(), "3000".into()];
            let mut command = Command::new(&self.program);
            self.running.push(command.args(arguments).stdin(Stdio::null()).spawn()?);
        }
        Ok(self.running.iter().map(Child::id).collect())
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn map(bytes: usize, protection: i32, flags: i32) -> io::Result<*mut u8> {
    let anonymous = flags | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, anonymous, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

enum Ended {
    Well,
    ByASignal,
    Stuck,
}

/// Has a child make calls, and counts what they returned.
fn batch(pids: &[u32], seed: u64, tally: &mut Tally) -> io::Result<Ended> {
    let (mut reader, writer) = io::pipe()?;
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let made = Caller::new(pids.to_vec(), seed).map(|mut caller| caller.work(&writer));
            // SAFETY: ends the child without the parent's destructors.
            unsafe { libc::_exit(i32::from(made.is_err())) };
        }
        _ => drop(writer),
    }
    let ended = ending(child)?;
    let mut returned = Returned::default();
    while !matches!(ended, Ended::Stuck) && reader.read_exact(&mut returned).is_ok() {
        tally.count(returned);
    }
    Ok(ended)
}

/// Waits for a child.
fn ending(child: i32) -> io::Result<Ended> {
    let mut status = 0;
    for _ in 0..PATIENCE.1 * 10 {
        // SAFETY: the status is a live integer.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 => std::thread::sleep(Duration::from_millis(100)),
            -1 => return Err(io::Error::last_os_error()),
            _ if libc::WIFSIGNALED(status) => return Ok(Ended::ByASignal),
            _ => return Ok(Ended::Well),
        }
    }
    Ok(Ended::Stuck)
}

/// The calls of one child.
struct Caller {
    rng: Rng,
    pids: Vec<u32>,
    open: Vec<i32>,
    /// Memory for arguments and what they point to.
    arena: *mut u8,
    /// A page that may be read only, one that may not be accessed at all, and a page before it.
    read_only: *mut u8,
    edge: *mut u8,
}

extern "C" fn interrupted(_: i32) {}

impl Caller {
    fn new(pids: Vec<u32>, seed: u64) -> io::Result<Self> {
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        let arena = map(ARENA, read_write, libc::MAP_PRIVATE)?;
        let read_only = map(4096, libc::PROT_READ, libc::MAP_PRIVATE)?;
        let edge = map(8192, read_write, libc::MAP_PRIVATE)?;
        // SAFETY: the second page of that mapping; nobody uses it.
        unsafe { libc::mprotect(edge.add(4096).cast(), 4096, libc::PROT_NONE) };
        let handler = interrupted as *const () as usize;
        // SAFETY: a zeroed sigaction has no flags: calls are interrupted.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut());
        }
        Ok(Self { rng: Rng::seeded(seed), pids, open: Vec::new(), arena, read_only, edge })
    }

    fn work(&mut self, mut parent: &io::PipeWriter) {
        for _ in 0..CALLS {
            if self.open.is_empty() || self.rng.below(20) == 0 {
                self.open_or_close();
            }
            if let Some(fd) = self.some_fd() {
                let returned = self.call(fd);
                let _ = parent.write_all(&returned);
            }
        }
    }

    fn some_fd(&mut self) -> Option<i32> {
        let count = self.open.len() as u64;
        (count > 0).then(|| self.open[self.rng.below(count) as usize])
    }

    fn open_or_close(&mut self) {
        if self.open.len() as u64 > self.rng.below(MOST_OPEN) {
            let at = self.rng.below(self.open.len() as u64) as usize;
            // SAFETY: a descriptor of ours.
            unsafe { libc::close(self.open.swap_remove(at)) };
            return;
        }
        // SAFETY: the path ends with a zero.
        let fd = unsafe { libc::open(c"/dev/tierscope".as_ptr(), libc::O_RDWR) };
        self.open.extend((fd >= 0).then_some(fd));
    }

    /// Makes a call with an argument that was sound and has been changed.
    fn call(&mut self, fd: i32) -> Returned {
        let number = self.rng.below(6) as usize;
        let (request, size) = self.sound(number);
        let changes = [0, 0, 1, 1, 2, 4][self.rng.below(6) as usize];
        (0..changes).for_each(|_| self.change(size));
        let request = match self.rng.below(40) {
            0 => request ^ 1 << self.rng.below(32),
            _ => request,
        };
        let behind = size..size + 64;
        // SAFETY: within the arena, which the module changes only during the call.
        unsafe { ptr::write_bytes(self.arena.add(behind.start), CANARY, 64) };
        let argument = self.argument(size);
        // SAFETY: whatever the module does with the argument is what is tested.
        let answer = unsafe {
            libc::alarm(PATIENCE.0);
            let answer = libc::ioctl(fd, request as _, argument);
            libc::alarm(0);
            answer
        };
        let error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let kind = match answer {
            0 => DONE,
            -1 => FAILED,
            _ => STRANGE,
        };
        // SAFETY: within the arena.
        let bytes = behind.map(|at| unsafe { *self.arena.add(at) });
        let spoiled = bytes.filter(|byte| *byte != CANARY).count();
        // An address in a changed argument may be that of the bytes behind it.
        let spoiled = if changes == 0 { spoiled } else { 0 };
        [number as u8, kind, error as u8, spoiled as u8]
    }

    /// The address of the argument: mostly the arena's, sometimes no good one.
    fn argument(&mut self, size: usize) -> *mut u8 {
        match self.rng.below(60) {
            0 => ptr::null_mut(),
            1 => self.read_only,
            2 => {
                let at = self.edge.wrapping_add(4096 - self.rng.below(size as u64) as usize);
                // SAFETY: up to the end of the page before the edge.
                unsafe { ptr::copy(self.arena, self.edge, 4096) };
                at
            }
            3 => (1usize << 63 | self.rng.next_u64() as usize) as *mut u8,
            4 => self.arena.wrapping_add(1),
            _ => self.arena,
        }
    }

    /// Puts a sound argument of a call into the arena; returns its number and size.
    fn sound(&mut self, number: usize) -> (u32, usize) {
        let pid = self.pids[self.rng.below(self.pids.len() as u64) as usize];
        let arena = self.arena as u64;
        let at = |offset: usize| arena + offset as u64;
        match number {
            0 => self
                .put(abi::IOC_INFO, abi::Info { size: size::<abi::Info>(), ..Default::default() }),
            1 => {
                let flags = self.rng.below(2) as u32;
                let selftest_addr = at(ARENA / 2);
                let size = size::<abi::Attach>();
                let attach = abi::Attach {
                    size,
                    pid: pid as i32,
                    selftest_addr,
                    flags,
                    ..Default::default()
                };
                self.put(abi::IOC_ATTACH, attach)
            }
            2 => {
                let (count, probes) = (self.rng.below(600) as u32, at(ARENA / 4));
                self.put_probes(count);
                let size = size::<abi::Probes>();
                self.put(abi::IOC_PROBE, abi::Probes { size, count, probes, ..Default::default() })
            }
            3 => {
                let level = 1 + self.rng.below(4) as u32;
                let shift = 12 + 9 * (level - 1);
                let entries = 1 + self.rng.below(1 << 20);
                let start = (self.address() >> shift) << shift;
                let end = start.saturating_add(entries << shift).min(1 << 47 >> shift << shift);
                let (young, present) = (at(ARENA / 2), at(ARENA * 3 / 4));
                let flags = self.rng.below(4) as u32;
                let size = size::<abi::Scan>();
                let scan = abi::Scan {
                    size,
                    level,
                    flags,
                    start,
                    end,
                    young,
                    present,
                    cursor: start,
                    ..Default::default()
                };
                self.put(abi::IOC_SCAN, scan)
            }
            4 => self.put(
                abi::IOC_STATS,
                abi::Stats { size: size::<abi::Stats>(), ..Default::default() },
            ),
            _ => self.put(abi::IOC_FLUSH, abi::Flush { size: size::<abi::Flush>(), cpus: 0 }),
        }
    }

    fn put<T>(&self, request: u32, argument: T) -> (u32, usize) {
        // SAFETY: the arena begins with a page of its own, and is larger than any argument.
        unsafe { ptr::write(self.arena.cast::<T>(), argument) };
        (request, size_of::<T>())
    }

    fn put_probes(&mut self, count: u32) {
        for index in 0..count as usize {
            let op = self.rng.below(2) as u8;
            let level = 1 + self.rng.below(4) as u8;
            let probe = abi::Probe { addr: self.address(), level, op, ..Default::default() };
            let at = ARENA / 4 + index * size_of::<abi::Probe>();
            // SAFETY: 600 probes end before the middle of the arena.
            unsafe { ptr::write(self.arena.add(at).cast(), probe) };
        }
        if count > 0 && self.rng.below(4) == 0 {
            let at = ARENA / 4 + self.rng.below(u64::from(count) * 24) as usize;
            // SAFETY: within the probes.
            unsafe { *self.arena.add(at) = self.rng.next_u64() as u8 };
        }
    }

    /// An address that a target may have mapped, or at a border.
    fn address(&mut self) -> u64 {
        match self.rng.below(8) {
            0 => self.rng.next_u64(),
            1 => {
                [0, 4096, (1 << 47) - 4096, 1 << 47, 1 << 56, u64::MAX][self.rng.below(6) as usize]
            }
            2 => 0x5500_0000_0000 + self.rng.below(1 << 40),
            _ => 0x7fff_f7ff_f000 - self.rng.below(1 << 38),
        }
    }

    /// Changes some bytes of the argument.
    fn change(&mut self, size: usize) {
        const WORDS: [u64; 10] =
            [0, 1, 7, 4095, 1 << 20, 1 << 31, 1 << 47, 1 << 63, u64::MAX - 4095, u64::MAX];
        let width = [1, 4, 8][self.rng.below(3) as usize];
        let at = self.rng.below((size / width) as u64) as usize * width;
        let word = match self.rng.below(3) {
            0 => self.rng.next_u64(),
            1 => self.arena as u64 + self.rng.below(ARENA as u64),
            _ => WORDS[self.rng.below(10) as usize],
        };
        let bytes = word.to_ne_bytes();
        // SAFETY: within the argument, at the beginning of the arena.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.arena.add(at), width) };
    }
}

fn size<T>() -> u32 {
    size_of::<T>() as u32
}
