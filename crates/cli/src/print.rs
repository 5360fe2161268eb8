//! Printing on stdout.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use tierscope_core::{Error, ErrorKind, Result};

/// Prints text on stdout.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints a report on stdout: as JSON, or as a table.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn print_report<T: Serialize + ?Sized>(
    report: &T,
    json: bool,
    table: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    written(match json {
        true => tierscope_report::write_json(&report, &mut out),
        false => table(report, &mut out).and_then(|()| out.flush()),
    })
}

/// A reader that closes the pipe early (`| head`) is not an error.
pub(crate) fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::new(ErrorKind::Io, "cannot write to stdout")
                .cause(error)
                .remedy("check the file or pipe behind stdout"))
        }
        _ => Ok(()),
    }
}
