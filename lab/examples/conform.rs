//! `conform`: the conformance suite for ACCESSED bits, run on the live machine.
//!
//! Starts itself again as a target that touches pages on request, and observes it through the
//! kernel module. Before each touch the target drops the page's translation from the TLBs (mprotect
//! flushes it at every level and preserves the bits), so that no touch is hidden by a TLB.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use tierscope_conformance::access_bits::{self, Touchable};
use tierscope_core::{
    AccessBits, Addr, Clock, CpuTime, Mappings, Missing, Ports, Range, Result, SpaceId, Target,
    Time, Wake,
};
use tierscope_linux::module::Module;
use tierscope_linux::{LiveMachine, Selection};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// Size of the suite's area. It is followed by 2 MiB with a hole in the middle: two mappings below
/// one level-2 entry.
const AREA: usize = 6 * MIB;
const SPLIT: usize = 2 * MIB;

fn main() -> ExitCode {
    let outcome =
        if std::env::args().nth(1).as_deref() == Some("target") { be_touched() } else { suite() };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conform: {error}");
            ExitCode::FAILURE
        }
    }
}

fn suite() -> io::Result<()> {
    let (target, start) = Touched::start()?;
    let selection = Selection::Process { pid: target.child.id(), children: false };
    let live = LiveMachine::open(&selection, Module::open()).map_err(io::Error::other)?;
    let mut machine = Machine { live, target };
    let range = |start, bytes| Range::new(SpaceId(0), start, start + bytes as u64);
    access_bits::conforms(&mut machine, range(start, AREA));
    let split = range(start + AREA as u64, SPLIT);
    let pages = [split.at(PAGE as u64), split.at((SPLIT - PAGE) as u64)];
    access_bits::a_shared_upper_entry_is_judged_once(&mut machine, pages);
    println!("ACCESSED bits of the live machine conform");
    machine.target.stop()
}

/// The live machine, and a target that touches pages on request.
struct Machine {
    live: LiveMachine,
    target: Touched,
}

impl Touchable for Machine {
    fn touch(&mut self, addr: Addr) {
        self.target.touch(addr.at).expect("the target answers");
    }
}

impl Clock for Machine {
    fn now(&self) -> Time {
        self.live.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.live.wait(until)
    }
}

impl Target for Machine {
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>> {
        self.live.mappings(max_age)
    }

    fn cpu_time(&self) -> CpuTime {
        self.live.cpu_time()
    }
}

impl Ports for Machine {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        self.live.access_bits()
    }
}

/// A target: a child process that runs [`be_touched`].
struct Touched {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Touched {
    /// Starts a target; also returns the address of its area.
    fn start() -> io::Result<(Self, u64)> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("target").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let commands = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut touched = Self { child, commands, answers };
        let start = touched.answer()?;
        Ok((touched, start))
    }

    fn touch(&mut self, address: u64) -> io::Result<()> {
        writeln!(self.commands, "{address}")?;
        let touched = self.answer()?;
        if touched == address { Ok(()) } else { Err(io::Error::other("touched another page")) }
    }

    fn answer(&mut self) -> io::Result<u64> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().map_err(io::Error::other)
    }

    fn stop(mut self) -> io::Result<()> {
        drop(self.commands);
        self.child.wait().map(drop)
    }
}

/// Main function of the target: maps its area, prints the address, then touches the pages whose
/// addresses it reads from standard input.
fn be_touched() -> io::Result<()> {
    let start = map_area()?;
    println!("{}", start as usize);
    for line in io::stdin().lock().lines() {
        let address: usize = line?.parse().map_err(io::Error::other)?;
        let page = ptr::with_exposed_provenance_mut::<u8>(address & !(PAGE - 1));
        flush(page)?;
        // SAFETY: the suite sends only addresses in the area that this process has mapped.
        unsafe { ptr::read_volatile(page) };
        println!("{address}");
    }
    Ok(())
}

/// Maps the area at a multiple of 2 MiB, with all 4 KiB pages present.
fn map_area() -> io::Result<*mut u8> {
    let bytes = AREA + SPLIT + 2 * MIB;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let raw = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, -1, 0) };
    if raw == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = raw.cast::<u8>().wrapping_add(raw.align_offset(2 * MIB));
    // SAFETY: all addresses are within the mapping made above.
    unsafe {
        // A kernel without huge pages does not know the advice, and needs none.
        match checked(libc::madvise(raw, bytes, libc::MADV_NOHUGEPAGE)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => result?,
        }
        for page in 0..(AREA + SPLIT) / PAGE {
            ptr::write_volatile(start.add(page * PAGE), 1);
        }
        checked(libc::munmap(start.add(AREA + MIB).cast(), PAGE))?;
    }
    let _ = start.expose_provenance();
    Ok(start)
}

/// Drops the translation of `page` from the TLBs of all CPUs, at every level.
fn flush(page: *mut u8) -> io::Result<()> {
    for prot in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
        // SAFETY: this process has mapped the page, and its contents do not matter.
        checked(unsafe { libc::mprotect(page.cast(), PAGE, prot) })?;
    }
    Ok(())
}

fn checked(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
