//! What the instrumented virtual machine shares with others: fixed-size records and the ring that carries them, the
//! registers of its telemetry device, the table of touched pages, counts, where its RAM lies, files as shared memory;
//! what a kernel tells of page tables that a monitor on the memory bus watches; and where functions lie in files that both sides of a
//! recording read.
//!
//! Invariant: a layout is written down here once, beside the code that reads and writes it, and
//! held by tests. No record is ever lost silently.

pub mod device;
pub mod elf;
pub mod guest_ram;
pub mod ptat;
pub mod records;
pub mod ring;
pub mod shared;
pub mod stats;
pub mod touched;

pub use records::{Note, RawAccess, Record, TlbMiss};
pub use ring::{Consumer, Drained, Producer, Reader};
pub use shared::Shared;
