//! Suites that every machine, instrument, policy and mover must pass; for tests only.
//!
//! [`toy`] is the smallest machine there is: page tables as plain sets, virtual time, a workload
//! given as a function. It is the naive oracle that faster machines are held against.
//! [`access_bits`] checks any machine's ACCESSED bits, [`residency`] what they show of a workload that
//! goes on, [`instrument`] any instrument. [`tiers`] gives the toy memory in tiers and a mover;
//! [`policy`] checks any policy on it.

pub mod access_bits;
pub mod counters;
pub mod instrument;
pub mod policy;
pub mod residency;
pub mod tiers;
pub mod toy;
