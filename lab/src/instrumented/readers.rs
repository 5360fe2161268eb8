//! Threads that read the plugin's rings while the machine runs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use tierscope_wire::guest_ram::{self, RamPart};
use tierscope_wire::{Consumer, RawAccess, Record, Shared, TlbMiss};

use super::{Files, Words};
use crate::error::{Context, Error, Kind, Result};

/// Maps a file as words for the lifetime of the process.
///
/// # Errors
/// The file cannot be mapped.
pub(super) fn map(path: &Path, bytes: u64) -> Result<Words> {
    let shared = Shared::open(path, bytes).at(path.display())?;
    let words = shared.leak();
    words.map_err(|error| Error::new(Kind::Environment, path.display().to_string(), error))
}

/// Numbers of records read from the rings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Heard {
    /// Number of records of accesses.
    pub raw: u64,
    /// Number of records of TLB misses.
    pub tlb: u64,
    /// Number of records dropped because their ring was full.
    pub lost: u64,
    /// Errors because of which a ring was not read to its end.
    pub failed: Vec<String>,
}

impl Heard {
    fn add(&mut self, other: Heard) {
        self.raw += other.raw;
        self.tlb += other.tlb;
        self.lost += other.lost;
        self.failed.extend(other.failed);
    }
}

/// The guest's RAM, mapped into the lab.
#[derive(Debug)]
pub(crate) struct Ram {
    nodes: Vec<Shared>,
    pieces: Vec<RamPart>,
}

impl Ram {
    /// Maps the files of all nodes.
    pub(crate) fn open(files: &Files) -> Result<Self> {
        let map = |(node, bytes): (usize, &u64)| {
            let path = files.path(&format!("ram-{node}"));
            Shared::open(&path, *bytes).at(path.display())
        };
        let nodes = files.nodes().iter().enumerate().map(map).collect::<Result<_>>()?;
        Ok(Self { nodes, pieces: guest_ram::q35(files.nodes()) })
    }

    fn place_of(&self, physical: u64) -> Option<(&RamPart, u64)> {
        self.pieces.iter().find_map(|piece| Some((piece, piece.offset_of(physical)?)))
    }

    /// The 64-bit word at a physical address; 0 outside of RAM.
    pub(crate) fn word(&self, physical: u64) -> u64 {
        let Some((piece, offset)) = self.place_of(physical) else { return 0 };
        let words = self.nodes[piece.node].words().unwrap_or_default();
        words[((piece.offset + offset) / 8) as usize].load(Relaxed)
    }

    /// The node of a physical address; None outside of RAM.
    pub(crate) fn node_of(&self, physical: u64) -> Option<usize> {
        self.place_of(physical).map(|(piece, _)| piece.node)
    }
}

/// Consumer of a ring's records.
trait Keeper<R>: Send {
    fn take(&mut self, records: &[R]) -> std::io::Result<()>;
}

/// Only counts records.
struct Counted;

impl<R> Keeper<R> for Counted {
    fn take(&mut self, _: &[R]) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes records unchanged to a file; records of TLB misses are followed by the current page-table
/// entry in the guest's memory.
struct Kept {
    file: BufWriter<File>,
    ram: Ram,
}

fn write_words(file: &mut impl Write, words: &[u64]) -> std::io::Result<()> {
    words.iter().try_for_each(|word| file.write_all(&word.to_le_bytes()))
}

impl Keeper<RawAccess> for Kept {
    fn take(&mut self, records: &[RawAccess]) -> std::io::Result<()> {
        let mut words = [0; RawAccess::WORDS];
        records.iter().try_for_each(|record| {
            record.write(&mut words);
            write_words(&mut self.file, &words)
        })
    }
}

impl Keeper<TlbMiss> for Kept {
    fn take(&mut self, records: &[TlbMiss]) -> std::io::Result<()> {
        let mut words = [0; TlbMiss::WORDS + 1];
        records.iter().try_for_each(|record| {
            record.write(&mut words[..TlbMiss::WORDS]);
            words[TlbMiss::WORDS] = self.ram.word(record.entry);
            write_words(&mut self.file, &words)
        })
    }
}

/// Time between two looks at a ring, extended up to [`LAZY`] times while it stays empty. Polling
/// without a pause would share the cache line of the ring's head with the vCPU, which then waits
/// for it at every record.
const PAUSE: Duration = Duration::from_micros(200);
const LAZY: u32 = 32;
/// A ring is polled again without a pause if at least this fraction (1 of `FULL`) of it was filled.
const FULL: u64 = 8;

/// Reads a ring until its producer is done or the machine has ended. Returns numbers of records and
/// losses, and an error.
fn follow<R: Record>(
    words: Words,
    keeper: &mut dyn Keeper<R>,
    gone: &AtomicBool,
) -> (u64, u64, Option<String>) {
    let (mut read, mut lost, mut records) = (0, 0, Vec::new());
    let mut idle = 1;
    let mut consumer = loop {
        match Consumer::<R>::attach(words) {
            Ok(consumer) => break consumer,
            // The ring of a thread that never started.
            Err(_) if gone.load(Acquire) && words[0].load(Relaxed) == 0 => return (0, 0, None),
            Err(error) if gone.load(Acquire) => return (0, 0, Some(error.to_string())),
            Err(_) => std::thread::sleep(PAUSE * LAZY),
        }
    };
    loop {
        let last = gone.load(Acquire);
        records.clear();
        let drained = consumer.drain(&mut records);
        read += records.len() as u64;
        let kept = keeper.take(&records);
        let drained = match (drained, kept) {
            (Ok(drained), Ok(())) => drained,
            (Err(error), _) => return (read, lost, Some(error.to_string())),
            (_, Err(error)) => return (read, lost, Some(error.to_string())),
        };
        lost += drained.lost.0;
        match drained.done || last {
            true if records.is_empty() => return (read, lost, None),
            false if (records.len() as u64) < consumer.capacity() / FULL => {
                idle = if records.is_empty() { (2 * idle).min(LAZY) } else { 1 };
                std::thread::sleep(PAUSE * idle);
            }
            _ => {}
        }
    }
}

/// The reader threads of a machine.
#[derive(Debug)]
pub struct Readers {
    threads: Vec<JoinHandle<Heard>>,
    gone: Arc<AtomicBool>,
}

impl Readers {
    /// Starts a reader for each ring; kept records are written to `out`.
    ///
    /// # Errors
    /// A ring cannot be mapped, or a file cannot be created.
    pub fn start(files: &Files, out: &Path) -> Result<Self> {
        let mut readers = Self { threads: Vec::new(), gone: Arc::default() };
        for cpu in 0..files.cpus() {
            if files.wanted().is_read_here("raw") {
                let keeper: Box<dyn Keeper<RawAccess>> = match keep(files, out, "raw", cpu)? {
                    Some(kept) => Box::new(kept),
                    None => Box::new(Counted),
                };
                readers.spawn(files, &format!("raw-{cpu}"), keeper, |raw| Heard {
                    raw,
                    ..Heard::default()
                })?;
            }
            if files.wanted().is_read_here("tlb") {
                let keeper: Box<dyn Keeper<TlbMiss>> = match keep(files, out, "tlb", cpu)? {
                    Some(kept) => Box::new(kept),
                    None => Box::new(Counted),
                };
                readers.spawn(files, &format!("tlb-{cpu}"), keeper, |tlb| Heard {
                    tlb,
                    ..Heard::default()
                })?;
            }
        }
        Ok(readers)
    }

    fn spawn<R: Record + 'static>(
        &mut self,
        files: &Files,
        name: &str,
        mut keeper: Box<dyn Keeper<R>>,
        heard: fn(u64) -> Heard,
    ) -> Result<()> {
        let words = map(&files.path(name), files.wanted().ring_bytes)?;
        let (gone, name) = (Arc::clone(&self.gone), name.to_owned());
        self.threads.push(std::thread::spawn(move || {
            let (read, lost, failed) = follow::<R>(words, keeper.as_mut(), &gone);
            let failed = failed.map(|cause| format!("{name}: {cause}")).into_iter().collect();
            Heard { lost, failed, ..heard(read) }
        }));
        Ok(())
    }

    /// Called when the machine has ended: reads the remaining records and returns the totals.
    #[must_use]
    pub fn finish(self) -> Heard {
        self.gone.store(true, Release);
        let mut all = Heard::default();
        for thread in self.threads {
            match thread.join() {
                Ok(heard) => all.add(heard),
                Err(_) => all.failed.push("a reader died".into()),
            }
        }
        all
    }
}

fn keep(files: &Files, out: &Path, ring: &str, cpu: u32) -> Result<Option<Kept>> {
    if !files.wanted().keep.iter().any(|name| name == ring) {
        return Ok(None);
    }
    let path = out.join(format!("{ring}-{cpu}.bin"));
    let file = BufWriter::new(File::create(&path).at(path.display())?);
    Ok(Some(Kept { file, ram: Ram::open(files)? }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use tierscope_core::Time;
    use tierscope_wire::{Producer, ring};

    fn access(address: u64) -> RawAccess {
        RawAccess {
            address,
            size_log2: 3,
            store: false,
            non_temporal: false,
            time: Time(0),
            cpu: 0,
            space: 0,
        }
    }

    fn words(records: usize) -> Words {
        let words = ring::bytes_for::<RawAccess>(records) / 8;
        (0..words).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak()
    }

    #[test]
    fn a_ring_is_read_to_its_end_and_losses_are_reported() {
        let words = words(4);
        let gone = AtomicBool::new(false);
        let mut producer = Producer::create(words).unwrap();
        (0..6).for_each(|n| {
            producer.push(&access(n));
        });
        drop(producer);
        assert_eq!(follow::<RawAccess>(words, &mut Counted, &gone), (4, 2, None));
    }

    #[test]
    fn a_missing_ring_is_not_waited_for_endlessly() {
        let gone = AtomicBool::new(true);
        assert_eq!(follow::<RawAccess>(words(4), &mut Counted, &gone), (0, 0, None));
        let damaged = words(4);
        damaged[0].store(7, Relaxed);
        let (read, _, failed) = follow::<RawAccess>(damaged, &mut Counted, &gone);
        assert!(read == 0 && failed.unwrap().contains("there is none"));
    }
}
