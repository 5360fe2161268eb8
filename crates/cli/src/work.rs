//! Workloads of an experiment's processes: a described workload, or a recorded trace.

use std::path::Path;
use std::sync::Arc;

use tierscope_core::Result;
use tierscope_sim::experiment::default_workload;
use tierscope_trace::Replay;
use tierscope_workloads::work::{TRACE, listed, names};
use tierscope_workloads::{Work, file};

use crate::reproduce::nemo;

/// Parses the workload of a process.
///
/// # Errors
/// A description of the problem in the line or the file; for a trace, with its position.
pub(crate) fn read_workload(text: &str) -> Result<Work> {
    if let Some(toml) = nemo::workload_text(text) {
        return file::parse(text, toml).map(Work::Described);
    }
    match text.strip_prefix(TRACE) {
        Some(path) => Ok(Work::Computed(Arc::new(Replay::open(Path::new(path))?))),
        None => default_workload(text),
    }
}

/// Long help of a command that takes experiments: `first`, then the list of workloads.
pub(crate) fn about(first: &str) -> String {
    format!(
        "{first}\n\nA process's workload is a TOML file, a masim configuration, {TRACE}FILE with what \
         `tierscope trace convert` wrote, or NAME:key=value,… with one of {}",
        listed(names())
    )
}
