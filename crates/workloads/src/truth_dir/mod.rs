//! A truth directory: what a program that knows its own accesses says of them.
//!
//! It holds one file, `truth.jsonl`: JSON lines, written as the program runs, each an object with
//! one key that tells its kind. Times are nanoseconds of CLOCK_MONOTONIC, as in recordings;
//! addresses are the program's own.
//!
//! | line | when | says |
//! |---|---|---|
//! | `begin` | first, once the memory is populated | pid, boot, areas, the workload as TOML, seed, threads ([`Begin`]) |
//! | `segment` | whenever the hot ranges change | from when on, and which ranges are hot ([`SegmentLine`]) |
//! | `piece` | every grain of time (50 ms) | accesses of each thread, with a checksum ([`Piece`]) |
//! | `end` | last | when and why ([`End`]); without it the program was killed |
//!
//! **Region truth** is in the `segment` lines. **Page truth** needs no lines of its own: accesses
//! follow from workload, seed and thread, so a [`Replay`] draws again as many as each piece counts,
//! compares the checksum, and knows every page that was touched. Telling it costs the program
//! nothing, at any size.

mod pieces;
mod read;
mod replay;
mod tally;
mod write;

use serde::{Deserialize, Serialize};

pub use pieces::{Pieces, Span};
pub use read::{Hot, TruthDir};
pub use replay::Replay;
pub use tally::Tally;
pub use write::Writer;

/// The version of the format.
pub const FORMAT: u32 = 1;
/// The one file of a truth directory.
pub const FILE: &str = "truth.jsonl";
/// The only clock there is.
pub const CLOCK: &str = "CLOCK_MONOTONIC";

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first.
    Begin(Begin),
    /// From now on these ranges are hot.
    Segment(SegmentLine),
    /// What was accessed in a grain of time.
    Piece(Piece),
    /// The last.
    End(End),
}

/// Who speaks, and of what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// `/proc/sys/kernel/random/boot_id`: clocks of different boots are not compared.
    pub boot: String,
    /// [`CLOCK`].
    pub clock: String,
    /// When this line was written.
    pub at_ns: u64,
    /// Command line.
    pub command: String,
    /// The description, as TOML.
    pub workload: String,
    /// Seed of the streams.
    pub seed: u64,
    /// Threads, each with a stream of its own.
    pub threads: u32,
    /// Usual length of a piece.
    pub grain_ns: u64,
    /// What stands behind the memory.
    pub backing: String,
    /// Where the areas of the description lie, in its order.
    pub areas: Vec<AreaLine>,
}

/// Where an area lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaLine {
    /// Its name.
    pub name: String,
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

/// From when on which ranges are hot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentLine {
    /// When it begins; it ends where the next one begins.
    pub begin_ns: u64,
    /// How often all phases were gone through before.
    pub pass: u64,
    /// Index of the phase.
    pub phase: usize,
    /// Its name.
    pub name: String,
    /// Since the phase began.
    pub into_ns: u64,
    /// Start and end of the hot ranges, ascending.
    pub hot: Vec<[u64; 2]>,
}

/// What was accessed in a grain of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// When it begins: where the one before ended.
    pub begin_ns: u64,
    /// When it ends.
    pub end_ns: u64,
    /// Which `segment` line it belongs to, counted from 0.
    pub segment: usize,
    /// Accesses of each thread.
    pub touches: Vec<u64>,
    /// Checksum of each thread's accesses ([`Tally`]).
    pub sums: Vec<u32>,
    /// How long after its end the last thread noticed; its accesses until then are counted here.
    pub late_ns: u64,
}

/// When and why it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at_ns: u64,
    /// Why.
    pub cause: String,
}
