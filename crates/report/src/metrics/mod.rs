//! The current state of a recording as OpenMetrics text, for Prometheus and compatible systems.
//!
//! A [`Collector`] follows a recording that is being written, maintains the cumulative counters,
//! and renders the last window. Rendering is a pass over the regions of one window and over its
//! mappings: it is done in advance, not while a scrape is waiting.
//!
//! Names and meaning of all exported metrics are in `families.rs`, one function per family.

mod collector;
mod families;
mod figures;
mod text;

pub use collector::Collector;

/// Content type of this text in HTTP (OpenMetrics 1.0, "Protocol").
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
