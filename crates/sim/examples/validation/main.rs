//! Published measurements of memory, predicted by the exact machine from what each result gives
//! (experiments/validation): `cargo run --release -p tierscope-sim --example validation [--
//! [--sensitivity] [NAME…]]` prints the generated parts of docs/memory-model.md.
//!
//! With `--sensitivity`, mean errors with each uncertain number of the machine files at both ends
//! of its range instead.

mod results;
mod rig;
mod sensitivity;
mod table;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tierscope_core::{Result, Time};

use rig::Rig;
use table::{Pair, Section};

type Predict = fn(&Rig) -> Result<Vec<Pair>>;

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

/// Simulated time of a measurement.
const TIME: Time = Time(1_000_000);

fn main() -> ExitCode {
    let (options, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
    let wanted: Vec<_> = RESULTS.into_iter().filter(|(name, _)| wanted(name)).collect();
    let text = match &options[..] {
        [] => sections(&wanted).map(|sections| table::page(&sections)),
        [one] if one == "--sensitivity" => sensitivity::table(&wanted),
        _ => {
            eprintln!("usage: validation [--sensitivity] [NAME…]");
            return ExitCode::from(2);
        }
    };
    match text {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn sections(wanted: &[(&'static str, Predict)]) -> Result<Vec<Section>> {
    let rig = Rig { time: TIME, change: None };
    parallel(wanted, |(name, predict)| {
        let pairs = predict(&rig)?;
        eprintln!("validation: {name}");
        Ok(Section { name, pairs })
    })
}

/// Does jobs on all cores; returns what they made, in their order.
fn parallel<J: Sync, T: Send>(jobs: &[J], work: impl Fn(&J) -> Result<T> + Sync) -> Result<Vec<T>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return done };
            done.push((at, work(job)));
        }
    };
    let mut done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("it does not panic")).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, made)| made).collect()
}
