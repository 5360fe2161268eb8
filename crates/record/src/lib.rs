//! Recordings: directories of Arrow IPC streams, committed window by window.
//!
//! [`Recorder`] is a [`Sink`](tierscope_core::drive::Sink) that writes one; [`Recording`] reads
//! it, finished or not. README.md describes the files for everybody else.
//!
//! Invariant: nothing written is ever changed, and nothing is read that no commit row vouches
//! for. A window is there whole or not at all.

mod batch;
mod columns;
mod commit;
mod decode;
mod encode;
mod head;
mod heat;
mod lz4;
mod message;
mod meta;
mod recorder;
mod recording;
mod residence;
pub mod series;
mod store;
mod table;
mod tiles;

pub use commit::Commit;
pub use encode::{Metric, action_name, backing_name, failure_name};
pub use heat::{Heat, HeatPart};
pub use meta::{Machine, Meta};
pub use recorder::Recorder;
pub use recording::{Frame, Recording};
pub use residence::{is_residence, residence_of};
pub use series::civil;
pub use store::{Memory, Source, Store};
pub use table::{FORMAT, Table};
pub use tiles::{BINS, Bin, FANOUT, share_of, windows_in};
