//! The `rates` instrument on toy machines: the conformance suite.

use tierscope_conformance::instrument::conforms;
use tierscope_instruments::rates::{Config, Rates};

#[test]
fn conforms_to_the_suite() {
    conforms(&|| Box::new(Rates::new(Config::default()).unwrap()));
}
