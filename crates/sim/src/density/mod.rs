//! The machine that draws a bit when asked for it: its cost grows with what an instrument looks at,
//! not with what the workload does, nor with how much is mapped.
//!
//! # The model
//!
//! A workload is taken as densities over ranges and time
//! ([`Workload::densities`](tierscope_workloads::Workload::densities)). Accesses to a page of a range
//! come at random, independent times at the range's rate: a Poisson process. Its accesses are laid
//! out in cells of pages and time, and what a cell holds is a hash of its number (`piece.rs`). So
//! there is one world, the same in whatever order and as often as it is asked.
//!
//! An entry is young if an access since its own last clear loaded it:
//!
//! - An access walks the page table unless the TLB holds the page; a walk loads an upper entry unless
//!   the paging-structure cache of that level, or of one below, holds it. Which share of the accesses
//!   that is follows from the caches' sizes, by their characteristic times (`residency.rs`).
//! - A [flush](Config::flush) empties all of them: after it the first access to a page walks, and the
//!   first one beneath an upper entry loads that. Between a clear and the next flush only the accesses
//!   count that walk anyway.
//!
//! Three laws follow, and are tested:
//!
//! 1. Whoever asks twice gets the same answer, and a young entry stays young until it is cleared.
//! 2. A parent that was not cleared after its child is young if the child is, on a machine without
//!    paging-structure caches.
//! 3. With them, or if it was cleared after its child, a parent may be old above a young child, as on
//!    hardware. After a flush an access finds no cache: it counts at every level.
//!
//! # What it leaves out
//!
//! Sequential sweeps are taken for as many random accesses. Pages are 4 KiB. Sampled accesses are
//! drawn from the densities, but are not the very accesses that set bits. What the TLB hides is told
//! by its size and not by its sets, and a set of pages that lies in cores unevenly is not known.

mod bits;
mod config;
mod faults;
mod hash;
mod machine;
mod piece;
mod profile;
mod residency;
mod samples;
mod stamps;
mod world;

pub use config::{Config, Start};
pub use machine::Machine;
