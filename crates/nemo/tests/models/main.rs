//! The cycle model and the functional model are equivalent for any requests and control operations,
//! in any order, at any distance. `TIERSCOPE_OPERATIONS=100000000 cargo test -p tierscope-nemo
//! --test models` for more operations than the default of one million.

mod lanes;
mod stream;
mod views;

/// Number of operations of a long random run.
fn operations() -> u64 {
    let text = std::env::var("TIERSCOPE_OPERATIONS").unwrap_or_default();
    text.parse().unwrap_or(1_000_000)
}
