//! Reads the page walks that the instrumented virtual machine recorded.
//!
//! A file holds the walks of one virtual CPU in order of time, each as five little-endian words of
//! 64 bits: the four of [`TlbMiss`], and the value of the guest's page-table entry.

use std::io::Read;

use tierscope_core::{Error, Level, Result, Time};
use tierscope_trace::place::{Place, malformed, unreadable};
use tierscope_wire::{Record, TlbMiss};

use super::walks::TAGS;

/// Words of a record: those of the walk, and the entry.
const WORDS: usize = TlbMiss::WORDS + 1;
const BYTES: usize = WORDS * 8;
/// Limit on a walk's time: two years in ns; later times are damage.
const LAST: u64 = 1 << 56;

/// The walks of a virtual CPU, in sequence.
pub struct WalkFile<R> {
    input: R,
    name: String,
    offset: u64,
    next: Option<(TlbMiss, u64)>,
}

impl<R: Read> WalkFile<R> {
    /// Reads `input`; `name` is used in errors.
    ///
    /// # Errors
    /// As for [`WalkFile::advance`].
    pub fn new(name: &str, input: R) -> Result<Self> {
        let mut walks = Self { input, name: name.to_owned(), offset: 0, next: None };
        walks.advance()?;
        Ok(walks)
    }

    /// Time of the next walk.
    #[must_use]
    pub fn time(&self) -> Option<Time> {
        self.next.map(|(miss, _)| miss.time)
    }

    fn wrong(&self, cause: &str) -> Error {
        let remedy = "give files that the instrumented machine kept; what comes before may be cut off as a file of its own";
        malformed(&self.name, Place::Byte(self.offset), cause, remedy)
    }

    /// Advances to the next walk; returns the current one with its entry, and `None` at the end,
    /// which must follow a complete record.
    ///
    /// # Errors
    /// An invalid record, times that go backwards, I/O errors. The walk before the error is lost.
    pub fn advance(&mut self) -> Result<Option<(TlbMiss, u64)>> {
        let mut bytes = [0; BYTES];
        let mut length = 0;
        while length < BYTES {
            let room = &mut bytes[length..];
            match tierscope_trace::input::read(&mut self.input, room)
                .map_err(|e| unreadable(&self.name, &e))?
            {
                0 => break,
                count => length += count,
            }
        }
        let taken = self.next.take();
        if length == 0 {
            return Ok(taken);
        }
        if length < BYTES {
            return Err(self.wrong("it ends within a record"));
        }
        let (miss, entry) =
            record(&bytes).ok_or_else(|| self.wrong("it is no record of a walk"))?;
        if taken.is_some_and(|(before, _)| before.time > miss.time) {
            return Err(self.wrong("its time lies before that of the record before"));
        }
        self.offset += BYTES as u64;
        self.next = Some((miss, entry));
        Ok(taken)
    }
}

/// Decodes a record; `None` if it is no possible walk: the entry must lie in memory, at one of the
/// three lowest levels.
fn record(bytes: &[u8; BYTES]) -> Option<(TlbMiss, u64)> {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(*bytes.first_chunk()?);
    }
    let miss = TlbMiss::read(&words)?;
    let sound = miss.level <= Level::PUD && miss.entry < TAGS.start && miss.time.0 < LAST;
    sound.then_some((miss, words[TlbMiss::WORDS]))
}

/// Passes the walks of all files to `take`, in order of time.
///
/// # Errors
/// As for [`WalkFile::advance`]; errors of `take`.
pub fn each_walk<R: Read>(
    files: &mut [WalkFile<R>],
    mut take: impl FnMut(&TlbMiss, u64) -> Result<()>,
) -> Result<()> {
    loop {
        let left = files.iter_mut().filter(|file| file.next.is_some());
        let Some(first) = left.min_by_key(|file| file.time()) else { return Ok(()) };
        if let Some((miss, entry)) = first.advance()? {
            take(&miss, entry)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(time: u64, level: u64, entry: u64) -> Vec<u8> {
        let words = [time, 0x40_0000, entry | level, 0x3000, 7];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn files_are_merged_by_time() {
        let first = [bytes(1, 1, 0x8000), bytes(5, 2, 0x8008)].concat();
        let second = bytes(3, 1, 0x9000);
        let open = |bytes| WalkFile::new("t", bytes).expect("sound");
        let mut files = [open(&first[..]), open(&second[..]), open(&[][..])];
        assert_eq!(files[0].time(), Some(Time(1)));
        let mut seen = Vec::new();
        let take = |miss: &TlbMiss, entry| {
            seen.push((miss.time.0, miss.entry, miss.level, entry));
            Ok(())
        };
        each_walk(&mut files, take).expect("sound");
        let (pte, pmd) = (Level::PTE, Level::PMD);
        assert_eq!(seen, [(1, 0x8000, pte, 7), (3, 0x9000, pte, 7), (5, 0x8008, pmd, 7)]);
    }

    #[test]
    fn malformed_walks_are_reported_with_their_place() {
        let good = bytes(2, 1, 0x8000);
        let told = |more: &[u8]| {
            let bytes = [&good[..], more].concat();
            let mut file = WalkFile::new("t", &bytes[..])?;
            while file.advance()?.is_some() {}
            Ok(())
        };
        let cases: [(Vec<u8>, &str); 6] = [
            (good[..24].to_vec(), "byte 40: it ends within a record"),
            (bytes(1, 1, 0x8000), "byte 40: its time lies before"),
            (bytes(3, 0, 0x8000), "byte 40: it is no record"),
            (bytes(3, 4, 0x8000), "byte 40: it is no record"),
            (bytes(3, 1, 1 << 46), "byte 40: it is no record"),
            (bytes(LAST, 1, 0x8000), "byte 40: it is no record"),
        ];
        for (more, part) in cases {
            let error: Error = told(&more).expect_err("it is wrong");
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(told(&good), Ok(()), "the same time again");
    }
}
