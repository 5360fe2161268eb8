//! Records an unmodified program under QEMU's user emulation: every access goes through a model of
//! a machine's TLBs while the program runs, and into a compact trace.

mod emulator;
mod mappings;
mod places;
mod tape;

pub use emulator::{Counted, Emulated, Emulation, MOST_THREADS, in_path, plugin};
pub use mappings::{MappingLog, Resolve};
pub use tape::{MappedAt, Recorded, Tape, follow};
