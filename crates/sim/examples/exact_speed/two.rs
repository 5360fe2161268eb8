//! Throughput of two machines on two cores, relative to one.

use std::thread;
use std::time::{Duration, Instant};

use tierscope_core::{Clock, Result};
use tierscope_sim::exact::{Machine, Process};
use tierscope_workloads::Workload;

use crate::measure::{Layer, setup};

/// Number of alternating measurements.
const TURNS: u32 = 5;

/// Accesses of two parallel machines as a multiple of those of one, in wall-clock time: the median
/// over several turns.
pub(crate) fn gain(workload: &Workload, bytes: u64, time: Duration) -> Result<f64> {
    let make = |seed| -> Result<Machine> {
        let mut machine = Machine::new(&setup(bytes, Layer::Whole)?)?;
        machine.start(&Process { populate: true, seed, ..Process::new(workload.clone()) })?;
        Ok(machine)
    };
    let (mut first, mut second) = (make(1)?, make(2)?);
    let each = time / TURNS;
    let mut turn = || {
        let alone = rate(&mut first, each);
        let both = thread::scope(|scope| {
            let other = scope.spawn(|| rate(&mut second, each));
            rate(&mut first, each) + other.join().expect("it only counts")
        });
        both / alone
    };
    let mut gains: Vec<f64> = (0..TURNS).map(|_| turn()).collect();
    gains.sort_by(f64::total_cmp);
    Ok(gains[gains.len() / 2])
}

/// Accesses a second.
fn rate(machine: &mut Machine, time: Duration) -> f64 {
    let before = machine.account().counts.accesses;
    let began = Instant::now();
    while began.elapsed() < time {
        machine.wait(machine.now() + Duration::from_micros(500));
    }
    (machine.account().counts.accesses - before) as f64 / began.elapsed().as_secs_f64()
}
