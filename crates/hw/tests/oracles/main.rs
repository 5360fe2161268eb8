//! The models against naive oracles, over random sequences of operations.
//!
//! `TIERSCOPE_OPERATIONS` sets how many operations each long test does (300,000 unless set).

mod cache;
mod mmu;
mod naive;
mod naive_mmu;
mod replay;

/// Operations of a long test.
fn operations() -> u64 {
    match std::env::var("TIERSCOPE_OPERATIONS") {
        Ok(text) => text.parse().expect("TIERSCOPE_OPERATIONS is a number"),
        Err(_) => 300_000,
    }
}
