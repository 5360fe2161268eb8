//! TLB misses from a monitor on the memory bus (PTAT): the page tables of selected processes lie in
//! an uncached region, so that each walk reads memory, and monitor boards at the DIMMs record the
//! reads; the kernel dumps its mapping changes, and reads addresses of a *tag window* to mark their
//! times in the boards' streams.
//!
//! ```text
//! board 0 ─▶ BoardReader ─┐ requests in
//! board 1 ─▶ BoardReader ─┴▶ Merge ──▶ Parser ──▶ Misses: by page
//! dump    ─▶ DumpReader ───────────────┘
//! ```
//!
//! `crates/tlb/PTAT.md` has the layout of the files to the bit. Memory use grows with the number
//! of mapped pages, not with the length of the streams.

mod board;
mod bus;
mod capture;
mod counts;
mod dump;
mod dump_reader;
mod merge;
mod monitor;
mod parser;
mod records;
mod saved;
mod source;
mod walk_file;
mod walks;
mod write;

pub use board::{BoardReader, Traffic};
pub use bus::{BusHeader, Entry, MOST_BOARDS};
pub use capture::{Capture, Damage, Files};
pub use counts::{Accesses, Misses, Page, PageMisses, SHARE};
pub use dump::{DumpHeader, DumpRecord};
pub use dump_reader::{DumpReader, Group};
pub use merge::Merge;
pub use monitor::{Boards, Monitor};
pub use parser::{Block, Parser, Sink};
pub use source::open;
pub use tierscope_wire::ptat::{Change, KernelEvent, Stage, What, Window};
pub use walk_file::{WalkFile, each_walk};
pub use walks::WalkWriter;
pub use write::{BoardWriter, DumpWriter};

/// A memory request recorded by a board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Time in ticks of the boards' common clock.
    pub ticks: u64,
    /// Physical address, at the monitor's resolution; bit 0 is set for a write.
    bits: u64,
}

impl Request {
    /// A request; the lowest five bits of the address are dropped.
    #[inline(always)]
    #[must_use]
    pub fn new(ticks: u64, address: u64, write: bool) -> Self {
        Self { ticks, bits: address & !31 | u64::from(write) }
    }

    /// Physical address.
    #[inline(always)]
    #[must_use]
    pub fn address(self) -> u64 {
        self.bits & !31
    }

    /// Whether it writes.
    #[inline(always)]
    #[must_use]
    pub fn is_write(self) -> bool {
        self.bits & 1 == 1
    }
}
