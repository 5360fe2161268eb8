//! Latency and bandwidth of a node, as seen by a program.

use std::time::{Duration, Instant};

use tierscope_core::Result;

use crate::buffer::{Buffer, LINE, PAGE, next, pin};

/// Number of loads between two reads of the clock.
const BATCH: usize = 20_000;

/// Time for which one of two rings is followed before the other.
const TURN: Duration = Duration::from_millis(50);

/// Number of loads without a branch between them: an emulated branch costs as much as a load.
const UNROLLED: usize = 8;

/// A pointer chase: every line of a buffer holds the address of the next one, in random order.
struct Ring {
    buffer: Buffer,
    at: usize,
}

impl Ring {
    /// A ring on a node, followed once, so that the cache is warm.
    fn on(node: u32, bytes: u64) -> Result<Self> {
        let buffer = Buffer::on(node, bytes as usize)?;
        link(&buffer);
        let mut ring = Self { buffer, at: 0 };
        ring.follow(ring.buffer.bytes() / LINE);
        Ok(ring)
    }

    /// Executes dependent loads: each waits for the one before it.
    fn follow(&mut self, loads: usize) {
        (0..loads).for_each(|_| self.at = self.buffer.load(self.at) as usize);
    }

    /// Measures the nanoseconds per load for a duration.
    fn chase(&mut self, time: Duration) -> f64 {
        let (begun, mut loads) = (Instant::now(), 0u64);
        while begun.elapsed() < time {
            self.follow(BATCH);
            loads += BATCH as u64;
        }
        begun.elapsed().as_nanos() as f64 / loads as f64
    }
}

/// Nanoseconds per dependent load, over all lines of `bytes` in random order.
///
/// # Errors
/// Memory cannot be mapped on the node.
pub(crate) fn chase(node: u32, bytes: u64, time: Duration) -> Result<f64> {
    pin(0);
    Ok(Ring::on(node, bytes)?.chase(time))
}

/// Nanoseconds per dependent load on each of two nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    /// Latency of node 0.
    pub(crate) near: f64,
    /// Latency of node 1.
    pub(crate) far: f64,
}

impl Pair {
    /// Latency of node 1 relative to node 0.
    pub(crate) fn ratio(self) -> f64 {
        self.far / self.near
    }
}

/// Rings on nodes 0 and 1 that are followed alternately, so that other load on the host slows both.
pub(crate) struct Rings([Ring; 2]);

impl Rings {
    /// Rings of `bytes` bytes each.
    ///
    /// # Errors
    /// Memory cannot be mapped on a node.
    pub(crate) fn new(bytes: u64) -> Result<Self> {
        pin(0);
        Ok(Self([Ring::on(0, bytes)?, Ring::on(1, bytes)?]))
    }

    /// The lower quartile of each ring's measurements, because other load on the host only
    /// increases them.
    pub(crate) fn compare(&mut self, time: Duration) -> Pair {
        let turns = (time.as_millis() / TURN.as_millis()).max(2) as usize / 2;
        let mut found = [Vec::with_capacity(turns), Vec::with_capacity(turns)];
        for _ in 0..turns {
            for (ring, found) in self.0.iter_mut().zip(&mut found) {
                found.push(ring.chase(TURN));
            }
        }
        let [near, far] = found.map(quartile);
        Pair { near, far }
    }
}

fn quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 4]
}

/// The delay of node 1 that makes it `factor` times as slow as node 0, by linear regression (least
/// squares) of the measurements. A delay costs more than its own length, because other work of an
/// emulated load no longer overlaps with it.
pub(crate) fn delay_for(factor: f64, measured: &[(u64, Pair)]) -> u64 {
    let points = || measured.iter().map(|(delay, pair)| (*delay as f64, pair.ratio()));
    let mean = |sum: f64| sum / measured.len() as f64;
    let (x, y) = (mean(points().map(|(x, _)| x).sum()), mean(points().map(|(_, y)| y).sum()));
    let along: f64 = points().map(|(at, ratio)| (at - x) * (ratio - y)).sum();
    let square: f64 = points().map(|(at, _)| (at - x).powi(2)).sum();
    (x + (factor - y) * square / along).max(0.0).round() as u64
}

/// Nanoseconds per dependent load, second by second, over memory that was allocated on node 1 and
/// may be migrated; and the share of it on node 0 in the end.
///
/// # Errors
/// Memory cannot be mapped on node 1.
pub(crate) fn hot(bytes: u64, seconds: u64) -> Result<(Vec<f64>, f64)> {
    pin(0);
    let buffer = Buffer::on(1, bytes as usize)?;
    link(&buffer);
    buffer.unbind();
    let mut at = 0;
    let mut second = || {
        let (begun, mut loads) = (Instant::now(), 0u64);
        while begun.elapsed() < Duration::from_secs(1) {
            (0..BATCH).for_each(|_| at = buffer.load(at) as usize);
            loads += BATCH as u64;
        }
        begun.elapsed().as_nanos() as f64 / loads as f64
    };
    let nanos = (0..seconds).map(|_| second()).collect();
    Ok((nanos, buffer.share_on(0)))
}

/// Links all lines to one ring: all lines of a page in random order, then those of another page,
/// with the pages in random order too. The size of an emulated CPU's own TLB depends on the code
/// that ran before; this order limits its misses to one per page, so that the memory is measured.
fn link(buffer: &Buffer) {
    let mut state = 0x9e37_79b9;
    let pages = shuffled(buffer.bytes() / PAGE, &mut state);
    let lines = pages.iter().flat_map(|page| {
        let lines = shuffled(PAGE / LINE, &mut state);
        lines.into_iter().map(move |line| page * PAGE + line * LINE)
    });
    let lines: Vec<usize> = lines.collect();
    for (at, to) in lines.iter().zip(lines.iter().cycle().skip(1)) {
        buffer.store(*at, *to as u64);
    }
}

/// 0..count in random order (Fisher-Yates shuffle).
fn shuffled(count: usize, state: &mut u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, (next(state) % (last as u64 + 1)) as usize);
    }
    order
}

/// MiB/s of lines that `threads` threads read sequentially, each in its own `bytes`; with `words`
/// all eight words of each line are read.
///
/// # Errors
/// Memory cannot be mapped on the node.
pub(crate) fn stream(
    node: u32,
    bytes: u64,
    time: Duration,
    threads: usize,
    words: bool,
) -> Result<f64> {
    let buffers: Vec<Buffer> =
        (0..threads).map(|_| Buffer::on(node, bytes as usize)).collect::<Result<_>>()?;
    let begun = Instant::now();
    let read = |(cpu, buffer): (usize, &Buffer)| {
        pin(cpu);
        let (mut lines, mut sum) = (0u64, 0u64);
        while begun.elapsed() < time {
            for page in 0..buffer.bytes() / PAGE {
                sum = sum.wrapping_add(match words {
                    true => sum_of::<8>(buffer, page * PAGE),
                    false => sum_of::<LINE>(buffer, page * PAGE),
                });
                lines += (PAGE / LINE) as u64;
                if page % 64 == 0 && begun.elapsed() >= time {
                    break;
                }
            }
        }
        std::hint::black_box(sum);
        lines as f64 * LINE as f64 / (1 << 20) as f64 / begun.elapsed().as_secs_f64()
    };
    let read = &read;
    Ok(std::thread::scope(|scope| {
        let threads: Vec<_> =
            buffers.iter().enumerate().map(|each| scope.spawn(move || read(each))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    }))
}

/// Sum of the words of a page at distances of `STEP` bytes.
#[inline(always)]
fn sum_of<const STEP: usize>(buffer: &Buffer, page: usize) -> u64 {
    (0..PAGE / STEP / UNROLLED).fold(0, |sum: u64, part| {
        let at = page + part * UNROLLED * STEP;
        let words: [u64; UNROLLED] = std::array::from_fn(|word| buffer.load(at + word * STEP));
        words.iter().fold(sum, |sum, word| sum.wrapping_add(*word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // 100 ns on both nodes without a delay, 200 ns more with a delay of 100: factor 2 takes 50.
    #[test]
    fn delays_follow_the_line_through_the_measurements() {
        let at = |delay, far| (delay, Pair { near: 100.0, far });
        let measured = [at(0, 100.0), at(100, 300.0), at(200, 500.0)];
        assert_eq!(delay_for(2.0, &measured[..2]), 50);
        assert_eq!(delay_for(4.0, &measured), 150);
        assert_eq!(delay_for(0.5, &measured), 0, "no delay is negative");
        let scattered = [at(0, 90.0), at(0, 110.0), at(100, 290.0), at(100, 310.0)];
        assert_eq!(delay_for(2.0, &scattered), 50);
    }
}
