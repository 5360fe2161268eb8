//! Listing 2 of the paper: counts the requests to each huge page. `cargo run -p tierscope-nemo
//! --example hot_pages`

mod common;

use common::{HUGE, prototype, reads};
use tierscope_core::{BusObserver, Counters, Result, Rule};

const RULE: &str = "
    filter all
    key all >> 21       # no sub-region: one counter a huge page
    update + 1
    notify never
    on_read reset 0
";

fn main() -> Result<()> {
    let mut driver = prototype()?;
    let rule: Rule = RULE.parse()?;
    let hot = driver.register(&rule)?;
    for page in 0..8192 {
        driver.translate(hot, page, Some(page as u32))?;
    }
    for second in 0..3 {
        // The hot set moves by ten pages a second.
        driver.observe(&reads(0, 16 << 30, 100_000));
        driver.observe(&reads((500 + 10 * second) * HUGE, 10 * HUGE, 100_000));
        let mut counts = vec![0; 8192];
        driver.read(hot, &mut counts)?;
        let pages: Vec<usize> = (0..8192).filter(|page| counts[*page] > 1000).collect();
        println!("second {second}: hot are {pages:?}");
    }
    Ok(())
}
