//! Threads that wait for the disk, so that sampling does not.

use std::thread::{self, JoinHandle};

use tierscope_core::{Error, ErrorKind, Result};

/// Starts a thread of that name.
pub(crate) fn background<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    thread::Builder::new().name(name.into()).spawn(work).map_err(|e| {
        Error::new(ErrorKind::Other, "cannot start a thread")
            .cause(e)
            .remedy("raise the limit of processes with `ulimit -u`")
    })
}
