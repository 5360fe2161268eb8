//! Memory management of the simulated kernel: spaces, page tables, frames and faults.
//!
//! Does the work of the kernel's mm, in its order and with its effects on entries, except for the
//! shootdown that has to follow a change: each change returns a [`Stale`], and the caller shoots it
//! down.
//!
//! | file | contents |
//! | --- | --- |
//! | `os.rs` | state; creation of spaces, their layout |
//! | `mmap.rs` | mmap(2), munmap(2), mprotect(2), mlock(2), madvise(2) |
//! | `fault.rs`, `populate.rs` | allocation of pages at faults, or all at once |
//! | `huge_pages.rs`, `migrate.rs` | splits and collapses; moves between tiers |
//! | `swap.rs` | reclaim |
//! | `page_walk.rs`, `residence.rs` | walks by software; resident memory |
//! | `space.rs`, `pages.rs` | mappings; page numbers |
//! | `cpu_set.rs` | cores that may cache translations |
//! | `tables.rs` → `leaves.rs` | page tables; level-1 tables |
//! | `row.rs`, `line.rs` | level-1 tables packed into cache lines of the host |
//! | `uncached.rs`, `table_events.rs` | tables that a bus monitor sees; kernel events for it |
//! | `frames.rs`, `slots.rs` | free frames; free numbers |
//! | `promotion_reuse.rs` | promoted pages, and whether they were accessed afterwards |

mod cpu_set;
mod fault;
mod frames;
mod huge_pages;
mod leaves;
mod line;
mod migrate;
mod mmap;
mod os;
mod page_walk;
mod pages;
mod populate;
mod promotion_reuse;
mod residence;
mod row;
mod slots;
mod space;
mod stale;
mod swap;
mod table_events;
mod tables;
mod uncached;

pub use fault::Denied;
pub(super) use fault::Resolved;
pub(super) use os::Os;
pub(super) use promotion_reuse::PromotionReuse;
pub use space::Map;
pub(super) use stale::Stale;
pub(super) use table_events::Note;
pub(super) use tables::{Located, Tables};
