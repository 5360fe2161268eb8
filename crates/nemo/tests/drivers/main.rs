//! The driver: accepted and refused telemetries, and complete removal.

mod broken;
mod caches;
mod guests;
mod leaks;
mod notices;
mod refusals;

use tierscope_core::{BusRecord, Key, ReadEffect, Rule, RuleBuilder, RuleLimits, Time};
use tierscope_nemo::{Driver, Functional, Memory};

const HUGE: u64 = 1 << 21;
/// The prototype's memory.
const BYTES: u64 = 16 << 30;

fn prototype() -> Driver<Functional> {
    let memory = Memory::single(BYTES, 2).expect("a memory");
    Driver::new(Functional::new(memory, 8, 64).expect("an engine"))
}

/// Listing 2: a counter for each huge page, reset on read.
fn per_huge_page() -> RuleBuilder {
    Rule::build().key(Key::ALL_MEMORY, 21).on_read(ReadEffect::Reset(0))
}

/// Listing 1: a counter for each page of a huge page.
fn per_base_page() -> RuleBuilder {
    per_huge_page().offset(HUGE - 1, 12)
}

fn finish(builder: RuleBuilder) -> Rule {
    builder.finish(&RuleLimits::of_memory(BYTES)).expect("a rule")
}

fn reads(addresses: impl IntoIterator<Item = u64>) -> Vec<BusRecord> {
    let one = |(n, address): (usize, u64)| BusRecord::new(Time(n as u64), address, false);
    addresses.into_iter().enumerate().map(one).collect()
}
