//! The density machine: a bit is drawn when it is probed, so that the cost grows with the probes of
//! an instrument, not with the accesses of the workload or the amount of mapped memory.
//!
//! # The model
//!
//! A workload is taken as densities over ranges and time
//! ([`Workload::densities`](tierscope_workloads::Workload::densities)). Accesses to a page of a
//! range occur at random, independent times at the range's rate: a Poisson process. The accesses
//! are laid out in cells of pages and time, and the contents of a cell are a hash of its number
//! (`access_range.rs`). So there is one world: the order and number of probes do not change it.
//!
//! An entry is young if an access since its own last clear loaded it:
//!
//! - An access walks the page table unless the TLB holds the page; a walk loads an upper entry
//!   unless the paging-structure cache of that level, or of a level below, holds it. The share of
//!   the accesses that find the page evicted from the TLB follows from its size, by its
//!   characteristic time (`residency.rs`); the misses of the other caches' small sets follow from
//!   the number of distinct entries used meanwhile (`lru.rs`).
//! - A [flush](Config::flush), or one requested by an instrument (`flushes.rs`), empties all of
//!   them: afterwards the first access misses in all caches, and is visible. Until then an access
//!   is visible only if it is the first one since the previous flush, when the caches hold nothing
//!   yet, or if it misses.
//! - A [tick](Config::tick) flushes nothing: the kernel's own entries occupy ways (`upper.rs`).
//! - Where memory is in [huge pages](Config::huge), entries of level 2 are leaves: TLBs hold as
//!   many translations as they have for 2 MiB, walks end there, and a scan of pages reports the
//!   leaf's bit for all 512.
//!
//! # Speed of the target
//!
//! Memory is placed in tiers by [placement](Config::placement), in runs of pages that follow one
//! rule (`places.rs`); a [`Mover`] moves them over time (`moves.rs`). TLB and cache hits are
//! computed from rates (`hits.rs`); the time of all other accesses, and the interaction of tiers
//! and threads, are the fixed point of a closed loop (`flow.rs`). Where pages move, accesses become
//! faster or slower from then on: another Poisson process takes over.
//!
//! # Agreement with exact mode
//!
//! `cargo test -p tierscope-sim --test agreement -- --nocapture` prints both modes side by side:
//! accesses a second, accesses served by TLBs, caches and tiers, shares of young entries at every
//! level and in both orders of clearing, and every instrument's reports and costs; and checks
//! bounds on their differences. `tests/agreement/grid.md` has the differences cell by cell, over
//! sizes, pages, rates, backgrounds and flush periods.
//!
//! Three laws follow, and are tested:
//!
//! 1. A repeated test gives the same answer, and a young entry stays young until it is cleared.
//! 2. Without paging-structure caches, a parent that was not cleared after its child is young
//!    whenever the child is (exception: the first walks after a flush, see below).
//! 3. With them, or if it was cleared after its child, a parent may be old above a young child, as
//!    on hardware. After a flush an access misses in all caches: it is visible at every level.
//!
//! # Limits
//!
//! For bits, a sequential sweep is modelled as the same number of random visits to pages; for speed
//! it is a sweep. A workload that reads whole values sets [`Config::visit`]: then all of a value is
//! touched at once. All pages are present from the beginning and of one size; a split huge page is
//! tested page by page, but TLBs treat it as whole. Accesses are independent: a workload's
//! [bursts](tierscope_workloads::Workload::burst) are not part of its densities, and a burst to
//! cold memory sets upper entries together that are set separately here. Sampled accesses are drawn
//! from the densities, but are not the same accesses that set bits. Accesses hidden by a TLB are
//! computed from its size and not its sets, and an uneven distribution over cores is not modelled.
//! Translations shot down by a move or an armed page cost time, but do not cause another walk. A
//! walk that sets a flag makes a line of the page table dirty; its write-back is not counted. The
//! ways of a paging-structure cache's set that a tick takes, unless it takes all of them, are lost
//! at random and not tick by tick. DAMON's regions depend on the chance of few hits: where little
//! is hot, the two modes agree on means over seeds and not run by run.

mod access_range;
mod bits;
mod config;
mod counters;
mod faults;
mod flow;
mod flushes;
mod hash;
mod hits;
mod hot_lists;
mod ledger;
mod lru;
mod machine;
mod moves;
mod places;
mod profile;
mod promotion_reuse;
mod residency;
mod samples;
mod space;
mod stamps;
mod sums;
mod swap;
mod upper;
mod view;
mod walks;
mod world;

pub use crate::account::{Account, Counts, Spent};
pub use crate::mover::Mover;
pub use crate::placement::{Placement, Watermarks};
pub use config::{Config, Start, VALUES};
pub use flow::{Flow, TierFlow};
pub use machine::Machine;
pub use swap::{Swap, SwapUse};
