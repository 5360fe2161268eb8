//! The compact format: accesses of threads in independent blocks, each with its checksum.
//! `crates/trace/FORMAT.md` has the layout to the bit.

mod block;
mod code;
mod end;
mod events;
mod index;
mod reader;
pub mod varint;
mod writer;

use block::unpack;
pub use index::Index;
pub use reader::Reader;
pub use writer::{Writer, not_written};

/// Whether a file has the magic number of a compact trace.
#[must_use]
pub fn looks_like(start: &[u8]) -> bool {
    start.starts_with(&block::MAGIC)
}
