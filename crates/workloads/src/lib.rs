//! Workloads that know which of their memory is hot.
//!
//! A workload of a key-value store is told from the outside: its client chooses which keys are
//! hot ([`hotspot`]), marks every value ([`value`]), loads the server ([`redis`]) and finds the
//! values again in the server's memory ([`truth`]).

pub mod hotspot;
pub mod proc_mem;
pub mod redis;
pub mod resp;
pub mod truth;
pub mod value;
