//! A single-producer, single-consumer ring of records in shared memory.
//!
//! The region is words of 64 bits, all accessed atomically, so that writes by the other process
//! cannot cause undefined behaviour in this one. Layout, in words:
//!
//! ```text
//!    0  magic            1  version << 32 | words of a record    2  records that fit (2^n)
//!   16  head: records written so far, by the producer
//!   17  lost: records that found the ring full, by the producer
//!   18  1 once the producer is done
//!   32  tail: records read so far, by the consumer
//!   33  1 while a consumer reads, 2 once it is gone
//!   34  losses already reported to a consumer
//!   48  the records
//! ```
//!
//! Head and tail only grow; record number n lies in slot n modulo the capacity. The producer never
//! waits and never overwrites: a record that finds the ring full is counted as lost, and the next
//! drain reports the loss to the consumer. Nothing is lost silently.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tierscope_core::{Error, ErrorKind, Lost, Result};

use crate::records::Record;

/// `tsring`, and a byte that reveals the byte order.
const MAGIC: u64 = u64::from_be_bytes(*b"tsring\x01\x00");
const VERSION: u64 = 1;
const SHAPE: usize = 1;
const CAPACITY: usize = 2;
const HEAD: usize = 16;
const LOST: usize = 17;
const DONE: usize = 18;
const TAIL: usize = 32;
const READER: usize = 33;
const TOLD: usize = 34;
/// Words of the ring's header, before the first record.
pub const HEADER_WORDS: usize = 48;

/// Words of the longest record type that a ring can carry.
const MAX_WORDS: usize = 8;

/// State of the ring's consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// No consumer has attached yet.
    None,
    /// A consumer is attached.
    Attached,
    /// The consumer has detached.
    Gone,
}

/// Views shared memory as atomic words.
///
/// # Errors
/// The memory is not aligned to a word.
///
/// # Safety
/// `base` must be valid for reads and writes of `bytes` bytes during `'a`, and within this process
/// all accesses to it must be atomic.
pub unsafe fn region<'a>(base: *mut u8, bytes: usize) -> Result<&'a [AtomicU64]> {
    if !base.cast::<AtomicU64>().is_aligned() {
        return Err(broken("it does not begin at a multiple of 8").remedy("map whole pages"));
    }
    // SAFETY: alignment was checked above; validity and atomic-only access are the caller's
    // promise.
    Ok(unsafe { std::slice::from_raw_parts(base.cast(), bytes / 8) })
}

/// Marks the ring as finished, so that the consumer expects no more records; for a producer that
/// cannot be dropped.
pub fn finish(region: &[AtomicU64]) {
    if let Some(done) = region.get(DONE) {
        done.store(1, Release);
    }
}

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Data, "cannot use the shared ring").cause(cause)
}

/// Bytes of a region for `records` records; all of it is used if the number is a power of two.
#[must_use]
pub fn bytes_for<R: Record>(records: usize) -> usize {
    (HEADER_WORDS + records * R::WORDS) * 8
}

/// The producer's end of a ring.
#[derive(Debug)]
pub struct Producer<'a, R> {
    region: &'a [AtomicU64],
    mask: u64,
    head: u64,
    lost: u64,
    /// The consumer's tail when last read; it is read again only if the ring looks full.
    tail: u64,
    records: PhantomData<R>,
}

impl<'a, R: Record> Producer<'a, R> {
    /// Creates an empty ring in the region, with the largest power of two of records that fits.
    ///
    /// # Errors
    /// The region is too small for one record.
    pub fn create(region: &'a [AtomicU64]) -> Result<Self> {
        const { assert!(R::WORDS > 0 && R::WORDS <= MAX_WORDS) };
        let room = region.len().saturating_sub(HEADER_WORDS) / R::WORDS;
        let Some(log2) = room.checked_ilog2() else {
            return Err(broken(format!("{} bytes hold no record", region.len() * 8))
                .remedy(format!("give at least {} bytes", bytes_for::<R>(1))));
        };
        region[..HEADER_WORDS].iter().for_each(|word| word.store(0, Relaxed));
        region[SHAPE].store(VERSION << 32 | R::WORDS as u64, Relaxed);
        region[CAPACITY].store(1 << log2, Relaxed);
        region[0].store(MAGIC, Release);
        let mask = (1 << log2) - 1;
        Ok(Self { region, mask, head: 0, lost: 0, tail: 0, records: PhantomData })
    }

    /// Appends a record, or counts it as lost if the ring is full. Returns whether it was appended.
    // Inlined, a record goes from registers to the ring; otherwise it is spilled to the stack and
    // read back in other sizes.
    #[inline(always)]
    pub fn push(&mut self, record: &R) -> bool {
        if self.is_full() {
            self.lost += 1;
            self.region[LOST].store(self.lost, Release);
            return false;
        }
        let mut words = [0; MAX_WORDS];
        record.write(&mut words[..R::WORDS]);
        let first = HEADER_WORDS + (self.head & self.mask) as usize * R::WORDS;
        for (shared, word) in self.region[first..][..R::WORDS].iter().zip(words) {
            shared.store(word, Relaxed);
        }
        self.head += 1;
        self.region[HEAD].store(self.head, Release);
        true
    }

    #[inline]
    fn is_full(&mut self) -> bool {
        if self.head.wrapping_sub(self.tail) <= self.mask {
            return false;
        }
        self.tail = self.region[TAIL].load(Acquire);
        self.head.wrapping_sub(self.tail) > self.mask
    }

    /// Whether the next record fits; for producers that may wait.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        !self.is_full()
    }

    /// Records lost so far because the ring was full.
    #[must_use]
    pub fn lost(&self) -> Lost {
        Lost(self.lost)
    }

    /// Whether a consumer is attached.
    #[must_use]
    pub fn reader(&self) -> Reader {
        match self.region[READER].load(Acquire) {
            0 => Reader::None,
            1 => Reader::Attached,
            _ => Reader::Gone,
        }
    }
}

/// Marks the ring as finished: the consumer expects no more records.
impl<R> Drop for Producer<'_, R> {
    fn drop(&mut self) {
        self.region[DONE].store(1, Release);
    }
}

/// Result of a drain, apart from the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Records lost since the last drain: between the last record of that drain and the first
    /// record of the next one.
    pub lost: Lost,
    /// The producer is done, and everything was read.
    pub done: bool,
}

/// The consumer's end of a ring.
#[derive(Debug)]
pub struct Consumer<'a, R> {
    region: &'a [AtomicU64],
    mask: u64,
    tail: u64,
    /// Losses reported by drains so far.
    told: u64,
    records: PhantomData<R>,
}

impl<'a, R: Record> Consumer<'a, R> {
    /// Attaches to a ring that a producer created, at the position where its last consumer stopped.
    ///
    /// # Errors
    /// There is no ring, it has another version or another record type, or its sizes do not fit the
    /// region.
    pub fn attach(region: &'a [AtomicU64]) -> Result<Self> {
        const { assert!(R::WORDS > 0 && R::WORDS <= MAX_WORDS) };
        if region.len() < HEADER_WORDS || region[0].load(Acquire) != MAGIC {
            return Err(broken("there is none in it").remedy("start the producer first"));
        }
        let (shape, expected) = (region[SHAPE].load(Relaxed), VERSION << 32 | R::WORDS as u64);
        if shape != expected {
            return Err(Error::new(ErrorKind::Version, "cannot read the shared ring")
                .cause(format!("its shape is {shape:#x}, not {expected:#x}"))
                .remedy("use producer and consumer of one build"));
        }
        let capacity = region[CAPACITY].load(Relaxed);
        let room = ((region.len() - HEADER_WORDS) / R::WORDS) as u64;
        if !capacity.is_power_of_two() || capacity > room {
            return Err(broken(format!("it says that {capacity} records fit where {room} do"))
                .remedy("map the whole region"));
        }
        region[READER].store(1, Release);
        let (tail, told) = (region[TAIL].load(Relaxed), region[TOLD].load(Relaxed));
        Ok(Self { region, mask: capacity - 1, tail, told, records: PhantomData })
    }

    /// Capacity of the ring, in records.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Appends all records in the ring to `out`.
    ///
    /// # Errors
    /// The head or a record is invalid: another program wrote into the region. The records before
    /// it were appended.
    pub fn drain(&mut self, out: &mut Vec<R>) -> Result<Drained> {
        // The flag is read before the head: records written before the producer finished are seen.
        let done = self.region[DONE].load(Acquire) != 0;
        let head = self.region[HEAD].load(Acquire);
        let count = head.wrapping_sub(self.tail);
        if count > self.mask + 1 {
            return Err(broken(format!("head {head} and tail {} are too far apart", self.tail)));
        }
        out.reserve(count as usize);
        for number in self.tail..head {
            out.push(self.read(number)?);
        }
        self.tail = head;
        self.region[TAIL].store(head, Release);
        let lost = self.region[LOST].load(Acquire);
        let new = lost.wrapping_sub(std::mem::replace(&mut self.told, lost));
        self.region[TOLD].store(lost, Relaxed);
        Ok(Drained { lost: Lost(new), done })
    }

    fn read(&self, number: u64) -> Result<R> {
        let first = HEADER_WORDS + (number & self.mask) as usize * R::WORDS;
        let mut words = [0; MAX_WORDS];
        for (word, shared) in words.iter_mut().zip(&self.region[first..][..R::WORDS]) {
            *word = shared.load(Relaxed);
        }
        R::read(&words[..R::WORDS]).ok_or_else(|| {
            broken(format!("record {number} makes no sense: {:x?}", &words[..R::WORDS]))
        })
    }
}

/// Marks the ring as abandoned: the producer sees that its consumer is gone.
impl<R> Drop for Consumer<'_, R> {
    fn drop(&mut self) {
        self.region[READER].store(2, Release);
    }
}
