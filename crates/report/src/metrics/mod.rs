//! What a recording says now, as OpenMetrics text for Prometheus and its kin.
//!
//! A [`Collector`] follows a recording that is being written, counts what only grows, and renders
//! the last window. Rendering is a pass over the regions of one window and over its mappings: it
//! is done beforehand, not while somebody waits for an answer.
//!
//! Names and meaning of everything exported are in `families.rs`, one function a family.

mod collector;
mod families;
mod figures;
mod text;

pub use collector::Collector;

/// What an HTTP answer with this text is called (OpenMetrics 1.0, "Protocol").
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
