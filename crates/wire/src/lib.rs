//! Memory layouts that the instrumented virtual machine shares with other programs: fixed-size
//! records and the ring that carries them, the registers of its telemetry device, the table of
//! touched pages, per-vCPU counters, the layout of guest RAM, files mapped as shared memory. Also
//! the page-table events that a kernel reports to a monitor on the memory bus (PTAT).
//!
//! Invariant: each layout is defined once, next to the code that reads and writes it, and checked
//! by tests. No record is ever lost silently.

pub mod device;
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
