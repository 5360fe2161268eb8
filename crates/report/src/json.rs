//! Reports as JSON, for scripts.

use std::io::{self, Write};

use serde::Serialize;

use crate::text::unless_closed;

/// Writes a report as one JSON document and a newline. A closed pipe is no error.
///
/// # Errors
/// If writing fails.
pub fn write_json(report: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(report)?;
    text.push(b'\n');
    unless_closed(out.write_all(&text).and_then(|()| out.flush()))
}
