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
//!   comes so late that a cache has dropped what it needs follows from the caches' sizes, by their
//!   characteristic times (`residency.rs`).
//! - A [flush](Config::flush) empties all of them, a [tick](Config::tick) the paging-structure caches:
//!   from then on the first access finds nothing in its way, and counts. Before that it counts if
//!   nobody came by since they were emptied last, so that they hold nothing yet.
//!
//! # How fast the target goes
//!
//! Memory lies in tiers by [placement](Config::placement), in runs of pages that follow one rule
//! (`places.rs`); a [`Mover`] moves them in its own time (`moves.rs`). What the TLBs and caches answer
//! is told from rates (`hits.rs`); how long the rest takes, and what tiers and threads make of one
//! another, is the fixed point of a closed loop (`flow.rs`). Where pages move, accesses speed up or slow
//! down from then on: another Poisson process takes over.
//!
//! # How it agrees with exact mode
//!
//! `cargo test -p tierscope-sim --test agreement -- --nocapture` prints both beside each other: accesses
//! a second, what TLBs, caches and tiers serve, shares of young entries at every level and in both
//! orders of clearing, what every instrument reports, and at which cost; and holds them to bounds.
//!
//! Three laws follow, and are tested:
//!
//! 1. Whoever asks twice gets the same answer, and a young entry stays young until it is cleared.
//! 2. A parent that was not cleared after its child is young if the child is, but for what is said below of the
//!    first walks after a flush, on a machine without
//!    paging-structure caches.
//! 3. With them, or if it was cleared after its child, a parent may be old above a young child, as on
//!    hardware. After a flush an access finds no cache: it counts at every level.
//!
//! # What it leaves out
//!
//! To bits, sequential sweeps look like as many random visits to pages; to speed they are sweeps. Where a
//! workload reads whole values, [`Config::visit`] says so: then all of a value is touched at once. Pages
//! are 4 KiB, and all are there from the beginning; [huge](Config::huge) ones are known as such to who
//! places memory, and to nobody else. Sampled accesses are drawn from the densities, but
//! are not the very accesses that set bits. What a cache hides is told by its size and not by its sets,
//! and accesses that lie in cores unevenly are not known. Translations that a move or an armed page shoots
//! down cost time, but are not walked anew. A walk that sets a flag makes a line of the page table dirty,
//! which is not counted as written. After a flush the pages of a set that TLBs hold walk once each, over
//! some milliseconds; above the leaves these walks count from the next flush after a clear on, not from
//! the one before. DAMON's regions go by the luck of few hits: where little is hot, the
//! two modes agree on means over seeds and not run by run.

mod bits;
mod config;
mod counters;
mod faults;
mod flow;
mod flushes;
mod hash;
mod hits;
mod ledger;
mod lru;
mod machine;
mod moves;
mod piece;
mod places;
mod profile;
mod residency;
mod samples;
mod stamps;
mod stretches;
mod sums;
mod swap;
mod upper;
mod view;
mod walks;
mod world;

pub use crate::account::{Account, Counts, Spent};
pub use crate::desk::Mover;
pub use crate::placement::{Placement, Watermarks};
pub use config::{Config, Start, VALUES};
pub use flow::{Flow, TierFlow};
pub use machine::Machine;
pub use swap::{Swap, SwapUse};
