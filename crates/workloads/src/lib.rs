//! Workloads that know which of their memory is hot.
//!
//! A [`Workload`] is areas of memory and phases of accesses to them. It is read from TOML, from a
//! masim configuration or from a generator's line ([`file::load`]), and drives three consumers with
//! the same accesses: a [`Stream`] for a simulated machine, [`density::Density`] for a machine that
//! works on access densities instead of single accesses, and the program `toucher`, which really
//! touches memory and records the ground truth of hot ranges over time ([`truth_dir`]).
//!
//! The ground truth of a key-value store is obtained from outside the server: the client chooses
//! which keys are hot ([`hotspot`]), marks every value ([`value`]), loads the server ([`redis`])
//! with reads, updates and a scan ([`asks`]), and finds the values again in the server's memory
//! ([`truth`]).

mod alias;
pub mod app;
pub mod asks;
pub mod bins;
pub mod density;
pub mod description;
pub mod file;
pub mod filler;
pub mod generate;
pub mod graph;
pub mod hotspot;
pub mod keys;
pub mod masim;
pub mod memcached;
pub mod neighbour;
pub mod on_nodes;
mod permutation;
pub mod proc_mem;
pub mod programs;
pub mod random_access;
pub mod redis;
pub mod resp;
mod scatter;
pub mod schedule;
mod spec;
pub mod stand_in;
pub mod stand_in_spec;
pub mod store;
pub mod stream;
pub mod summing;
mod team;
pub mod truth;
pub mod truth_dir;
pub mod value;
pub mod work;
pub mod ycsb;

pub use app::{App, Call, Lane, Next};
pub use density::{Density, Part};
pub use description::Workload;
pub use schedule::Segment;
pub use stream::{Program, Stream, Touch};
pub use work::Work;
