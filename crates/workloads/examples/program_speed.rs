//! Measures how fast programs hand out accesses, per lane:
//!
//! `cargo run --release -p tierscope-workloads --example program_speed [SCALE [SECONDS]]`
//!
//! Each line: the program, millions of accesses a second, seconds to prepare it. Absolute numbers
//! from a machine with other load are unreliable; compare lines of one run.

use std::time::{Duration, Instant};

use tierscope_workloads::{App, Next, Touch, programs};

fn main() {
    let mut args = std::env::args().skip(1);
    let scale: u32 = args.next().and_then(|text| text.parse().ok()).unwrap_or(18);
    let seconds: f64 = args.next().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let graphs = ["bfs", "sssp", "pr", "cc", "bc", "tc", "graph500"];
    let specs = graphs.iter().flat_map(|name| {
        ["kron", "uniform"].map(|graph| format!("{name}:scale={scale},graph={graph},load=false"))
    });
    println!("{:48} {:>8} {:>8}", "program", "M/s", "prepare");
    for spec in specs.chain(["gups:table=1GiB".to_owned()]) {
        let app = programs::from_spec(&spec).expect("it makes sense");
        let begun = Instant::now();
        app.prepare(&mut |_| true);
        let prepared = begun.elapsed().as_secs_f64();
        let rate = rate(&*app, Duration::from_secs_f64(seconds));
        println!("{spec:48} {:8.1} {prepared:8.2}", rate / 1e6);
    }
}

/// Accesses a second of one lane, restarting the program as often as needed.
fn rate(app: &dyn App, time: Duration) -> f64 {
    let bases: Vec<u64> = (1..=app.areas().len() as u64).map(|at| at << 40).collect();
    let mut buffer = [Touch::default(); 256];
    let (mut count, mut sum) = (0u64, 0u64);
    let begun = Instant::now();
    for seed in 1.. {
        let mut lane = app.start(&bases, seed, 1).remove(0);
        while let Next::Touches(drawn) = lane.next(&mut buffer) {
            count += drawn as u64;
            sum = buffer[..drawn].iter().fold(sum, |sum, touch| sum.wrapping_add(touch.address()));
            if begun.elapsed() >= time {
                std::hint::black_box(sum);
                return count as f64 / begun.elapsed().as_secs_f64();
            }
        }
    }
    unreachable!("there is always another seed")
}
