//! Latency and bandwidth of a node as a program feels them.

use std::time::{Duration, Instant};

use tierscope_core::Result;

use crate::buffer::{Buffer, LINE, PAGE, next, pin};

/// Loads between looks at the clock.
const BATCH: usize = 20_000;

/// Loads of a stream without a branch between them: an emulated branch costs as much as a load.
const UNROLLED: usize = 8;

/// Nanoseconds of a load whose address the load before it gave, over all lines of `bytes` in random order.
///
/// # Errors
/// There is no such memory.
pub(crate) fn chase(node: u32, bytes: u64, time: Duration) -> Result<f64> {
    pin(0);
    let buffer = Buffer::on(node, bytes as usize)?;
    link(&buffer);
    let mut at = 0;
    // Once around, so that the cache holds what it can.
    (0..buffer.bytes() / LINE).for_each(|_| at = buffer.load(at) as usize);
    let (begun, mut loads) = (Instant::now(), 0u64);
    while begun.elapsed() < time {
        (0..BATCH).for_each(|_| at = buffer.load(at) as usize);
        loads += BATCH as u64;
    }
    std::hint::black_box(at);
    Ok(begun.elapsed().as_nanos() as f64 / loads as f64)
}

/// Nanoseconds of a dependent load, second by second, over memory that was filled on node 1 and is free to move; and
/// the share of it that lies on node 0 in the end.
///
/// # Errors
/// There is no node 1.
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

/// One ring through all lines (Sattolo's algorithm).
fn link(buffer: &Buffer) {
    let lines = buffer.bytes() / LINE;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut state = 0x9e37_79b9;
    for last in (1..lines).rev() {
        order.swap(last, (next(&mut state) % last as u64) as usize);
    }
    for (line, to) in order.iter().enumerate() {
        buffer.store(line * LINE, u64::from(*to) * LINE as u64);
    }
}

/// MiB a second of lines read one after the other by so many threads, each with its own `bytes`.
///
/// # Errors
/// There is no such memory.
pub(crate) fn stream(node: u32, bytes: u64, time: Duration, threads: usize) -> Result<f64> {
    let buffers: Vec<Buffer> =
        (0..threads).map(|_| Buffer::on(node, bytes as usize)).collect::<Result<_>>()?;
    let begun = Instant::now();
    let read = |(cpu, buffer): (usize, &Buffer)| {
        pin(cpu);
        let (mut lines, mut sum) = (0u64, 0u64);
        while begun.elapsed() < time {
            for page in 0..buffer.bytes() / PAGE {
                for part in 0..PAGE / LINE / UNROLLED {
                    let at = page * PAGE + part * UNROLLED * LINE;
                    let words: [u64; UNROLLED] =
                        std::array::from_fn(|line| buffer.load(at + line * LINE));
                    sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(*word));
                }
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
