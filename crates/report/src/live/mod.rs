//! A terminal screen that shows a recording window by window, while it is written or later: heat by
//! address and time, mappings and their heat, and the cost of profiling.
//!
//! [`Live`] holds the state of the screen. [`Live::update`] processes a key and reads nothing;
//! [`Live::refresh`] and [`Live::prepare`] read the recording; [`Live::draw`] draws the prepared
//! data. Time advances through [`Live::advance`] only.
//! prepared. Time passes by [`Live::advance`] only.

mod addresses;
mod columns;
mod draw;
mod focus;
mod help;
mod key;
mod screen;
mod table;
mod timeline;
mod totals;

pub use draw::LEAST_SIZE;
pub use key::Key;
pub use screen::{Live, Start};
pub use timeline::SPEEDS;
