//! Reports on recordings: as text for terminals, and as JSON for scripts.
//!
//! [`summary`], [`heatmap`] and [`regions`] each read a recording and return plain data, to be
//! printed with its `write_text` or serialised with [`write_json`]. Field names are stable.
//!
//! Invariant: reports read recordings, never machines.

mod ages;
mod blocks;
mod figures;
mod footprint;
mod grain;
mod heatmap;
pub mod html;
mod json;
pub mod live;
mod mean;
pub mod metrics;
mod missing_accesses;
mod names;
mod own_rows;
mod ramp;
mod regions;
mod seen;
mod split;
mod style;
mod summary;
pub mod svg;
pub mod table;
mod text;
mod tiers;
mod view;
mod windows;
mod wss;

pub use ages::{AgeBin, Ages, ages};
pub use footprint::Point;
pub use heatmap::{Area, Cell, Grid, Heatmap, Row, heatmap};
pub use json::write_json;
pub use missing_accesses::missing_accesses;
pub use names::ranges_named;
pub use regions::{RegionRow, Regions, RegionsOptions, RowRate, Sort, SpaceHot, regions};
pub use style::{Color, Style, When};
pub use summary::{MachineFacts, SpaceSummary, Spread, Summary, TierSummary, summary};
pub use tiers::TierName;
pub use view::View;
pub use wss::{Percentile, Wss, wss};
