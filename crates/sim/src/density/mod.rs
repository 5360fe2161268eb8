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
//!   comes so late that the TLB has dropped the page follows from its size, by its characteristic time
//!   (`residency.rs`); what the small sets of the other caches miss, from how many distinct others were
//!   used meanwhile (`lru.rs`).
//! - A [flush](Config::flush), or one that an instrument asked for (`flushes.rs`), empties all of them:
//!   from then on the first access finds nothing in its way, and counts. Before that it counts if
//!   nobody came by since they were emptied last, so that they hold nothing yet.
//! - A [tick](Config::tick) flushes nothing: the kernel's own entries take places (`upper.rs`).
//! - Where memory lies in [huge pages](Config::huge), entries of level 2 are leaves: TLBs hold so many
//!   of 2 MiB, walks end there, and a scan of pages says of all 512 what the leaf says.
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
//! `tests/agreement/grid.md` has the differences cell by cell, over sizes, pages, rates, backgrounds and
//! flush periods.
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
//! workload reads whole values, [`Config::visit`] says so: then all of a value is touched at once. All
//! pages are there from the beginning and of one size; a huge page that was split is judged page by page,
//! but TLBs go on as if it were whole. Accesses come one by one: of a workload's
//! [bursts](tierscope_workloads::Workload::burst) densities know nothing, and a burst to cold memory
//! sets upper entries together that here are set apart. Sampled accesses are drawn from the densities, but
//! are not the very accesses that set bits. What a TLB hides is told by its size and not by its sets,
//! and accesses that lie in cores unevenly are not known. Translations that a move or an armed page shoots
//! down cost time, but are not walked anew. A walk that sets a flag makes a line of the page table dirty,
//! which is not counted as written. What a tick takes of a set of a paging-structure cache, unless it
//! takes all of it, comes by chance and not tick by tick. DAMON's regions go by the luck of few hits:
//! where little is hot, the two modes agree on means over seeds and not run by run.

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
