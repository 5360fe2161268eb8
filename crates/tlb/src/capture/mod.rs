//! Captures of bus monitors that are not real: of the simulated machine, of programs in a simulated
//! guest, and of the walks that the instrumented virtual machine recorded.

pub mod guests;
mod names;
pub mod simulated;
mod walks;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};

pub use walks::Survey;

/// File of a capture that holds the names of mappings.
pub const NAMES: &str = "names.trace";

/// Creates a file of a capture; returns its name and a buffered writer.
fn create(path: &Path) -> Result<(String, BufWriter<File>)> {
    let name = path.display().to_string();
    let file = File::create(path).map_err(|e| {
        Error::new(ErrorKind::Io, format!("cannot write {name}")).cause(e).remedy("check the disk")
    })?;
    Ok((name, BufWriter::with_capacity(1 << 18, file)))
}
