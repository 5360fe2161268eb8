//! JSON with texts of bounded length: a parser of streams keeps a text in memory as a whole.

use std::io::{Error, ErrorKind, Read, Result};

/// Longest text, in bytes: names of mappings are paths of 4 KiB at most.
const LONGEST: usize = 64 << 10;

/// Passes JSON on, up to a text that is too long.
pub(crate) struct ShortTexts<R> {
    input: R,
    /// Bytes of the text so far; `None` outside of texts.
    text: Option<usize>,
    escaped: bool,
}

impl<R: Read> ShortTexts<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, text: None, escaped: false }
    }

    fn follow(&mut self, byte: u8) -> Result<()> {
        let Some(length) = &mut self.text else {
            self.text = (byte == b'"').then_some(0);
            return Ok(());
        };
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => {
                self.text = None;
                return Ok(());
            }
            _ => {}
        }
        *length += 1;
        if *length > LONGEST {
            let cause = format!("a text is longer than {LONGEST} bytes");
            return Err(Error::new(ErrorKind::InvalidData, cause));
        }
        Ok(())
    }
}

impl<R: Read> Read for ShortTexts<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let count = self.input.read(out)?;
        out[..count].iter().try_for_each(|byte| self.follow(*byte))?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(json: &str) -> bool {
        ShortTexts::new(json.as_bytes()).read_to_end(&mut Vec::new()).is_ok()
    }

    #[test]
    fn texts_have_a_limit_and_the_rest_has_none() {
        let text = |length: usize| format!("[\"{}\"]", "x".repeat(length));
        assert!(passes(&text(LONGEST)) && !passes(&text(LONGEST + 1)));
        assert!(passes(&" ".repeat(1 << 20)));
        // Escaped quotation marks and backslashes do not end a text, and a backslash before its end
        // does not hide it.
        let escaped = |pair: &str| format!("[\"{}\"]", pair.repeat(LONGEST / 2));
        assert!(passes(&escaped("\\\"")) && passes(&escaped("\\\\")));
        assert!(!passes(&format!("[\"{}x\"]", "\\\"".repeat(LONGEST / 2))));
        let many = "[\"a\\\\\",".repeat(LONGEST);
        assert!(passes(&many));
    }
}
