//! What this host allows: random reads a second, each of another line of a table.

#[path = "../words/huge.rs"]
mod huge;

use std::hint::black_box;
use std::time::Duration;

use huge::words;

use crate::measure::{SLICES, cpu_time, median};

/// Words of a line.
const LINE: usize = 8;

/// Lines that page tables of `bytes` of 4 KiB pages take on the host, at least: 128 entries a line.
pub(crate) fn table_lines(bytes: u64) -> usize {
    (bytes / (128 * 4096)).max(1) as usize
}

/// Millions of independent reads a second from a table of `lines` lines, on huge pages of the host
/// if it has them, or on small ones; as many are under way as the core allows.
pub(crate) fn random_reads(lines: usize, huge: bool, time: Duration) -> f64 {
    let table = words(lines * LINE, huge, || 1);
    median((0..SLICES).map(|_| slice(&table, time / SLICES)).collect())
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
