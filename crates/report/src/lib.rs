//! Reports: what a recording says, for people in a terminal and for scripts as JSON.
//!
//! [`summary`], [`heatmap`] and [`regions`] each read a recording and return plain data: print it
//! with its `write_text`, or serialise it with [`write_json`]. Field names are stable.
//!
//! Invariant: reports read recordings, never machines.

mod areas;
mod heatmap;
mod human;
mod json;
mod mean;
mod regions;
mod style;
mod summary;
mod view;

pub use heatmap::{Area, Grid, Heatmap, Row, heatmap};
pub use json::write_json;
pub use regions::{RegionRow, Regions, RegionsOptions, Sort, SpaceHot, regions};
pub use style::{Color, Style, When};
pub use summary::{MachineFacts, SpaceSummary, Spread, Summary, summary};
pub use view::View;
