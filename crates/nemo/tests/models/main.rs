//! The cycle model and the fast model are one: whatever comes, in whatever order, at whatever
//! distance. `TIERSCOPE_OPERATIONS=100000000 cargo test -p tierscope-nemo --test models`
//! for more operations than the million of a plain run.

mod lanes;
mod stream;
mod views;

/// Operations of a long random run.
fn operations() -> u64 {
    let text = std::env::var("TIERSCOPE_OPERATIONS").unwrap_or_default();
    text.parse().unwrap_or(1_000_000)
}
