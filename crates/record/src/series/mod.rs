//! A series: recordings that follow each other in one directory, the oldest removed in time.
//!
//! ```text
//! DIR/lock                       held by whoever records into DIR
//! DIR/20261120T191500.000Z/      a recording like any other, named by when it began
//! DIR/20261120T201500.000Z/      the one being written
//! DIR/.removing-2026…/           one being removed; its removal is finished later if need be
//! ```
//!
//! Each recording stands for itself: it begins with the mappings in force, and whatever happens to
//! its neighbours does it no harm. Killing the recorder loses the open window at most, as ever;
//! the next start begins a new recording beside the old ones, which still count for [`Retention`].
//!
//! Invariant: nothing is removed whose name is not a recording's name, and never the newest.

mod directory;
mod janitor;
mod name;
mod recorder;
mod retention;

pub use directory::{Member, is_series, members, newest};
pub use name::civil;
pub use recorder::SeriesRecorder;
pub use retention::Retention;
