//! Published measurements of memory, predicted by the exact machine from what each result gives
//! (experiments/validation): `cargo run --release -p tierscope-sim --example validation [-- NAME…]`
//! prints the generated part of docs/memory.md.

mod results;
mod rig;
mod table;

use std::process::ExitCode;
use std::thread;

use tierscope_core::Result;

use table::{Pair, Section};

type Predict = fn() -> Result<Vec<Pair>>;

const RESULTS: [(&str, Predict); 9] = [
    ("mlc-cxl-asic", results::mlc_cxl_asic),
    ("mess-curves", results::mess_curves),
    ("mlc-three-xeons", results::mlc_three_xeons),
    ("mlc-two-states", results::mlc_two_states),
    ("cxl-turin", results::cxl_turin),
    ("colloid-gups", results::colloid_gups),
    ("interleave-stream", results::interleave_stream),
    ("chase-and-stream", results::chase_and_stream),
    ("optane-perma", results::optane_perma),
];

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
    let wanted: Vec<_> = RESULTS.into_iter().filter(|(name, _)| wanted(name)).collect();
    match sections(&wanted) {
        Ok(sections) => {
            print!("{}", table::page(&sections));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Predicts results in parallel, on all cores.
fn sections(wanted: &[(&'static str, Predict)]) -> Result<Vec<Section>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some((name, predict)) = wanted.get(at) else { return done };
            done.push((at, predict().map(|pairs| Section { name, pairs })));
            eprintln!("validation: {name}");
        }
    };
    let mut done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("it does not panic")).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, section)| section).collect()
}
