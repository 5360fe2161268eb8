//! Checks with an exact expected result: counts of the machine compared with the accesses made.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tierscope_core::{
    Counters, Error, ErrorKind, Filter, Key, Operand, Operator, ReadEffect, RequestKind, Result,
    Rule, RuleId, Sample, Samples, SpaceId,
};
use tierscope_linux::memory_controller::{TelemetryDevice, TlbMisses, root_of};
use tierscope_wire::device::Command as Ring;
use tierscope_wire::stats::Switch;

use crate::buffer::{Buffer, LINE, PAGE, next, pin};
use crate::device;

/// Buffer size that exceeds the cache by far, in every set.
const BEYOND_CACHE: usize = 64 << 20;

/// Rule that counts reads of each 4 KiB page in the range of `frames`.
fn reads_by_page(frames: &[u64]) -> Rule {
    let start = frames.iter().min().copied().unwrap_or(0) << 12;
    let end = (frames.iter().max().copied().unwrap_or(0) + 1) << 12;
    Rule {
        filter: Filter { kind: RequestKind::Read, start, end },
        key: Key { mask: u64::MAX, shift: 12 },
        offset: Key::NONE,
        update: (Operator::Add, Operand::Constant(1)),
        notify: None,
        on_read: ReadEffect::Reset(0),
    }
}

fn states(rule: &Rule) -> usize {
    ((rule.filter.end - rule.filter.start) >> 12) as usize
}

/// Counters of reads, one per page.
struct ByPage {
    device: TelemetryDevice,
    id: RuleId,
    first: u64,
    values: Vec<u64>,
}

impl ByPage {
    fn of(frames: &[u64]) -> Result<Self> {
        let rule = reads_by_page(frames);
        let mut device = device(0)?;
        let id = device.register(&rule)?;
        Ok(Self { device, id, first: rule.filter.start >> 12, values: vec![0; states(&rule)] })
    }

    /// Reads all counters, which resets them; returns those of the given frames.
    fn take(&mut self, frames: &[u64]) -> Result<Vec<u64>> {
        self.device.read(self.id, &mut self.values)?;
        Ok(frames.iter().map(|frame| self.values[(frame - self.first) as usize]).collect())
    }
}

/// Loads every line of a page once.
#[inline(never)]
pub(crate) fn touch(buffer: &Buffer, page: usize) {
    for line in 0..PAGE / LINE {
        std::hint::black_box(buffer.load(page * PAGE + line * LINE));
    }
}

/// Number of sweeps that touch a page: three to eight.
fn sweeps_of(page: usize) -> u64 {
    3 + page as u64 % 6
}

/// Sweeps over 64 MiB in which each page takes part `sweeps_of` times. Every load misses the cache,
/// so every counter is 64 times that number.
pub(crate) fn counters() -> Result<(Value, bool)> {
    pin(0);
    let buffer = Buffer::on(0, BEYOND_CACHE)?;
    let frames = buffer.frames()?;
    let mut counters = ByPage::of(&frames)?;
    counters.take(&frames)?;
    // The first sweep is not counted: it evicts the buffer's initial lines from the cache.
    (0..frames.len()).for_each(|page| touch(&buffer, page));
    counters.take(&frames)?;
    for sweep in 0..8 {
        (0..frames.len())
            .filter(|page| sweep < sweeps_of(*page))
            .for_each(|page| touch(&buffer, page));
    }
    let counted = counters.take(&frames)?;
    let expected = |page: usize| sweeps_of(page) * (PAGE / LINE) as u64;
    let wrong = (0..frames.len()).filter(|page| counted[*page] != expected(*page)).count();
    let example = (0..frames.len()).find(|page| counted[*page] != expected(*page));
    let value = json!({
        "pages": frames.len(),
        "counted": counted.iter().sum::<u64>(),
        "expected": (0..frames.len()).map(expected).sum::<u64>(),
        "wrong_pages": wrong,
        "example": example.map(|page| json!({ "page": page, "counted": counted[page], "expected": expected(page) })),
    });
    Ok((value, wrong == 0))
}

/// Repeatedly reads and resets counters while every CPU sweeps over a buffer of its own: the sum of
/// all readings must equal the number of loads.
pub(crate) fn doorbell(time: Duration) -> Result<(Value, bool)> {
    let cpus = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let buffers: Vec<Buffer> =
        (0..cpus).map(|_| Buffer::on(0, BEYOND_CACHE / 2)).collect::<Result<_>>()?;
    let frames: Vec<u64> = buffers
        .iter()
        .map(Buffer::frames)
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    let stop = AtomicBool::new(false);
    // A first sweep on every CPU evicts the buffers' initial lines from the caches.
    let sweep = |cpu: usize, until: &dyn Fn() -> bool| {
        pin(cpu);
        let mut loads = 0u64;
        loop {
            (0..buffers[cpu].bytes() / PAGE).for_each(|page| touch(&buffers[cpu], page));
            loads += (buffers[cpu].bytes() / LINE) as u64;
            if until() {
                return loads;
            }
        }
    };
    on_all(cpus, |cpu| sweep(cpu, &|| true));
    let mut counters = ByPage::of(&frames)?;
    let (begun, mut sum, mut readings) = (Instant::now(), 0, 0u64);
    let loads: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus)
            .map(|cpu| {
                scope.spawn({
                    let (sweep, stop) = (&sweep, &stop);
                    move || sweep(cpu, &|| stop.load(Acquire))
                })
            })
            .collect();
        while begun.elapsed() < time {
            sum += counters.take(&frames)?.iter().sum::<u64>();
            readings += 1;
        }
        stop.store(true, Release);
        Ok::<u64, Error>(threads.into_iter().filter_map(|thread| thread.join().ok()).sum())
    })?;
    sum += counters.take(&frames)?.iter().sum::<u64>();
    let value = json!({ "cpus": cpus, "readings": readings, "loads": loads, "counted": sum });
    Ok((value, sum == loads && readings > 0))
}

fn on_all(cpus: usize, run: impl Fn(usize) -> u64 + Sync) {
    std::thread::scope(|scope| {
        let run = &run;
        (0..cpus).for_each(|cpu| drop(scope.spawn(move || run(cpu))));
    });
}

/// Raises interrupts from one thread while another waits in read(). The latency is measured in
/// nanoseconds of the device's clock, from the doorbell that raises the interrupt to the woken
/// thread's first doorbell.
pub(crate) fn interrupt(times: usize) -> Result<(Value, bool)> {
    let failed = |e: std::io::Error| Error::new(ErrorKind::Io, "/dev/tierscope_device").cause(e);
    let mut file = File::open("/dev/tierscope_device").map_err(failed)?;
    let (waiter, raiser) = (device(1)?, device(0)?);
    let (sender, receiver) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || -> Result<()> {
        let mut words = [0; 16];
        while file.read_exact(&mut words).is_ok() {
            let now = waiter.client()?.ring(Ring::Ping, &[])?;
            if sender.send(now).is_err() {
                break;
            }
        }
        Ok(())
    });
    let mut nanos = Vec::new();
    for _ in 0..times {
        let raised = raiser.client()?.ring(Ring::Interrupt, &[0])?;
        match receiver.recv_timeout(Duration::from_secs(5)) {
            Ok(seen) => nanos.push(seen.saturating_sub(raised)),
            Err(_) => break,
        }
    }
    // The waiting thread is blocked in read(); it ends with the program.
    drop(waiting);
    nanos.sort_unstable();
    let at = |share: usize| nanos.get(nanos.len() * share / 100).copied();
    let value =
        json!({ "raised": times, "seen": nanos.len(), "median_ns": at(50), "p99_ns": at(99) });
    Ok((value, nanos.len() == times))
}

/// Sweeps over more pages than the TLBs hold, so that every page misses once a sweep, while this
/// program reads the records of these misses from the device's memory.
pub(crate) fn rings(pages: usize, sweeps: u64) -> Result<(Value, bool)> {
    pin(0);
    let buffer = Buffer::on(0, pages * PAGE)?;
    let root = root_of(std::process::id())?;
    let mut misses = TlbMisses::open(Path::new("/sys"), vec![(root, SpaceId(0))])?;
    let device = device(0)?;
    let client = device.client()?;
    let all: u64 = Switch::ALL.iter().map(|switch| switch.bit()).sum();
    let (mut samples, mut lost, mut in_order) = (Vec::<Sample>::new(), 0, true);
    let mut drain = |samples: &mut Vec<Sample>| {
        let before = samples.len();
        lost += misses.drain(samples).0;
        in_order &= samples[before..].is_sorted_by_key(|sample| sample.time);
    };
    client.ring(Ring::Switch, &[all & !Switch::Tlb.bit()])?;
    for _ in 0..sweeps {
        (0..pages).for_each(|page| {
            std::hint::black_box(buffer.load(page * PAGE));
        });
        drain(&mut samples);
    }
    client.ring(Ring::Switch, &[all])?;
    drain(&mut samples);
    let mut found = vec![0u64; pages];
    let ours = |sample: &Sample| sample.at.at.checked_sub(buffer.address());
    let pages_of = samples.iter().filter_map(ours).map(|offset| offset as usize / PAGE);
    pages_of.for_each(|page| found.get_mut(page).map_or((), |count| *count += 1));
    let wrong = found.iter().filter(|count| **count != sweeps).count();
    let value = json!({
        "pages": pages, "sweeps": sweeps, "misses": samples.len(), "of_the_buffer": found.iter().sum::<u64>(),
        "wrong_pages": wrong, "lost": lost, "in_order": in_order,
    });
    Ok((value, wrong == 0 && lost == 0 && in_order))
}

/// Loads from and stores to random pages, all of them dirty, while accesses and misses are
/// recorded. The first line of the file is the buffer's address; the others are the frames of its
/// pages.
pub(crate) fn misses(pagemap: &Path, pages: u64, accesses: u64) -> Result<(Value, bool)> {
    pin(0);
    let buffer = Buffer::on(0, pages as usize * PAGE)?;
    let frames = buffer.frames()?;
    let mut text = format!("{:x}\n", buffer.address());
    frames.iter().for_each(|frame| text += &format!("{frame:x}\n"));
    let failed =
        |e: std::io::Error| Error::new(ErrorKind::Io, pagemap.display().to_string()).cause(e);
    std::fs::write(pagemap, text).map_err(failed)?;
    // The file is in memory shared with the host: finish writing it before recording starts.
    let _ = File::open(pagemap).map(|file| {
        // SAFETY: the file is open.
        unsafe { libc::fsync(file.as_raw_fd()) }
    });
    let device = device(0)?;
    let client = device.client()?;
    let mut state = 42;
    let all: u64 = Switch::ALL.iter().map(|switch| switch.bit()).sum();
    client.ring(Ring::Switch, &[all & !(Switch::Raw.bit() | Switch::Tlb.bit())])?;
    for _ in 0..accesses {
        let number = next(&mut state);
        let at = (number % pages) as usize * PAGE + (number >> 32) as usize % (PAGE / 8) * 8;
        if number >> 60 == 0 {
            buffer.store(at, number)
        } else {
            std::hint::black_box(buffer.load(at));
        }
    }
    client.ring(Ring::Switch, &[all])?;
    let space = client.ring(Ring::Space, &[])?;
    // The records are judged on the host (lab/src/machine/misses.rs).
    Ok((json!({ "pages": pages, "accesses": accesses, "space": space }), true))
}
