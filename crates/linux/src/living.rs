//! Files of the kernel's that are read again and again: kept open, and read by one call.
//!
//! Such a text is made anew by each read from its start (fs/seq_file.c: `seq_read_iter`), so that to open, size and
//! close the file for every look is five calls for nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::str::from_utf8;

/// What a text is given at first; a longer one gets more.
const ROOM: usize = 4096;

/// A file of /proc or /sys, by its path, whose text is one record: of more, a read gives a page of memory at most.
#[derive(Debug)]
pub(crate) struct Living {
    path: PathBuf,
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Living {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None, bytes: Vec::new() }
    }

    /// What the file says now, if that is text.
    pub(crate) fn text(&mut self) -> Option<&str> {
        from_utf8(self.read()?).ok()
    }

    /// What the file says now; `None` if it is not there or cannot be read.
    pub(crate) fn read(&mut self) -> Option<&[u8]> {
        let length = match self.read_from_start() {
            Ok(length) => length,
            // What the file told of went offline; it may be back under the same name.
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
            // A text that fills all there is may be longer.
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
    fn it_says_what_the_file_says_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meminfo");
        let mut living = Living::new(&path);
        assert_eq!(living.text(), None);
        fs::write(&path, "1 kB").unwrap();
        assert_eq!(living.text(), Some("1 kB"));
        fs::write(&path, "2").unwrap();
        assert_eq!(living.text(), Some("2"));
        let long = "x".repeat(3 * ROOM);
        fs::write(&path, &long).unwrap();
        assert_eq!(living.text(), Some(long.as_str()));
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(living.text(), None);
        assert_eq!(living.read(), Some(&[0xff][..]));
    }

    // The file of a process that has ended can be read no more; another may be there by now.
    #[test]
    fn a_file_that_died_is_looked_up_anew() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut living = Living::new(format!("/proc/{}/stat", child.id()));
        assert!(living.text().is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(living.text(), None);
    }
}
