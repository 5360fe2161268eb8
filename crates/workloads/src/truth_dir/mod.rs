//! A truth directory: the ground truth that a program records about its own accesses.
//!
//! It holds one file, `truth.jsonl`: JSON lines, written as the program runs, each an object with
//! one key that names its kind. Times are nanoseconds of CLOCK_MONOTONIC, as in recordings;
//! addresses are the program's own.
//!
//! | line | when | content |
//! |---|---|---|
//! | `begin` | first, after population | pid, boot, areas, workload, seed, threads ([`Begin`]) |
//! | `segment` | when the hot ranges change | begin, hot ranges ([`SegmentLine`]) |
//! | `piece` | every grain of time (50 ms) | each thread's accesses, checksums ([`Piece`]) |
//! | `end` | last | time and cause ([`End`]); missing if the program was killed |
//!
//! **Region truth** is in the `segment` lines. **Page truth** needs no lines of its own: workload,
//! seed and thread determine the accesses, so a [`Replay`] draws as many again as each piece
//! counts, compares the checksum, and obtains every page that was touched. Recording it costs the
//! program nothing, at any size.

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

/// Version of the file format.
pub const FORMAT: u32 = 1;
/// Name of the one file of a truth directory.
pub const FILE: &str = "truth.jsonl";
/// Name of the clock of all times.
pub const CLOCK: &str = "CLOCK_MONOTONIC";

/// A line of `truth.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line: the run.
    Begin(Begin),
    /// A change of the hot ranges.
    Segment(SegmentLine),
    /// The accesses of a grain of time.
    Piece(Piece),
    /// The last line: the end of the run.
    End(End),
}

/// The first line: the program and its workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// Version of the format, [`FORMAT`].
    pub format: u32,
    /// Version of the program that wrote the file.
    pub version: String,
    /// Pid of the program.
    pub pid: u32,
    /// `/proc/sys/kernel/random/boot_id`: times of different boots are not comparable.
    pub boot: String,
    /// Name of the clock, [`CLOCK`].
    pub clock: String,
    /// Time at which this line was written.
    pub at_ns: u64,
    /// Command line of the program.
    pub command: String,
    /// The workload's description, as TOML.
    pub workload: String,
    /// Seed of the access streams.
    pub seed: u64,
    /// Number of threads, each with a stream of its own.
    pub threads: u32,
    /// Usual length of a piece.
    pub grain_ns: u64,
    /// Backing of the memory: anonymous, memory file or filler module.
    pub backing: String,
    /// Addresses of the description's areas, in its order.
    pub areas: Vec<AreaLine>,
}

/// Addresses of an area.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaLine {
    /// Name of the area.
    pub name: String,
    /// First address of the area.
    pub start: u64,
    /// One past the last address of the area.
    pub end: u64,
}

/// A change of the hot ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentLine {
    /// Start of the segment; it ends where the next one starts.
    pub begin_ns: u64,
    /// Number of complete passes through all phases before the segment.
    pub pass: u64,
    /// Index of the phase.
    pub phase: usize,
    /// Name of the phase.
    pub name: String,
    /// Nanoseconds since the phase began.
    pub into_ns: u64,
    /// Start and end of the hot ranges, ascending.
    pub hot: Vec<[u64; 2]>,
}

/// The accesses of a grain of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// Start of the piece: the end of the previous one.
    pub begin_ns: u64,
    /// End of the piece.
    pub end_ns: u64,
    /// Index of the `segment` line that the piece belongs to, from 0.
    pub segment: usize,
    /// Number of accesses of each thread.
    pub touches: Vec<u64>,
    /// Checksum of each thread's accesses ([`Tally`]).
    pub sums: Vec<u32>,
    /// Nanoseconds until the last thread noticed the end of the piece; accesses until then are
    /// counted in this piece.
    pub late_ns: u64,
}

/// The last line: the end of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Time at which the program ended.
    pub at_ns: u64,
    /// Cause of the program's end.
    pub cause: String,
}
