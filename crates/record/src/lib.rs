//! Recordings: directories of Arrow IPC streams, committed window by window.
//!
//! [`Recorder`] is a [`Sink`](tierscope_core::drive::Sink) that writes a recording; [`Recording`]
//! reads one, finished or not. README.md describes the files for other programs.
//!
//! Invariant: written data are never changed, and only data covered by a commit row are read. A
//! window is readable entirely or not at all.

mod access;
mod background;
mod batch;
mod columns;
mod commit;
mod decode;
mod dir;
mod encode;
mod head;
mod heat;
mod lz4;
mod message;
mod meta;
mod not_resident;
mod recorder;
mod recording;
mod residence;
pub mod series;
mod store;
mod sync;
mod table;
mod tiles;

pub use access::Access;
pub use commit::Commit;
pub use dir::DirStore;
pub use encode::{Metric, action_name, backing_name, failure_name};
pub use heat::{Heat, HeatPart};
pub use meta::{Fact, Machine, Meta};
pub use recorder::{CLEARED_BY_OTHERS, HOT_LIST_OVERFLOWS, OTHER_READER, Recorder};
pub use recording::{Frame, Recording};
pub use residence::{is_residence, residence_of};
pub use series::civil;
pub use store::{Medium, Memory, Source, Store};
pub use table::{FORMAT, Table};
pub use tiles::{BINS, Bin, FANOUT, share_of, windows_in};
