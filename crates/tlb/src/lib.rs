//! TLB misses.
pub mod mappings;
pub mod ptat;
