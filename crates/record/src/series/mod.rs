//! A series: consecutive recordings in one directory, the oldest of which are removed.
//!
//! ```text
//! DIR/lock                       locked by the process that records into DIR
//! DIR/20261120T191500.000Z/      an ordinary recording, named by its start
//! DIR/20261120T201500.000Z/      the one being written
//! DIR/.removing-2026…/           one being removed; an interrupted removal is completed later
//! ```
//!
//! Each recording is self-contained: it begins with the mappings in force, and damage to its
//! neighbours does not affect it. Killing the recorder loses the open window at most; the next
//! start begins a new recording alongside the old ones, which still count for [`Retention`].
//!
//! Invariant: only recordings, recognised by their names, are removed, and never the newest one
//! with a window. Clocks that jump: `ages.rs`.

mod ages;
mod directory;
mod janitor;
mod name;
mod recorder;
mod retention;
#[cfg(test)]
mod tests;

pub use directory::{Member, is_series, members, newest};
pub use name::civil;
pub use recorder::SeriesRecorder;
pub use retention::Retention;
