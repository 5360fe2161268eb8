//! Writes a truth directory line by line, as the program runs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use super::{Begin, End, FILE, Line, Piece, SegmentLine};

/// A truth directory that is being written. Each line is passed to the kernel at once, so that at
/// most the last line is lost if the program is killed.
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Creates the directory and writes the first line.
    ///
    /// # Errors
    /// The directory holds a truth already, which is never overwritten, or it cannot be written.
    pub fn create(dir: &Path, begin: Begin) -> Result<Self> {
        let path = dir.join(FILE);
        let file = fs::create_dir_all(dir)
            .and_then(|()| OpenOptions::new().append(true).create_new(true).open(&path));
        let file = file.map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot create {}", path.display()))
                .cause(e)
                .remedy("choose a new directory that you may write to")
        })?;
        let mut writer = Self { path, file };
        writer.line(&Line::Begin(begin))?;
        Ok(writer)
    }

    /// Writes a change of the hot ranges.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn segment(&mut self, segment: SegmentLine) -> Result<()> {
        self.line(&Line::Segment(segment))
    }

    /// Writes the accesses of a grain of time.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn piece(&mut self, piece: Piece) -> Result<()> {
        self.line(&Line::Piece(piece))
    }

    /// Writes the last line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(mut self, end: End) -> Result<()> {
        self.line(&Line::End(end))
    }

    fn line(&mut self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line).map_err(io::Error::from);
        let written = text.and_then(|text| self.file.write_all(format!("{text}\n").as_bytes()));
        written.map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot write {}", self.path.display()))
                .cause(e)
                .remedy("is the disk full?")
        })
    }
}
