//! Formats of damo (github.com/damonitor/damo), read and written.

pub(crate) mod json;
mod quantity;
pub(crate) mod record_file;
pub(crate) mod trace;
mod write;

pub use write::{LeftOut, Shape, write};
