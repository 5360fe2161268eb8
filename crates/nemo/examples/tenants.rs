//! Listing 3 of the paper: counts the requests of each tenant, and reports tenants above the cap.
//! `cargo run -p tierscope-nemo --example tenants`

mod common;

use common::{HUGE, prototype, reads};
use tierscope_core::{BusObserver, Counters, Result, Rule};
use tierscope_nemo::driver::StateMapping;

/// Requests that a tenant may make between two reads.
const CAP: u64 = 60_000;

fn main() -> Result<()> {
    let mut driver = prototype()?;
    // All huge pages of a tenant select the tenant's state.
    let rule: Rule =
        format!("key all >> 21; update + 1; notify >= {CAP}; on_read reset 0").parse()?;
    let tenants = driver.register_states(&rule, 4)?;
    for tenant in 0..4 {
        let start = u64::from(tenant) * 2048 * HUGE;
        driver.translate_range(tenants, start, start + 2048 * HUGE, StateMapping::One(tenant))?;
    }
    // The third tenant is noisy.
    for (tenant, requests) in [(0, 10_000), (1, 20_000), (2, 90_000), (3, 5_000)] {
        driver.observe(&reads(tenant * 2048 * HUGE, 2048 * HUGE, requests));
    }
    driver.dispatch(|alert| {
        println!("tenant {} has made {} requests", alert.state, alert.value);
    })?;
    let mut counts = [0; 4];
    driver.read(tenants, &mut counts)?;
    println!("all: {counts:?}");
    Ok(())
}
