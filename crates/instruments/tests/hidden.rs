//! Memory whose ACCESSED bits tell nothing is unknown for all instruments that use these bits.

use tierscope_conformance::instrument::reports_hidden_memory;
use tierscope_core::Need;
use tierscope_instruments::registry::{Common, list};

#[test]
fn every_instrument_of_accessed_bits_reports_hidden_memory() {
    let entries = list().iter().filter(|entry| entry.needs(Need::AccessBits));
    let mut tested = Vec::new();
    for entry in entries {
        for variant in entry.variants {
            println!("{} {}", entry.name, variant.name);
            reports_hidden_memory(&|| entry.make(Some(variant.name), &Common::default()).unwrap());
        }
        tested.push(entry.name);
    }
    assert_eq!(tested, ["rates", "telescope", "damon", "scan"]);
}
