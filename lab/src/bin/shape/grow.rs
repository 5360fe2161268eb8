//! A heap that grows, and whose newest part is hot.

use std::fs::File;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use crate::area::read;
use crate::{MIB, Never, PAGE};

/// Bytes of the newest part.
const NEWEST: usize = 16 * MIB;

/// Grows by that many MiB a second, one at a time, up to a limit in MiB, and reads the newest part
/// after each; from the limit on only reads.
pub(crate) fn grow(truth: &str, pid: &str, per_second: u64, limit: u64) -> Result<Never, String> {
    let mut truth =
        File::options().append(true).open(truth).map_err(|e| format!("{truth}: {e}"))?;
    let apart = Duration::from_secs(1) / per_second as u32;
    let (mut next, mut grown, mut end) = (Instant::now(), 0, 0);
    loop {
        if grown < limit {
            end = more()?;
            grown += 1;
        }
        let start = end - NEWEST.min(grown as usize * MIB);
        writeln!(truth, "{} {pid} {start:x} {end:x}", now_ns())
            .map_err(|e| format!("truth: {e}"))?;
        read(start..end);
        next += apart;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Grows the heap by a MiB, writes to all of its pages, and returns its new end.
fn more() -> Result<usize, String> {
    // SAFETY: malloc(3) allows for other callers of sbrk.
    let start = unsafe { libc::sbrk(MIB as libc::intptr_t) };
    if start.addr() == usize::MAX {
        return Err(format!("sbrk: {}", std::io::Error::last_os_error()));
    }
    let (start, end) = (start.addr(), start.addr() + MIB);
    for at in (start..end).step_by(PAGE) {
        // SAFETY: inside of the memory that was just added.
        unsafe { (at as *mut u8).write_volatile(1) };
    }
    Ok(end)
}

/// CLOCK_MONOTONIC, the clock of recordings.
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
