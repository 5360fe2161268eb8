//! What a run has to say: lines in `plugin.log` of its directory, which the lab puts beside the results, and the
//! same on QEMU's standard error.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

static LOG: OnceLock<Mutex<File>> = OnceLock::new();

/// Where the lines go from now on.
///
/// # Errors
/// The file cannot be made.
pub fn open(run: &str) -> Result<(), String> {
    let path = format!("{run}/plugin.log");
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|e| format!("{path}: {e}"))?;
    let _ = LOG.set(Mutex::new(file));
    Ok(())
}

/// Says a line. What cannot be said is no reason to stop.
pub fn say(line: impl std::fmt::Display) {
    eprintln!("tierscope plugin: {line}");
    if let Some(log) = LOG.get() {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(log, "{line}");
    }
}
