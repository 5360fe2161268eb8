//! Workloads of an experiment's processes: a described workload, or a recorded trace.

use std::path::Path;
use std::sync::Arc;

use tierscope_core::Result;
use tierscope_sim::experiment::default_workload;
use tierscope_trace::Replay;
use tierscope_workloads::work::TRACE;
use tierscope_workloads::{Work, file};

use crate::catalogue::{self, Kind};

/// Parses the workload of a process: a built-in file, a recorded trace, or what
/// [`default_workload`] reads.
///
/// # Errors
/// A description of the problem in the line or the file; for a trace, with its position.
pub fn read_workload(text: &str) -> Result<Work> {
    if let Some(entry) = catalogue::find(Kind::Workload, text) {
        return file::parse(text, entry.text).map(Work::Described);
    }
    match text.strip_prefix(TRACE) {
        Some(path) => Ok(Work::Computed(Arc::new(Replay::open(Path::new(path))?))),
        None => default_workload(text),
    }
}
