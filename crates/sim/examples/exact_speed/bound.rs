//! What this host allows: random reads a second, each of another line of a table.

use std::hint::black_box;
use std::time::Duration;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use tierscope_core::{Error, ErrorKind, Result};

use crate::measure::{SLICES, cpu_time, median};

/// A huge page of the host, and words of a line.
const HUGE: usize = 2 << 20;
const LINE: usize = 8;

/// Lines that page tables of `bytes` of 4 KiB pages take on the host, at least: 128 entries a line.
pub(crate) fn table_lines(bytes: u64) -> usize {
    (bytes / (128 * 4096)).max(1) as usize
}

/// Millions of independent reads a second from a table of `lines` lines, on huge pages of the host
/// if it has them, or on small ones; as many are under way as the core allows.
pub(crate) fn random_reads(lines: usize, huge: bool, time: Duration) -> Result<f64> {
    let bytes = (lines * LINE * 8).next_multiple_of(HUGE) + HUGE;
    let failed = |errno: rustix::io::Errno| {
        Error::new(ErrorKind::Other, format!("no room for a table of {} MiB", bytes >> 20))
            .cause(errno)
            .remedy("measure a smaller pattern")
    };
    let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice; advice changes no contents.
    let start = unsafe {
        let start =
            mmap_anonymous(std::ptr::null_mut(), bytes, prot, MapFlags::PRIVATE).map_err(failed)?;
        let _ = madvise(start, bytes, advice);
        start
    };
    // SAFETY: all of it is mapped and zeroed, and nothing else refers to it.
    let table = unsafe { std::slice::from_raw_parts_mut(start.cast::<u64>(), bytes / 8) };
    let first = table.as_ptr().align_offset(HUGE);
    let table = &mut table[first..][..lines * LINE];
    table.fill(1);
    let rate = median((0..SLICES).map(|_| slice(table, time / SLICES)).collect());
    // SAFETY: the slice is not used any more.
    unsafe { munmap(start, bytes) }.map_err(failed)?;
    Ok(rate)
}

fn slice(table: &[u64], time: Duration) -> f64 {
    let lines = (table.len() / LINE) as u64;
    let (began, mut done, mut sum) = (cpu_time(), 0u64, 0u64);
    while cpu_time() - began < time {
        for number in done..done + 65_536 {
            // Fibonacci hashing (Knuth volume 3, section 6.4): no read waits for another.
            let hash = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 17) >> 32;
            sum = sum.wrapping_add(table[((hash * lines) >> 32) as usize * LINE]);
        }
        done += 65_536;
    }
    black_box(sum);
    done as f64 / (cpu_time() - began).as_secs_f64() / 1e6
}
