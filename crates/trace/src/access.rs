//! Contents of a trace: accesses, and events about threads, mappings, symbols and allocations.

use std::sync::Arc;

use tierscope_core::{Backing, Result, Time};

/// The kind of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Data is read.
    #[default]
    Load = 0,
    /// Data is written.
    Store = 1,
    /// Data is read and written by one instruction.
    Modify = 2,
    /// An instruction is fetched.
    Fetch = 3,
}

impl Kind {
    /// Every kind, in the order of its number.
    pub const ALL: [Kind; 4] = [Kind::Load, Kind::Store, Kind::Modify, Kind::Fetch];

    /// Name for display and for CSV.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Load => "load",
            Kind::Store => "store",
            Kind::Modify => "modify",
            Kind::Fetch => "fetch",
        }
    }
}

/// An access of a thread to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// Linear address of the first byte.
    pub address: u64,
    /// Time since the trace began; always 0 if the source has no times.
    pub time: Time,
    /// Number of the thread, as announced by an [`Event::Thread`].
    pub thread: u32,
    /// Length in bytes; 0 if the source does not know it.
    pub bytes: u16,
    /// Load, store, modify or fetch.
    pub kind: Kind,
}

/// Records of a trace other than accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Announces a thread, before its accesses.
    Thread {
        /// Its number; numbers are dense, in order of appearance.
        number: u32,
        /// Pid in the traced system; 0 if unknown.
        pid: u64,
        /// Tid in the traced system; 0 if unknown.
        tid: u64,
        /// Name for display; may be empty.
        name: Arc<str>,
    },
    /// Memory is mapped.
    Map {
        /// Time of the mapping.
        time: Time,
        /// Pid of the process.
        pid: u64,
        /// First address of the range.
        start: u64,
        /// Length in bytes.
        bytes: u64,
        /// Kind of memory: anonymous, heap, stack, file or kernel.
        backing: Backing,
        /// Whether the mapping is writable.
        writable: bool,
        /// Path or name; may be empty.
        name: Arc<str>,
    },
    /// Memory is unmapped.
    Unmap {
        /// Time of the unmapping.
        time: Time,
        /// Pid of the process.
        pid: u64,
        /// First address of the range.
        start: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// The name of a function or data object.
    Symbol {
        /// Pid of the process.
        pid: u64,
        /// First address of the range.
        start: u64,
        /// Length in bytes.
        bytes: u64,
        /// The name.
        name: Arc<str>,
    },
    /// A heap allocation. Its place among the thread's accesses is when it happened.
    Given {
        /// The thread's number.
        thread: u32,
        /// First address of the range.
        start: u64,
        /// Length in bytes.
        bytes: u64,
        /// Call site of the allocation.
        site: Arc<str>,
    },
}

/// Limit on the threads of a trace: a file with more is damaged.
pub const MAX_THREADS: u32 = 1 << 20;
/// The error for more than [`MAX_THREADS`].
pub(crate) const TOO_MANY: &str = "more threads than a million";

/// Accesses in the order of the source, with the events before, among and after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The accesses.
    pub accesses: Vec<Access>,
    /// Events in order, each with the number of accesses of this batch that precede it.
    pub events: Vec<(usize, Event)>,
}

impl Batch {
    /// Removes all accesses and events.
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.events.clear();
    }

    /// Appends an access.
    #[inline]
    pub fn push(&mut self, access: Access) {
        self.accesses.push(access);
    }

    /// Appends an event.
    pub fn event(&mut self, event: Event) {
        self.events.push((self.accesses.len(), event));
    }
}

/// Approximate number of accesses that a source returns per call.
pub const BATCH: usize = 16 << 10;

/// A reader of a trace format.
pub trait Source {
    /// Appends the next accesses and events, at least one; false at the end.
    ///
    ///
    /// The next records are damaged or unreadable. Everything before them is in the batch.
    /// [`Source::go_on`] reports whether another call can succeed.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool>;

    /// After an error: whether the source can continue after the damage.
    fn go_on(&self) -> bool {
        false
    }

    /// Whether the trace covers the program's whole run, as far as the source can know.
    fn whole(&self) -> bool {
        true
    }

    /// Notes for the user about records that were left out, once everything was read.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Reads a source to its end; the accesses before an error are in the batch.
///
/// # Errors
/// The source's first error.
pub fn read_all(source: &mut dyn Source, batch: &mut Batch) -> Result<()> {
    while source.fill(batch)? {}
    Ok(())
}
