//! CPU time of reading and writing the compact format (schedstat, so that other load on the machine
//! does not count), and its bytes per access, on access patterns of several kinds of programs:
//! `cargo run -p tierscope-trace --example compact_speed`. Arguments select patterns; a number sets
//! the accesses (default 50,000,000).

use tierscope_core::{Rng, Time};
use tierscope_trace::compact::{Reader, Writer};
use tierscope_trace::{Access, Batch, Kind, Source};

const ACCESSES: u64 = 50_000_000;

/// Nanoseconds that this thread spent on a CPU.
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

const HEAP: u64 = 0x7f00_0000_0000;
const STACK: u64 = 0x7ffc_0000_0000;
const CODE: u64 = 0x40_0000;

fn data(address: u64, kind: Kind) -> Access {
    Access { address, bytes: 8, kind, ..Access::default() }
}

/// Consecutive words of an array.
fn sequential(n: u64, _: &mut Rng) -> Access {
    data(HEAP + n * 8, Kind::Load)
}

/// A loop of 12 instructions over two arrays and its stack, with instruction fetches.
fn program(n: u64, _: &mut Rng) -> Access {
    let (turn, step) = (n / 16, n % 16);
    match step {
        3 => data(HEAP + turn * 8, Kind::Load),
        6 => data(HEAP + (1 << 32) + turn * 8, Kind::Load),
        9 => data(STACK + turn % 8 * 8, Kind::Store),
        12 => data(STACK + turn % 4 * 16, Kind::Load),
        _ => Access { address: CODE + step * 4, bytes: 4, kind: Kind::Fetch, ..Access::default() },
    }
}

/// Random words in 64 MiB.
fn table(_: u64, rng: &mut Rng) -> Access {
    data(HEAP + rng.below(8 << 20) * 8, Kind::Modify)
}

/// Random words in 16 GiB.
fn anywhere(_: u64, rng: &mut Rng) -> Access {
    data(HEAP + rng.below(2 << 30) * 8, Kind::Load)
}

/// The accesses of [`program`], by 8 threads that alternate every 100 accesses.
fn threads(n: u64, rng: &mut Rng) -> Access {
    Access { thread: (n / 100 % 8) as u32, ..program(n, rng) }
}

/// The accesses of [`program`], each with its own time.
fn timed(n: u64, rng: &mut Rng) -> Access {
    Access { time: Time(n * 3), ..program(n, rng) }
}

type Made = fn(u64, &mut Rng) -> Access;
const KINDS: [(&str, Made); 6] = [
    ("sequential", sequential),
    ("program", program),
    ("table", table),
    ("anywhere", anywhere),
    ("threads", threads),
    ("timed", timed),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count = words.iter().find_map(|word| word.parse().ok()).unwrap_or(ACCESSES);
    let named = |name: &str| words.iter().any(|word| word == name);
    let all = !KINDS.iter().any(|(name, _)| named(name));
    for (name, make) in KINDS.into_iter().filter(|(name, _)| all || named(name)) {
        let mut rng = Rng::seeded(3);
        let begun = on_cpu();
        let mut writer = Writer::new("memory", Vec::new()).expect("memory");
        (0..count).for_each(|n| writer.access(&make(n, &mut rng)).expect("in order"));
        let (bytes, ..) = writer.finish(true).expect("memory");
        let written = on_cpu();
        let mut reader = Reader::new("memory", &bytes[..]).expect("ours");
        let mut batch = Batch::default();
        let mut read = 0;
        while reader.fill(&mut batch).expect("it is sound") {
            read += batch.accesses.len() as u64;
            batch.clear();
        }
        let done = on_cpu();
        assert_eq!(read, count);
        let rate = |nanos: u64| count as f64 * 1e3 / nanos.max(1) as f64;
        println!(
            "{name:10} {:.3} bytes an access; M accesses a CPU second: {:.1} written, {:.1} read",
            bytes.len() as f64 / count as f64,
            rate(written - begun),
            rate(done - written)
        );
    }
}
