//! procfs and sysfs files that are polled: kept open, and re-read with one pread().
//!
//! The kernel regenerates such a text on each read from offset 0 (fs/seq_file.c: `seq_read_iter`);
//! to open, size and close the file for every read would cost five system calls more.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::str::from_utf8;

/// Initial buffer size; it grows for longer texts.
const ROOM: usize = 4096;

/// A file of procfs or sysfs whose text is one record: of several records, one read returns at most
/// a page.
#[derive(Debug)]
pub(crate) struct RereadFile {
    path: PathBuf,
    file: Option<File>,
    bytes: Vec<u8>,
}

impl RereadFile {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None, bytes: Vec::new() }
    }

    /// The current text; `None` if the file cannot be read or is not UTF-8.
    pub(crate) fn text(&mut self) -> Option<&str> {
        from_utf8(self.read()?).ok()
    }

    /// The current contents; `None` if the file is missing or cannot be read.
    pub(crate) fn read(&mut self) -> Option<&[u8]> {
        let length = match self.read_from_start() {
            Ok(length) => length,
            // The node or process of the file is gone; a new one may exist under the same name.
            Err(_) => {
                self.file = None;
                self.read_from_start().ok()?
            }
        };
        Some(&self.bytes[..length])
    }

    fn read_from_start(&mut self) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::open(&self.path)?),
        };
        loop {
            // A read that fills the buffer may have been truncated.
            match file.read_at(&mut self.bytes, 0)? {
                length if length < self.bytes.len() => return Ok(length),
                length => self.bytes.resize(ROOM.max(2 * length), 0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_current_text_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meminfo");
        let mut file = RereadFile::new(&path);
        assert_eq!(file.text(), None);
        fs::write(&path, "1 kB").unwrap();
        assert_eq!(file.text(), Some("1 kB"));
        fs::write(&path, "2").unwrap();
        assert_eq!(file.text(), Some("2"));
        let long = "x".repeat(3 * ROOM);
        fs::write(&path, &long).unwrap();
        assert_eq!(file.text(), Some(long.as_str()));
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(file.text(), None);
        assert_eq!(file.read(), Some(&[0xff][..]));
    }

    // The open file of a process that has ended cannot be read any more; the path is opened again.
    #[test]
    fn a_dead_file_is_opened_again() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut file = RereadFile::new(format!("/proc/{}/stat", child.id()));
        assert!(file.text().is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(file.text(), None);
    }
}
