//! Messages of the plugin: lines in `plugin.log` in the run's directory, which the lab saves with
//! the results, and on QEMU's standard error.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

static LOG: OnceLock<Mutex<File>> = OnceLock::new();

/// Opens the log file for all further messages.
///
/// # Errors
/// The file cannot be created.
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

/// Prints a message. Errors are ignored: a lost message is no reason to stop.
pub fn say(line: impl std::fmt::Display) {
    eprintln!("tierscope plugin: {line}");
    if let Some(log) = LOG.get() {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(log, "{line}");
    }
}
