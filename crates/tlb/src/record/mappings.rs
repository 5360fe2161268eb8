//! Translates the mapping log that the QEMU plugin writes for a program in user-mode emulation into
//! trace events:
//!
//! ```text
//! map START-END PERMISSIONS OFFSET PATH            a mapping that exists when the program begins
//! call NANOSECONDS THREAD NUMBER RESULT ARGUMENT…  mmap, munmap, mprotect, mremap, brk: in hex
//! ```

use std::sync::Arc;

use tierscope_core::{Backing, Time};

use tierscope_trace::Event;

/// System call numbers: arch/x86/entry/syscalls/syscall_64.tbl.
const MMAP: u64 = 9;
const MUNMAP: u64 = 11;
const BRK: u64 = 12;
const MREMAP: u64 = 25;
/// Results from here on are error codes.
const ERRORS: u64 = 0u64.wrapping_sub(4095);

/// Parses the log line by line.
#[derive(Clone, Debug, Default)]
pub struct MappingLog {
    pid: u64,
    /// Start and current end of the heap.
    heap: Option<(u64, u64)>,
}

/// Returns the path of the file that is mapped at an address, if known.
pub type Resolve<'a> = dyn FnMut(u64) -> Option<String> + 'a;

impl MappingLog {
    /// A parser for the log of one process.
    #[must_use]
    pub fn new(pid: u64) -> Self {
        Self { pid, heap: None }
    }

    /// Translates a line; `resolve` returns the path of the file that is mapped at an address.
    /// Irrelevant lines yield no events. The offset in the file accompanies an event that maps one.
    pub fn line(&mut self, line: &str, resolve: &mut Resolve<'_>) -> Vec<(Event, Option<u64>)> {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("map") => self.mapped(line).into_iter().collect(),
            Some("call") => self.called(words, resolve).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn mapped(&self, line: &str) -> Option<(Event, Option<u64>)> {
        let mut words = line.splitn(5, ' ').skip(1);
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (hex(start)?, hex(end)?);
        let (permissions, offset) = (words.next()?, hex(words.next()?)?);
        let path = words.next().unwrap_or_default();
        let bytes = end.checked_sub(start)?;
        let writable = permissions.as_bytes().get(1) == Some(&b'w');
        Some(self.map(Time(0), start, bytes, writable, path, offset))
    }

    fn map(
        &self,
        time: Time,
        start: u64,
        bytes: u64,
        writable: bool,
        path: &str,
        offset: u64,
    ) -> (Event, Option<u64>) {
        let is_file = path.starts_with('/');
        let backing = match path {
            "[heap]" => Backing::Heap,
            "[stack]" => Backing::Stack,
            _ if is_file => Backing::File,
            _ => Backing::Anonymous,
        };
        let (pid, name) = (self.pid, Arc::from(path));
        let event = Event::Map { time, pid, start, bytes, backing, writable, name };
        (event, is_file.then_some(offset))
    }

    fn called<'a>(
        &mut self,
        mut words: impl Iterator<Item = &'a str>,
        resolve: &mut Resolve<'_>,
    ) -> Option<Vec<(Event, Option<u64>)>> {
        let time = Time(words.next()?.parse().ok()?);
        let _thread = words.next()?;
        let number: u64 = words.next()?.parse().ok()?;
        let result = hex(words.next()?)?;
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = hex(words.next()?)?;
        }
        if result >= ERRORS {
            return None;
        }
        let [first, second, third, .., offset] = arguments;
        let unmap = |start, bytes: u64| {
            let bytes = bytes.checked_next_multiple_of(4096)?;
            Some((Event::Unmap { time, pid: self.pid, start, bytes }, None))
        };
        Some(match number {
            MMAP => {
                // Anonymous memory has no file descriptor.
                let path = if arguments[4] as i32 >= 0 { resolve(result) } else { None };
                let bytes = second.checked_next_multiple_of(4096)?;
                let path = path.unwrap_or_default();
                vec![self.map(time, result, bytes, third & 2 != 0, &path, offset)]
            }
            MUNMAP => vec![unmap(first, second)?],
            MREMAP => {
                let bytes = third.checked_next_multiple_of(4096)?;
                vec![unmap(first, second)?, self.map(time, result, bytes, true, "", 0)]
            }
            BRK => self.brk(time, result).into_iter().collect(),
            _ => return None,
        })
    }

    /// brk(): the heap now ends at `end`.
    fn brk(&mut self, time: Time, end: u64) -> Option<(Event, Option<u64>)> {
        let (start, old) = *self.heap.get_or_insert((end, end));
        self.heap = Some((start, end));
        if end > old {
            return Some(self.map(time, old, end - old, true, "[heap]", 0));
        }
        let (pid, bytes) = (self.pid, old - end);
        (bytes > 0).then_some((Event::Unmap { time, pid, start: end, bytes }, None))
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(text: &str) -> Vec<String> {
        let mut log = MappingLog::new(7);
        let mut resolve = |at: u64| (at == 0x7000_0000).then(|| "/lib/x.so".to_owned());
        let mut out = Vec::new();
        for line in text.lines() {
            for (event, offset) in log.line(line, &mut resolve) {
                out.push(match event {
                    Event::Map { start, bytes, backing, writable, name, .. } => {
                        let offset = offset.map_or(String::new(), |at| format!(" at {at:#x}"));
                        format!("map {start:#x} {bytes:#x} {backing:?} {writable} {name}{offset}")
                    }
                    Event::Unmap { start, bytes, .. } => format!("unmap {start:#x} {bytes:#x}"),
                    other => format!("{other:?}"),
                });
            }
        }
        out
    }

    #[test]
    fn calls_change_the_mappings() {
        let text = "map 400000-402000 r-xp 00001000 /usr/bin/a b\n\
            map 4000800000-4001000000 rw-p 00000000 \n\
            call 5 0 12 500000 0 0 0 0 0 0\n\
            call 6 0 12 503000 503000 0 0 0 0 0\n\
            call 7 0 12 501000 501000 0 0 0 0 0\n\
            call 8 0 9 70000000 0 1001 5 2 3 4000\n\
            call 9 0 9 71000000 0 2000 3 22 ffffffff 0\n\
            call 9 0 9 fffffffffffffff4 0 2000 3 22 ffffffff 0\n\
            call 9 1 25 72000000 71000000 2000 4000 1 0 0\n\
            call 9 0 10 0 71000000 2000 1 0 0 0\n\
            call 9 0 11 0 70000000 1000 0 0 0 0\nnoise";
        let expected = [
            "map 0x400000 0x2000 File false /usr/bin/a b at 0x1000",
            "map 0x4000800000 0x800000 Anonymous true ",
            "map 0x500000 0x3000 Heap true [heap]",
            "unmap 0x501000 0x2000",
            "map 0x70000000 0x2000 File false /lib/x.so at 0x4000",
            "map 0x71000000 0x2000 Anonymous true ",
            "unmap 0x71000000 0x2000",
            "map 0x72000000 0x4000 Anonymous true ",
            "unmap 0x70000000 0x1000",
        ];
        assert_eq!(lines(text), expected);
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_without_panic(line in "(map|call)( [0-9a-f-]{0,17}){0,12}") {
            let _ = lines(&line);
        }
    }
}
