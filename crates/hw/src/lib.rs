//! Models of the hardware between a program and its memory: TLBs, paging-structure caches, the page
//! walk, caches, a prefetcher.
//!
//! They are shared by the simulated machine, the instrumented virtual machine and the what-if
//! analysis of traces. They report events, and the caller assigns costs; only `loaded` has a notion
//! of time, that of a tier of memory under load. All are deterministic, and equal to naive oracles
//! over any sequence of operations (`tests/`).
//!
//! Invariant: the path of an access never allocates memory or follows a pointer chain.

pub mod cache;
mod cache_set;
pub mod config;
pub mod entry;
pub mod host;
pub mod loaded;
mod memory_tier;
mod mmu;
mod position;
mod prefetcher;
mod psc;
mod replacement;
mod sets;
mod tag_match;
mod tlb;
mod translation;
mod walker;

pub use cache::{Cache, Place};
pub use config::{Machine, PageSize};
pub use mmu::{Mmu, Source};
pub use prefetcher::{Fetches, Prefetcher};
pub use psc::{Psc, Table};
pub use tlb::{Stage, Tlb, TlbEntry};
pub use translation::{Asid, Translation};
pub use walker::{DEPTH, Fault, PageTable, Reads, Root, Walk, entry_address, is_canonical, walk};
