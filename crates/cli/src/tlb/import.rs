//! `tierscope tlb import`: walks that the instrumented virtual machine recorded, as a capture.
//!
//! A file holds the walks of a virtual CPU in the order of their time, each in five words of 64 bits, little-endian: the four of
//! [`TlbMiss`], and the entry that the guest had there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use tierscope_core::{Backing, Error, ErrorKind, Result, Time};
use tierscope_exchange::PartialDir;
use tierscope_trace::Event;
use tierscope_trace::compact::Writer;
use tierscope_trace::ptat::{Files, WalkWriter};
use tierscope_wire::{Record, TlbMiss};

use super::capture::{NAMES, create};

/// Words of a record: the walk's, and the entry.
const WORDS: usize = TlbMiss::WORDS + 1;
/// Pages of 2 MiB that lie further apart than so many belong to different objects.
const APART: u64 = 8;
/// From here on addresses are the kernel's.
const KERNEL: u64 = 1 << 63;

/// Flags of `tierscope tlb import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A file for each virtual CPU, as the lab keeps them: tlb-0.bin, tlb-1.bin, …
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Directory to write the capture to; must be new
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// Leave out walks of the kernel's own addresses
    #[arg(long)]
    pub no_kernel: bool,
}

/// A CPU's walks, one after another.
struct Walks {
    name: String,
    input: BufReader<File>,
    offset: u64,
    next: Option<(TlbMiss, u64)>,
}

impl Walks {
    fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot read {name}"))
                .cause(e)
                .remedy("check its path")
        })?;
        let input = BufReader::with_capacity(1 << 18, file);
        let mut walks = Self { name, input, offset: 0, next: None };
        walks.advance()?;
        Ok(walks)
    }

    fn wrong(&self, cause: &str) -> Error {
        Error::new(ErrorKind::Data, format!("{}, byte {}", self.name, self.offset))
            .cause(cause)
            .remedy("give files that the instrumented machine kept; what comes before may be cut off as a file of its own")
    }

    /// Goes on to the next; a file ends behind a whole one.
    fn advance(&mut self) -> Result<Option<(TlbMiss, u64)>> {
        let mut bytes = [0; WORDS * 8];
        let mut length = 0;
        while length < bytes.len() {
            match self.input.read(&mut bytes[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.wrong(&error.to_string())),
            }
        }
        let taken = self.next.take();
        if length == 0 {
            return Ok(taken);
        }
        if length < bytes.len() {
            return Err(self.wrong("it ends within a record"));
        }
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .collect();
        let miss = TlbMiss::read(&words).ok_or_else(|| self.wrong("it is no record of a walk"))?;
        if taken.is_some_and(|(before, _)| before.time > miss.time) {
            return Err(self.wrong("its time lies before that of the record before"));
        }
        self.offset += bytes.len() as u64;
        self.next = Some((miss, words[TlbMiss::WORDS]));
        Ok(taken)
    }
}

/// Hands on the walks of all files in the order of their time.
fn each(files: &[PathBuf], mut take: impl FnMut(&TlbMiss, u64) -> Result<()>) -> Result<()> {
    let mut walks = files.iter().map(|path| Walks::open(path)).collect::<Result<Vec<Walks>>>()?;
    loop {
        let first = walks.iter_mut().filter(|walks| walks.next.is_some());
        let time = |walks: &&mut Walks| walks.next.map_or(Time(u64::MAX), |(miss, _)| miss.time);
        let Some(first) = first.min_by_key(time) else { return Ok(()) };
        if let Some((miss, entry)) = first.advance()? {
            take(&miss, entry)?;
        }
    }
}

/// What a first look tells: where entries lie, and which memory is walked to.
#[derive(Default)]
struct Survey {
    entries: Option<(u64, u64)>,
    walks: u64,
    /// By top table: pages of 2 MiB.
    pages: BTreeMap<u64, BTreeSet<u64>>,
}

pub(super) fn run(args: &ImportArgs) -> Result<()> {
    let wanted = |miss: &TlbMiss| !(args.no_kernel && miss.address >= KERNEL);
    let mut survey = Survey::default();
    each(&args.files, |miss, _| {
        if wanted(miss) {
            let (first, last) = survey.entries.unwrap_or((miss.entry, miss.entry));
            survey.entries = Some((first.min(miss.entry), last.max(miss.entry)));
            survey.pages.entry(miss.root).or_default().insert(miss.address >> 21);
            survey.walks += 1;
        }
        Ok(())
    })?;
    let Some(entries) = survey.entries else {
        return Err(Error::new(ErrorKind::Data, "there is nothing to import")
            .cause("the files hold no walk")
            .remedy("check that the machine recorded TLB misses"));
    };
    let directory = PartialDir::create(&args.output)?;
    let files = Files::of(directory.path(), 1);
    let mut writer = WalkWriter::new(entries, 6, |board| {
        create(board.map_or(&files.dump, |board| &files.boards[usize::from(board)]))
    })?;
    each(&args.files, |miss, entry| if wanted(miss) { writer.walk(miss, entry) } else { Ok(()) })?;
    names(&directory.path().join(NAMES), &survey, &writer)?;
    writer.finish()?;
    directory.keep()?;
    let (walks, spaces) = (survey.walks, survey.pages.len());
    eprintln!(
        "tierscope: wrote {walks} walks of {spaces} address spaces into {}",
        args.output.display()
    );
    Ok(())
}

/// Nobody told what is mapped: memory that lies close together is an object.
fn names<W: std::io::Write>(path: &Path, survey: &Survey, writer: &WalkWriter<W>) -> Result<()> {
    let (name, out) = create(path)?;
    let mut names = Writer::new(&name, out)?;
    for (root, pages) in &survey.pages {
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

/// The first and the last of numbers that lie close together.
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
    use tierscope_core::Level;

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
        let output = directory.path().join("capture");
        let done = run(&ImportArgs { files, output, no_kernel });
        (directory, done)
    }

    // Two CPUs by turns: three walks to one page, one to another, one of the kernel that is left out.
    #[test]
    fn walks_of_two_cpus_are_one_capture() {
        let kernel = 0xffff_8880_0000_0000;
        let first = [record(1, 0x40_0000), record(5, 0x40_0010), record(6, kernel)].concat();
        let second = [record(2, 0x41_0000), record(5, 0x40_0020)].concat();
        let (directory, done) = import(&[first, second], true);
        done.expect("it makes sense");
        let (misses, damage) =
            super::super::report::parsed(&directory.path().join("capture"), &mut ()).expect("ours");
        assert_eq!((damage.count, misses.total(), misses.is_exact()), (0, 4, true));
        let found: Vec<(u64, f64)> =
            misses.pages.iter().map(|(page, counts)| (page.start(), counts.total())).collect();
        assert_eq!(found, [(0x40_0000, 3.0), (0x41_0000, 1.0)]);
    }

    #[test]
    fn what_is_no_record_is_told_with_its_place() {
        let cut = [record(1, 0x40_0000), record(2, 0x40_0000)[..24].to_vec()].concat();
        let told = |files: &[Vec<u8>]| import(files, false).1.expect_err("wrong").to_string();
        assert!(told(&[cut]).contains("tlb-0.bin, byte 40: it ends within a record"));
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
