//! The exact machine against a naive one: translations, ACCESSED and DIRTY at every level, where
//! page tables and pages lie, what TLBs and paging-structure caches hold; over random operations.
//!
//! `TIERSCOPE_OPERATIONS` sets how many (1,000,000 unless set). The naive MMU is the one that the
//! models of `hw` are held against.

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

fn operations() -> u64 {
    match std::env::var("TIERSCOPE_OPERATIONS") {
        Ok(text) => text.parse().expect("TIERSCOPE_OPERATIONS is a number"),
        Err(_) => 1_000_000,
    }
}

#[test]
fn equals_the_naive_machine() {
    for levels in [4, 5] {
        let mut pair = Pair::new(levels);
        for (step, word) in words(u64::from(levels), operations() / 2).enumerate() {
            pair.step(word);
            if step % 4096 == 0 {
                pair.compare_state();
            }
        }
        pair.compare_state();
    }
}

/// The random words really reach what the machine can do.
#[test]
fn the_operations_reach_everything() {
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
