//! Cores: the threads that they run, the accesses that they execute, and the events that take their
//! time.
//!
//! | file | contents |
//! | --- | --- |
//! | `run.rs` | the main loop: the core that is furthest behind runs next |
//! | `thread.rs`, `operations.rs` | sources of accesses; durations of operations |
//! | `process.rs`, `quota.rs` | threads of a process; CPU quotas |
//! | `translate.rs` → `in_flight.rs` | translation of accesses, and the queue of translated ones |
//! | `execute.rs` | execution of the queue |
//! | `single_access.rs` | one access outside of the main loop |
//! | `core.rs`, `private_caches.rs` | state of a core; its private caches |
//! | `cycles.rs`, `../../window.rs` | costs of its operations; what is under way at a time |
//! | `page_fault.rs`, `calls.rs` | page faults and system calls at a core's expense |
//! | `shootdown.rs` | TLB shootdowns |
//! | `pmu.rs`, `trap.rs` | samples; trapped walks |
//! | `walks.rs`, `misses.rs` | walks, and accesses that memory served, counted by page |
//! | `table_reports.rs` | events of page tables that a bus monitor sees |

mod calls;
mod core;
mod cycles;
mod execute;
mod in_flight;
mod misses;
mod operations;
mod page_fault;
mod pmu;
mod private_caches;
mod process;
mod quota;
mod run;
mod shootdown;
mod single_access;
mod table_reports;
mod thread;
mod translate;
mod trap;
mod walks;

pub(super) use self::core::Cpu;
pub(super) use cycles::Cycles;
pub(crate) use private_caches::WAYS as PRIVATE_WAYS;
pub(super) use process::Running;
pub(super) use quota::Quota;
pub(super) use thread::Thread;
