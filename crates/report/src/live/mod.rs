//! One screen that shows a recording window by window, while it is written or long after:
//! heat by address and time, what is mapped and how hot it is, and what watching costs.
//!
//! [`Live`] holds what the screen is about. [`Live::update`] takes a key and reads nothing;
//! [`Live::refresh`] and [`Live::prepare`] read the recording; [`Live::draw`] draws what was
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
