//! `mutator`: a process whose address space changes all the time. Threads map, unmap, move, protect
//! and advise memory, fork, execute this program again and exit, in a pseudo-random order that the
//! seed determines; each mutation is counted by kind (`tierscope_lab::guest::mutations`).
//!
//! Usage: mutator SEED THREADS LIFE_MS COUNTERS, the last the descriptor of the counters. The
//! process keeps its pid across executions. If the variable POOL_FILE names a file of a huge-page
//! pool, the threads of all mutators map that file (`pool.rs`). Mutations that this machine is not
//! set up for are left out (`offers.rs`).

mod area;
mod huge;
mod offers;
mod pages;
mod pool;
mod userfault;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tierscope_core::Rng;
use tierscope_lab::guest::mutations::{Kind, Mutations};

use worker::Worker;

fn main() -> ExitCode {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [seed, threads, life_ms, counters] = arguments[..] else {
        eprintln!("usage: mutator SEED THREADS LIFE_MS COUNTERS");
        return ExitCode::from(2);
    };
    let mutations = match Mutations::inherited(counters as i32) {
        Ok(mutations) => Arc::new(mutations),
        Err(error) => {
            eprintln!("mutator: counters {counters}: {error}");
            return ExitCode::FAILURE;
        }
    };
    mutations.end_all();
    end_with_the_first_thread_that_panics();
    for number in 0..threads {
        let mutations = mutations.clone();
        thread::spawn(move || match std::env::var_os("POOL_FILE") {
            Some(file) => pool::live(&file, seed, number),
            None => Worker::new(seed + number, mutations).live(),
        });
    }
    thread::sleep(Duration::from_millis(life_ms));
    // The threads are in the middle of whatever they do. Half of all lives end with exec, half with
    // exit.
    if Rng::seeded(seed).below(2) == 0 {
        again(&mutations, [seed + 1000, threads, life_ms, counters])
    } else {
        mutations.begin(Kind::Exit);
        std::process::exit(0)
    }
}

fn end_with_the_first_thread_that_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        std::process::exit(1)
    }));
}

/// Executes this program again in the same process.
fn again(mutations: &Mutations, arguments: [u64; 4]) -> ExitCode {
    use std::os::unix::process::CommandExt;
    let mut program = std::process::Command::new("/proc/self/exe");
    program.args(arguments.map(|n| n.to_string()));
    mutations.begin(Kind::Exec);
    let error = program.exec();
    eprintln!("mutator: exec: {error}");
    ExitCode::FAILURE
}
