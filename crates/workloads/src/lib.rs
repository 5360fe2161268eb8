//! Workloads that know which of their memory is hot.
//!
//! A [`Workload`] is areas of memory and phases of accesses to them. It is read from TOML, from a
//! masim configuration or from a generator's line ([`file::load`]), and drives three consumers with
//! the same accesses: a [`Stream`] for a simulated machine, [`density::Density`] for a machine that
//! works on access densities instead of single accesses, and the program `toucher` (a crate of its
//! own), which accesses real memory and records the ground truth of hot ranges over time.
//!
//! The format of that truth ([`truth_dir`]) is part of this crate, next to the streams by which a
//! reader draws the same accesses again: comparisons read it without depending on the programs that
//! access real memory.

mod alias;
pub mod app;
pub mod bins;
pub mod density;
pub mod description;
pub mod file;
pub mod generate;
pub mod graph;
pub mod hotspot;
pub mod keys;
pub mod masim;
pub mod neighbour;
mod permutation;
pub mod programs;
pub mod random_access;
mod scatter;
pub mod schedule;
mod spec;
pub mod stand_in;
pub mod stand_in_spec;
pub mod store;
pub mod stream;
mod team;
pub mod text_file;
pub mod truth_dir;
pub mod work;
pub mod ycsb;

pub use app::{App, Call, Lane, Next, Phase};
pub use density::{Density, Part};
pub use description::Workload;
pub use schedule::Segment;
pub use stream::{Program, Stream, Touch};
pub use work::Work;
