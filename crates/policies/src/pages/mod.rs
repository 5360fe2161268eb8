//! Page bookkeeping shared by page-granular policies.
//!
//! [`Lists`] keeps pages on lists, [`PageNumbers`] maps page numbers to addresses, [`Census`] finds
//! pages that are allocated and freed, [`Moves`] tracks pending actions and free memory. All of it
//! uses dense page numbers in flat arrays; no call materialises a list of all pages.
//!
//! Memory: at most 16 bytes per page ([`Lists`]) and a few runs of addresses, up to [`MOST_PAGES`].

mod census;
mod hint_ring;
mod lists;
mod moves;
mod ordered;
mod page_numbers;

pub(crate) use census::{Census, Change, PageStates};
pub(crate) use lists::{ListId, Lists};
pub(crate) use moves::{FinishedMove, Moves};
pub(crate) use page_numbers::PageNumbers;

/// Maximum number of 4 KiB pages that a policy tracks: 2 TiB. Pages with greater numbers are never
/// moved.
pub const MOST_PAGES: u32 = 1 << 29;
