//! Printing on stdout and stderr. A reader that closes the pipe early (`| head`) is not an error:
//! what it does not read is dropped, and the exit code is the command's.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use tierscope_core::names::plain;
use tierscope_core::{Error, ErrorKind, Result};

/// Prints a formatted message on stderr, as [`print_note`] does.
macro_rules! note {
    ($($text:tt)*) => { $crate::print::print_note(&format!($($text)*)) };
}
pub(crate) use note;

/// Prints a message on stderr: a line of [plain] text.
pub fn print_note(text: &str) {
    print_below(&format!("tierscope: {}\n", plain(text)));
}

/// Prints lines that belong to a message on stderr. If that is closed, there is no other place to
/// report it.
pub(crate) fn print_below(lines: &str) {
    let _ = io::stderr().write_all(lines.as_bytes());
}

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

/// The error of a failed write to stdout, unless its reader has closed the pipe.
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
