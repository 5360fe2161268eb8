//! Reads lines of text through a buffer.

use std::io::Read;
use std::ops::Range;

use tierscope_core::{Error, Result};

use crate::place::{Place, malformed, unreadable};

/// Bytes per read.
const BUFFER: usize = 1 << 18;
/// Limit on the length of a line.
const LONGEST: usize = 1 << 16;

/// Iterator over lines.
pub(crate) struct Lines<R> {
    input: R,
    name: String,
    buffer: Vec<u8>,
    /// The part of the buffer that was not returned yet.
    rest: Range<usize>,
    /// Offset in the text of the buffer's first byte.
    offset: u64,
    /// Number of the line that was returned last, from 1.
    number: u64,
    /// Offset in the text of that line.
    start: u64,
    ended: bool,
    /// The last line was longer than any should be; what is left of it is passed over.
    too_long: bool,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(name: &str, input: R) -> Self {
        Self {
            input,
            name: name.to_owned(),
            buffer: vec![0; BUFFER],
            rest: 0..0,
            offset: 0,
            number: 0,
            start: 0,
            ended: false,
            too_long: false,
        }
    }

    /// Position in the text of a byte of the last line returned.
    pub(crate) fn place(&self, column: usize) -> Place {
        let column = column as u64;
        Place::Text { line: self.number, column: column + 1, byte: self.start + column }
    }

    /// A format error in the last line returned, at `column`, counted from 0.
    pub(crate) fn wrong(&self, column: usize, cause: &str, remedy: &str) -> Error {
        malformed(&self.name, self.place(column), cause, remedy)
    }

    /// Whether the last error was a line that is too long, and others may follow.
    pub(crate) fn is_too_long(&self) -> bool {
        self.too_long
    }

    /// Passes over what is left of a line that is too long.
    fn pass_over(&mut self) -> Result<()> {
        while self.too_long {
            match memchr::memchr(b'\n', &self.buffer[self.rest.clone()]) {
                Some(at) => (self.rest.start, self.too_long) = (self.rest.start + at + 1, false),
                None => {
                    self.rest.start = self.rest.end;
                    self.too_long = !self.ended;
                    self.more()?;
                }
            }
        }
        Ok(())
    }

    /// The next line: its range in [`Lines::bytes`] without its end, and whether it has a line end.
    pub(crate) fn advance(&mut self) -> Result<Option<(Range<usize>, bool)>> {
        self.pass_over()?;
        loop {
            let rest = &self.buffer[self.rest.clone()];
            if let Some(length) = memchr::memchr(b'\n', rest) {
                return Ok(Some((self.take(length, 1), true)));
            }
            if rest.len() >= LONGEST {
                self.take(0, 0);
                self.too_long = true;
                let cause = format!("a line is longer than {LONGEST} bytes");
                return Err(self.wrong(0, &cause, "check that this is a text of that format"));
            }
            if self.ended {
                let length = rest.len();
                return Ok((length > 0).then(|| (self.take(length, 0), false)));
            }
            self.more()?;
        }
    }

    pub(crate) fn bytes(&self, line: Range<usize>) -> &[u8] {
        &self.buffer[line]
    }

    fn take(&mut self, length: usize, ends: usize) -> Range<usize> {
        let line = self.rest.start..self.rest.start + length;
        self.number += 1;
        self.start = self.offset + line.start as u64;
        self.rest.start = line.end + ends;
        line
    }

    /// Moves unread bytes to the front of the buffer, and reads more.
    fn more(&mut self) -> Result<()> {
        self.buffer.copy_within(self.rest.clone(), 0);
        self.offset += self.rest.start as u64;
        self.rest = 0..self.rest.len();
        let room = &mut self.buffer[self.rest.end..];
        let read =
            crate::input::read(&mut self.input, room).map_err(|e| unreadable(&self.name, &e));
        match read {
            Ok(count) => {
                self.ended = count == 0;
                self.rest.end += count;
                Ok(())
            }
            Err(error) => {
                self.ended = true;
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reader that returns a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(out.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn a_line_has_a_position() {
        let mut lines = Lines::new("t", &b"ab\n\ncd"[..]);
        assert_eq!(lines.advance().unwrap().map(|(_, ends)| ends), Some(true));
        assert_eq!(lines.advance().unwrap().map(|(line, _)| line.len()), Some(0));
        let (line, ends) = lines.advance().unwrap().unwrap();
        assert_eq!((lines.bytes(line), ends), (&b"cd"[..], false));
        assert_eq!(lines.place(1), Place::Text { line: 3, column: 2, byte: 5 });
        assert_eq!(lines.advance().unwrap(), None);
    }

    #[test]
    fn a_text_without_line_ends_is_refused() {
        let text = vec![b'x'; 3 * LONGEST];
        let mut lines = Lines::new("t", &text[..]);
        let error = lines.advance().unwrap_err().to_string();
        assert!(error.contains("line 1, column 1 (byte 0): a line is longer"), "{error}");
        assert_eq!(lines.advance().unwrap(), None);
    }

    // Lines of six times the buffer, and of two bytes.
    #[test]
    fn lines_after_one_that_is_too_long_are_read() {
        let text = [&vec![0; 6 * BUFFER][..], b"\nab\n"].concat();
        let mut lines = Lines::new("t", &text[..]);
        assert!(lines.advance().is_err() && lines.is_too_long());
        let (line, ends) = lines.advance().unwrap().unwrap();
        assert_eq!((lines.bytes(line), ends), (&b"ab"[..], true));
        let byte = text.len() as u64 - 3;
        assert_eq!(lines.place(0), Place::Text { line: 2, column: 1, byte });
        assert!(!lines.is_too_long() && lines.advance().unwrap().is_none());
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text(text in "[ab\n]{0,200}", step in 1usize..20) {
            let mut lines = Lines::new("t", Slow(text.as_bytes(), step));
            let mut seen = Vec::new();
            while let Some((line, ends)) = lines.advance().unwrap() {
                seen.extend_from_slice(lines.bytes(line));
                seen.extend(ends.then_some(b'\n'));
            }
            prop_assert_eq!(seen, text.as_bytes());
        }
    }
}
