//! Suites that every machine, instrument, policy and mover must pass; for tests only.
//!
//! [`toy`] is the smallest possible machine: page tables as plain sets, virtual time, a workload
//! given as a function. It is the naive oracle that faster machines are compared with.
//! [`access_bits`] checks the ACCESSED bits of any machine, [`residency`] how they show a
//! continuously running workload, [`instrument`] any instrument. [`tiers`] gives the toy tiered
//! memory and a mover; [`policy`] checks any policy on it. [`peak`] measures the memory that a test
//! takes, [`skip`] reports that a machine cannot run one.

pub mod access_bits;
pub mod counters;
pub mod hot_lists;
pub mod instrument;
pub mod peak;
pub mod policy;
pub mod residency;
pub mod skip;
pub mod tiers;
pub mod toy;
