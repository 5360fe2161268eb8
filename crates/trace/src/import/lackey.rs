//! Reads the output of Valgrind's tool lackey with `--trace-mem=yes`.
//!
//! One line per access: `I  ADDRESS,BYTES` for a fetch, ` L `, ` S `, ` M ` for load, store and
//! modify, the address in hex without a prefix, the length in decimal (Valgrind manual, "Lackey: an
//! example tool"; `lackey/lk_main.c`). Lines that begin with `==PID==` or `--PID--` are Valgrind's
//! own messages. There are no times and no thread ids: all accesses belong to one thread.

use std::io::Read;
use std::sync::Arc;

use tierscope_core::{Result, Time};

use crate::access::{Access, BATCH, Batch, Event, Kind, Source};
use crate::place::excerpt;
use crate::text::Lines;

/// Reads a lackey trace.
pub struct Lackey<R> {
    lines: Lines<R>,
    /// Skip and count malformed lines instead of failing.
    lenient: bool,
    left_out: u64,
    announced: bool,
    /// Pid from Valgrind's own lines; 0 until one was seen.
    pid: u64,
}

impl<R: Read> Lackey<R> {
    /// Reads `input`. With `lenient`, malformed lines are skipped: a program's own output may be
    /// mixed into Valgrind's.
    pub fn new(name: &str, input: R, lenient: bool) -> Self {
        Self { lines: Lines::new(name, input), lenient, left_out: 0, announced: false, pid: 0 }
    }

    fn announce(&mut self, batch: &mut Batch) {
        self.announced = true;
        let name = Arc::from("");
        batch.event(Event::Thread { number: 0, pid: self.pid, tid: self.pid, name });
    }
}

impl<R: Read> Source for Lackey<R> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        let before = batch.accesses.len();
        while batch.accesses.len() < before + BATCH {
            let next = match self.lines.advance() {
                // Output of the program, or the hole that a child leaves in its parent's log.
                Err(_) if self.lenient && self.lines.is_too_long() => {
                    self.left_out += 1;
                    continue;
                }
                next => next?,
            };
            let Some((line, ends)) = next else { break };
            let text = self.lines.bytes(line);
            match record(text) {
                Ok(access) if ends => {
                    if !self.announced {
                        self.announce(batch);
                    }
                    batch.push(access);
                }
                _ if text.is_empty() => {}
                _ if let Some(pid) = valgrinds_own(text) => self.pid = pid,
                _ if self.lenient => self.left_out += 1,
                Ok(_) => return Err(self.lines.wrong(text.len(), CUT, GO_ON)),
                Err(wrong) => {
                    let cause = format!("{} in {}", wrong.cause, excerpt(text));
                    return Err(self.lines.wrong(wrong.column, &cause, REMEDY));
                }
            }
        }
        Ok(batch.accesses.len() > before)
    }

    fn go_on(&self) -> bool {
        false
    }

    fn notes(&self) -> Vec<String> {
        let note = format!("{} lines are no records of lackey, and are left out", self.left_out);
        (self.left_out > 0).then_some(note).into_iter().collect()
    }
}

const CUT: &str = "the last line is cut short";
const GO_ON: &str = "everything before it is intact; trace the program to its end for the rest";
const REMEDY: &str = "let Valgrind write to a file of its own (--log-file=FILE), \
                      or leave such lines out, without --strict";

/// A parse error of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LineError {
    column: usize,
    cause: &'static str,
}

/// The pid in `==PID==` or `--PID--`.
fn valgrinds_own(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"==").or_else(|| line.strip_prefix(b"--"))?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let closed = rest[digits..].starts_with(b"==") || rest[digits..].starts_with(b"--");
    if !closed {
        return None;
    }
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

/// Whether a text begins like lackey's.
pub(crate) fn looks_like(start: &[u8]) -> bool {
    let whole = memchr::memrchr(b'\n', start).map_or(&[][..], |end| &start[..end]);
    let mut lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.any(|line| record(line).is_ok())
}

/// Parses a line.
#[inline]
fn record(line: &[u8]) -> Result<Access, LineError> {
    let kind = match line.first_chunk::<3>() {
        Some(b"I  ") => Kind::Fetch,
        Some(b" L ") => Kind::Load,
        Some(b" S ") => Kind::Store,
        Some(b" M ") => Kind::Modify,
        _ => return Err(LineError { column: 0, cause: "no `I  `, ` L `, ` S ` or ` M `" }),
    };
    let (address, digits) = hex(&line[3..]);
    let comma = 3 + digits;
    if digits == 0 || digits > 16 {
        return Err(LineError { column: 3, cause: "no address" });
    }
    if line.get(comma) != Some(&b',') {
        return Err(LineError { column: comma, cause: "no comma after the address" });
    }
    let bytes = length(&line[comma + 1..]);
    let bytes = bytes.ok_or(LineError { column: comma + 1, cause: "no length from 1 to 65535" })?;
    Ok(Access { address, time: Time(0), thread: 0, bytes, kind })
}

/// A hexadecimal number, and its number of digits.
#[inline]
fn hex(text: &[u8]) -> (u64, usize) {
    let mut value = 0u64;
    for (at, byte) in text.iter().enumerate() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return (value, at),
        };
        value = value << 4 | u64::from(digit);
    }
    (value, text.len())
}

/// A length that fills the rest of the line.
#[inline]
fn length(text: &[u8]) -> Option<u16> {
    let mut value = 0u32;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 || value > u32::from(u16::MAX) {
            return None;
        }
        value = value * 10 + u32::from(digit);
    }
    u16::try_from(value).ok().filter(|value| *value > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::read_all;
    use proptest::prelude::*;

    fn read(text: &[u8], lenient: bool) -> (Batch, Result<()>) {
        let mut batch = Batch::default();
        let ended = read_all(&mut Lackey::new("t", text, lenient), &mut batch);
        (batch, ended)
    }

    fn access(kind: Kind, address: u64, bytes: u16) -> Access {
        Access { kind, address, bytes, ..Access::default() }
    }

    const TEXT: &[u8] = b"==7== Lackey, an example Valgrind tool\n\
        ==7== \n\
        I  0401ab70,3\n S 1fff000748,8\n L 04222c4c,4\n M 0421c7cc,4\n==7== Exit code:       0\n";

    // A child truncates the log, and the parent goes on behind a hole (`--trace-children=yes` with
    // one `--log-file`): what is before and after it is kept.
    #[test]
    fn a_hole_loses_one_line() {
        let text = [TEXT, &vec![0; 1 << 20], b" S 1fff000748,8\n L 04222c4c,4\n"].concat();
        let mut source = Lackey::new("t", &text[..], true);
        let mut batch = Batch::default();
        assert_eq!(read_all(&mut source, &mut batch), Ok(()));
        assert_eq!((batch.accesses.len(), source.left_out), (5, 1));
        assert!(read(&text, false).1.unwrap_err().to_string().contains("a line is longer"));
    }

    #[test]
    fn kinds_addresses_and_lengths() {
        let (batch, ended) = read(TEXT, false);
        assert_eq!(ended, Ok(()));
        let expected = [
            access(Kind::Fetch, 0x0401_ab70, 3),
            access(Kind::Store, 0x1f_ff00_0748, 8),
            access(Kind::Load, 0x0422_2c4c, 4),
            access(Kind::Modify, 0x0421_c7cc, 4),
        ];
        assert_eq!(batch.accesses, expected);
        let thread = Event::Thread { number: 0, pid: 7, tid: 7, name: "".into() };
        assert_eq!(batch.events, [(0, thread)]);
    }

    #[test]
    fn errors_have_a_position() {
        let cases: [(&[u8], &str); 7] = [
            (b" L 0422g,4\n", "line 1, column 8 (byte 7): no comma"),
            (b"I  04,3\n L ,4\n", "line 2, column 4 (byte 11): no address"),
            (b"I  04,3\n L 12345678123456789,4\n", "line 2, column 4 (byte 11): no address"),
            (b"I  04,3\n L 04,0\n", "line 2, column 7 (byte 14): no length"),
            (b"I  04,3\n L 04,65536\n", "line 2, column 7 (byte 14): no length"),
            (b"I  04,3\nhello\n", "line 2, column 1 (byte 8): no `I  `"),
            (b"I  04,3\n L 04,4", "line 2, column 8 (byte 15): the last line is cut short"),
        ];
        for (text, part) in cases {
            let error = read(text, false).1.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn accesses_before_an_error_are_kept() {
        let (batch, ended) = read(b"I  04,3\n L 04,4\n L 0", false);
        assert!(ended.is_err());
        assert_eq!(batch.accesses.len(), 2);
    }

    #[test]
    fn output_of_the_program_is_skipped_if_lenient() {
        let text = b"I  04,3\nhello\n L 04,4\n";
        let (batch, ended) = read(text, true);
        assert_eq!((batch.accesses.len(), ended), (2, Ok(())));
        let mut source = Lackey::new("t", &text[..], true);
        read_all(&mut source, &mut Batch::default()).unwrap();
        assert_eq!(source.notes().len(), 1);
    }

    #[test]
    fn lackey_text_is_recognised() {
        assert!(looks_like(TEXT));
        assert!(!looks_like(b"time,address\n1,2\n"));
        assert!(!looks_like(b"I  04,3"), "not a line yet");
    }

    proptest! {
        #[test]
        fn printed_accesses_are_read_back(
            accesses in prop::collection::vec((any::<u64>(), 1u16.., 0usize..4), 0..50),
        ) {
            let mut text = String::new();
            let mut expected = Vec::new();
            for (address, bytes, kind) in accesses {
                let mark = [" L ", " S ", " M ", "I  "][kind];
                text += &format!("{mark}{address:08x},{bytes}\n");
                expected.push(access(Kind::ALL[kind], address, bytes));
            }
            let (batch, ended) = read(text.as_bytes(), false);
            prop_assert_eq!(ended, Ok(()));
            prop_assert_eq!(batch.accesses, expected);
        }
    }
}
