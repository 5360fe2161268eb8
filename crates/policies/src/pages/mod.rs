//! Bookkeeping that page-granular policies share.
//!
//! [`Lists`] keeps pages on lists, [`Atlas`] says which page lies where, [`Census`] hears of pages that
//! come and go, [`Moves`] knows what is on its way and how much room is left. All of it works on dense
//! numbers of pages in flat arrays; nothing is ever listed as a whole for a call.
//!
//! Memory: 16 bytes a page at most ([`Lists`]) and a few runs of addresses, up to [`MOST_PAGES`].

mod atlas;
mod census;
mod lists;
mod moves;
mod ordered;
mod trail;

pub(crate) use atlas::Atlas;
pub(crate) use census::{Census, Change, Keeper};
pub(crate) use lists::{ListId, Lists};
pub(crate) use moves::{Ended, Moves};

/// Pages of 4 KiB that a policy keeps track of: 2 TiB. What has a greater number stays where it is.
pub const MOST_PAGES: u32 = 1 << 29;
