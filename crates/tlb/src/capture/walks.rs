//! Converts walks recorded by the instrumented virtual machine ([`WalkFile`]) to a capture.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use tierscope_core::{Backing, Error, ErrorKind, Result, Time};
use tierscope_trace::Event;
use tierscope_trace::compact::Writer;
use tierscope_wire::TlbMiss;

use super::{NAMES, create};
use crate::ptat::{Files, WalkFile, WalkWriter, each_walk};

/// Largest distance, in pages of 2 MiB, between neighbouring pages of one object.
const APART: u64 = 8;
/// Start of the kernel's half of the address space.
const KERNEL: u64 = 1 << 63;

/// Calls `take` for the walks of all files, merged by time.
fn each(paths: &[PathBuf], take: impl FnMut(&TlbMiss, u64) -> Result<()>) -> Result<()> {
    let open = |path: &PathBuf| {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot read {name}"))
                .cause(e)
                .remedy("check its path")
        })?;
        WalkFile::new(&name, BufReader::with_capacity(1 << 18, file))
    };
    let mut files = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
    each_walk(&mut files, take)
}

/// Result of the first pass over the files.
pub struct Survey<'a> {
    paths: &'a [PathBuf],
    no_kernel: bool,
    /// Range of the entries' addresses.
    entries: (u64, u64),
    /// Number of walks.
    pub walks: u64,
    /// The memory that the walks translate: pages of 2 MiB, by root table.
    pages: BTreeMap<u64, BTreeSet<u64>>,
}

impl<'a> Survey<'a> {
    /// Reads a file for each virtual CPU; with `no_kernel`, walks of the kernel's own addresses are
    /// left out.
    ///
    /// # Errors
    /// A file is damaged, or there are no walks.
    pub fn of(paths: &'a [PathBuf], no_kernel: bool) -> Result<Self> {
        let mut entries = None;
        let mut survey =
            Self { paths, no_kernel, entries: (0, 0), walks: 0, pages: BTreeMap::new() };
        each(paths, |miss, _| {
            if is_wanted(miss, no_kernel) {
                let (first, last) = entries.unwrap_or((miss.entry, miss.entry));
                entries = Some((first.min(miss.entry), last.max(miss.entry)));
                survey.pages.entry(miss.root).or_default().insert(miss.address >> 21);
                survey.walks += 1;
            }
            Ok(())
        })?;
        let entries = entries.ok_or_else(|| {
            Error::new(ErrorKind::Data, "there is nothing to import")
                .cause("the files hold no walk")
                .remedy("check that the machine recorded TLB misses")
        })?;
        Ok(Self { entries, ..survey })
    }

    /// Number of address spaces.
    #[must_use]
    pub fn spaces(&self) -> usize {
        self.pages.len()
    }

    /// Reads the files again, and writes the capture into a directory.
    ///
    /// # Errors
    /// A write failed.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let files = Files::of(directory, 1);
        let mut writer = WalkWriter::new(self.entries, 6, |board| {
            create(board.map_or(&files.dump, |board| &files.boards[usize::from(board)]))
        })?;
        each(self.paths, |miss, entry| match is_wanted(miss, self.no_kernel) {
            true => writer.walk(miss, entry),
            false => Ok(()),
        })?;
        names(&directory.join(NAMES), &self.pages, &writer)?;
        writer.finish().map(drop)
    }
}

fn is_wanted(miss: &TlbMiss, no_kernel: bool) -> bool {
    !(no_kernel && miss.address >= KERNEL)
}

/// Writes names of mappings. The recording has none, so memory that lies close together is taken
/// for one object.
fn names<W: std::io::Write>(
    path: &Path,
    pages: &BTreeMap<u64, BTreeSet<u64>>,
    writer: &WalkWriter<W>,
) -> Result<()> {
    let (name, out) = create(path)?;
    let mut names = Writer::new(&name, out)?;
    for (root, pages) in pages {
        let Some(pid) = writer.pid(*root) else { continue };
        for (first, last) in stretches(pages) {
            let (start, bytes) = (first << 21, (last + 1 - first) << 21);
            let name = format!("memory at {start:#x}").into();
            let (pid, time, backing) = (u64::from(pid), Time(0), Backing::Anonymous);
            names.event(&Event::Map { time, pid, start, bytes, backing, writable: true, name })?;
        }
    }
    names.finish(true).map(drop)
}

/// First and last page of each cluster of neighbouring pages.
fn stretches(pages: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for page in pages {
        match found.last_mut() {
            Some((_, last)) if *page - *last <= APART => *last = *page,
            _ => found.push((*page, *page)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptat::Capture;
    use tierscope_core::Level;
    use tierscope_wire::Record;

    /// Words of a record on disk.
    const WORDS: usize = TlbMiss::WORDS + 1;

    fn record(time: u64, address: u64) -> Vec<u8> {
        let miss = TlbMiss {
            time: Time(time),
            address,
            entry: 0x8000 + (address >> 12 & 511) * 8,
            level: Level::PTE,
            root: 0x3000,
            cpu: 0,
        };
        let mut words = [0; WORDS];
        miss.write(&mut words[..TlbMiss::WORDS]);
        words[TlbMiss::WORDS] = address & !4095 | 7;
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn import(files: &[Vec<u8>], no_kernel: bool) -> (tempfile::TempDir, Result<()>) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |at: usize| directory.path().join(format!("tlb-{at}.bin"));
        for (at, bytes) in files.iter().enumerate() {
            std::fs::write(path(at), bytes).expect("there is room");
        }
        let files = (0..files.len()).map(path).collect();
        let files: Vec<PathBuf> = files;
        let output = directory.path().join("capture");
        std::fs::create_dir(&output).expect("there is room");
        let done = Survey::of(&files, no_kernel).and_then(|survey| survey.write(&output));
        (directory, done)
    }

    // Two CPUs, interleaved: three walks to one page, one to another, and one of the kernel, which
    // is left out.
    #[test]
    fn walks_of_two_cpus_are_one_capture() {
        let kernel = 0xffff_8880_0000_0000;
        let first = [record(1, 0x40_0000), record(5, 0x40_0010), record(6, kernel)].concat();
        let second = [record(2, 0x41_0000), record(5, 0x40_0020)].concat();
        let (directory, done) = import(&[first, second], true);
        done.expect("it makes sense");
        let mut capture = Capture::open(&directory.path().join("capture")).expect("ours");
        while capture.step(&mut ()) {}
        let (misses, damage) = capture.finish();
        assert_eq!((damage.count, misses.total(), misses.is_exact()), (0, 4, true));
        let found: Vec<(u64, f64)> =
            misses.pages.iter().map(|(page, counts)| (page.start(), counts.total())).collect();
        assert_eq!(found, [(0x40_0000, 3.0), (0x41_0000, 1.0)]);
    }

    #[test]
    fn malformed_records_are_reported_with_their_place() {
        let cut = [record(1, 0x40_0000), record(2, 0x40_0000)[..24].to_vec()].concat();
        let told = |files: &[Vec<u8>]| import(files, false).1.expect_err("wrong").to_string();
        assert!(told(&[cut]).contains("tlb-0.bin: byte 40: it ends within a record"));
        let back = [record(2, 0x40_0000), record(1, 0x40_0000)].concat();
        assert!(told(&[back]).contains("its time lies before"));
        assert!(told(&[vec![0; 40]]).contains("it is no record of a walk"));
        assert!(told(&[Vec::new()]).contains("there is nothing to import"));
    }

    #[test]
    fn memory_that_lies_close_together_is_an_object() {
        assert_eq!(stretches(&[1, 2, 10, 19, 20].into()), [(1, 10), (19, 20)]);
    }
}
