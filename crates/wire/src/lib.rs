//! Fixed-size records, and the ring in shared memory that carries them from the instrumented
//! virtual machine.
//!
//! Invariant: a layout is written down here once, beside the code that reads and writes it, and
//! held by tests. No record is ever lost silently.

pub mod records;
pub mod ring;

pub use records::{RawAccess, Record, TlbMiss};
pub use ring::{Consumer, Drained, Producer, Reader};
