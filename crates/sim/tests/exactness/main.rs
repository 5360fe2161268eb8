//! The exact machine compared with a naive one: translations, ACCESSED and DIRTY at every level,
//! addresses of page tables and pages, contents of TLBs and paging-structure caches; over random
//! operations.
//!
//! `TIERSCOPE_OPERATIONS` sets the number of operations, half of them with four levels and half
//! with five; the default is 10 million. `TIERSCOPE_PART` selects other random words, so that many
//! operations can be run in parts: `TIERSCOPE_PART=7 TIERSCOPE_OPERATIONS=100000000 cargo test -p
//! tierscope-sim --test exactness equals`. The naive MMU is the reference of the models in `hw`.

#[path = "../../../hw/tests/oracles/naive.rs"]
mod naive;
#[path = "../../../hw/tests/oracles/naive_mmu.rs"]
#[allow(dead_code, reason = "hw's own tests use the rest")]
mod naive_mmu;
mod naive_os;
mod pair;
#[path = "../../../hw/tests/oracles/replay.rs"]
#[allow(dead_code, reason = "hw's own tests use the rest")]
mod replay;

use pair::Pair;
use replay::words;
use tierscope_core::Time;

/// Simulated time for half a thousand first touches, and as many accesses as the naive machine
/// executes in a second.
const MOMENT: Time = Time(640_000);

/// A number from the environment.
fn number(name: &str, unless_set: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', not a number")),
        Err(_) => unless_set,
    }
}

/// Compares both machines with `levels` levels over half of the operations.
fn equals_the_naive_machine(levels: u8) {
    let operations = number("TIERSCOPE_OPERATIONS", 10_000_000) / 2;
    let seed = u64::from(levels) + 16 * number("TIERSCOPE_PART", 0);
    let mut pair = Pair::new(levels);
    for (step, word) in words(seed, operations).enumerate() {
        pair.step(word);
        if step % 4096 == 0 {
            pair.compare_state();
        }
    }
    pair.compare_state();
}

#[test]
fn equals_the_naive_machine_of_four_levels() {
    equals_the_naive_machine(4);
}

#[test]
fn equals_the_naive_machine_of_five_levels() {
    equals_the_naive_machine(5);
}

/// Threads use another path than single accesses: windows of accesses with faults between them.
#[test]
fn a_running_process_equals_the_naive_machine() {
    for levels in [4, 5] {
        let mut pair = Pair::new(levels);
        let accesses = pair.run("contiguous:space=2MiB,hot=256KiB,share=0.5,writes=0.3", MOMENT);
        assert!(accesses > 50_000, "{accesses}");
        pair.compare_state();
        assert!(["walk", "hit", "store", "page K4"].iter().all(|what| pair.seen(what) > 500));
    }
}

/// The random words reach all operations and outcomes of the machine.
#[test]
fn the_random_operations_reach_every_case() {
    let mut pair = Pair::new(5);
    words(7, 200_000).for_each(|word| pair.step(word));
    for what in [
        "hit",
        "store",
        "page K4",
        "page M2",
        "page G1",
        "hint",
        "unmapped",
        "read-only",
        "split",
        "collapse",
        "migrate",
        "unmap",
        "protect",
        "exit",
        "clear",
        "scan",
        "pruned",
    ] {
        assert!(pair.seen(what) > 0, "{what} was never reached: {:?}", pair.all_seen());
    }
}
