//! The telemetry circuit (`rtl`) next to its models: Verilator makes a program of the circuit, and
//! both step through the same requests and programs.
//!
//! [`lane`] is a channel of a pipeline, compared cycle by cycle with
//! [`tierscope_nemo::cycle::lane::Lane`] by [`compare`]; [`controller`] is a whole controller
//! behind its control registers, an [`Engine`](tierscope_nemo::Engine) for the same driver that the
//! models have. [`library`] builds what is loaded; building this crate needs no Verilator.
//!
//! For tests and benches only: no other crate uses it. `docs/rtl.md` has the results.

pub mod compare;
pub mod controller;
pub mod coverage;
pub mod defects;
pub mod lane;
pub mod library;
pub mod stream;
