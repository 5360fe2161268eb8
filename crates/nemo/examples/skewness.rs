//! Listing 1 of the paper: counts the requests to each base page of selected huge pages. `cargo run
//! -p tierscope-nemo --example skewness`

mod common;

use common::{HUGE, prototype, reads};
use tierscope_core::{BusObserver, Counters, Result, Rule, RuleLimits};

const RULE: &str = "
    filter all
    key all >> 21           # huge pages across all physical memory
    offset 0x1fffff >> 12   # base page within the huge page
    update + 1
    notify never
    on_read reset 0
";

fn main() -> Result<()> {
    let mut driver = prototype()?;
    let rule: Rule = RULE.parse()?;
    rule.check(&RuleLimits::of_memory(16 << 30))?;
    // Section 5.2: seven pipelines watch 112 huge pages at a time.
    let watched: Vec<u64> = (0..112).map(|n| 1000 + 7 * n).collect();
    let skew = driver.register_states(&rule, 112 * rule.states_per_key())?;
    for (slot, page) in (0..).zip(&watched) {
        driver.translate(skew, *page, Some(slot * 512))?;
    }
    // Requests to the whole first huge page, and to four base pages of the second.
    driver.observe(&reads(watched[0] * HUGE, HUGE, 50_000));
    driver.observe(&reads(watched[1] * HUGE, 4 << 12, 50_000));
    let mut counts = vec![0; 112 * 512];
    driver.read(skew, &mut counts)?;
    for (page, counts) in watched.iter().zip(counts.chunks(512)).take(3) {
        let touched = counts.iter().filter(|n| **n > 0).count();
        let most = counts.iter().max().unwrap_or(&0);
        let sum: u64 = counts.iter().sum();
        println!("huge page {page}: {sum} requests to {touched} base pages, at most {most}");
    }
    Ok(())
}
