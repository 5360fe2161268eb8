//! What would save TLB misses: larger pages for some objects, or another machine.

mod larger_pages;
mod whatif;

pub use larger_pages::{Advice, Estimate, Trial};
pub use whatif::Configuration;
