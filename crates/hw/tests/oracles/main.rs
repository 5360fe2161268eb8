//! Compares the models with naive oracles over random sequences of operations.
//!
//! `TIERSCOPE_OPERATIONS` sets the number of operations of each long test (default 300,000).

mod cache;
mod mmu;
mod naive;
mod naive_mmu;
mod replay;

/// Number of operations of a long test.
fn operations() -> u64 {
    match std::env::var("TIERSCOPE_OPERATIONS") {
        Ok(text) => text.parse().expect("TIERSCOPE_OPERATIONS is a number"),
        Err(_) => 300_000,
    }
}
