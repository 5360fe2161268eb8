//! Speed of streams: `cargo run --release -p tierscope-workloads --example stream_speed`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use tierscope_workloads::{Program, Stream, Touch, file, masim};

const ACCESSES: usize = 1 << 27;

fn main() -> tierscope_core::Result<()> {
    let workloads = [
        "contiguous:space=5TiB,hot=10GiB",
        "contiguous:space=5TiB,hot=10GiB,stride=4096",
        "contiguous:space=1TiB,hot=10GiB,share=0.99",
        "contiguous:space=1TiB,hot=10GiB,share=0.99,burst=1",
        "contiguous:space=1TiB,hot=10GiB,writes=0.3",
        "scattered:space=1TiB,ranges=10000",
        "gaussian:space=1TiB,item=5MB,sd=100",
        "zipf:space=1TiB,item=4KiB",
        "zipf:space=4GiB,item=4KiB,scrambled=true",
    ];
    println!("{:>8}  workload", "M/s");
    for spec in workloads {
        let workload = file::load(spec, masim::Mode::Correct)?;
        let mut stream = Stream::new(&Arc::new(Program::new(&workload)), &[1 << 40], 1, 0, 1);
        let mut batch = vec![Touch::default(); 1024];
        let started = Instant::now();
        for _ in 0..ACCESSES / batch.len() {
            stream.fill(&mut batch);
            black_box(&batch);
        }
        println!("{:8.0}  {spec}", ACCESSES as f64 / started.elapsed().as_secs_f64() / 1e6);
    }
    Ok(())
}
