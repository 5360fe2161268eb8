//! What a trace says: accesses, and what is known of who made them and to what.

use std::sync::Arc;

use tierscope_core::{Backing, Result, Time};

/// What an access does.
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

    /// For people and for CSV.
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
    /// Since the trace began; of a source that knows no times always 0.
    pub time: Time,
    /// Number of the thread, which an [`Event::Thread`] announced.
    pub thread: u32,
    /// How many bytes; 0 where the source does not know.
    pub bytes: u16,
    /// What it does.
    pub kind: Kind,
}

/// What a trace says beside accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread that will make accesses.
    Thread {
        /// Its number: they are dense, in order of appearance.
        number: u32,
        /// Its process, as the traced system numbered it; 0 where that is not known.
        pid: u64,
        /// The thread likewise.
        tid: u64,
        /// For people; may be empty.
        name: Arc<str>,
    },
    /// Memory is mapped.
    Map {
        /// When.
        time: Time,
        /// The process.
        pid: u64,
        /// First address.
        start: u64,
        /// How much.
        bytes: u64,
        /// What stands behind it.
        backing: Backing,
        /// Whether it may be written to.
        writable: bool,
        /// Path or name; may be empty.
        name: Arc<str>,
    },
    /// Memory is mapped no longer.
    Unmap {
        /// When.
        time: Time,
        /// The process.
        pid: u64,
        /// First address.
        start: u64,
        /// How much.
        bytes: u64,
    },
    /// A function or an object has a name.
    Symbol {
        /// The process.
        pid: u64,
        /// First address.
        start: u64,
        /// How much.
        bytes: u64,
        /// The name.
        name: Arc<str>,
    },
    /// A thread was given memory that it had asked for. It stands among the thread's accesses where it happened.
    Given {
        /// The thread's number.
        thread: u32,
        /// First address.
        start: u64,
        /// How much.
        bytes: u64,
        /// Who asked: the place in the program.
        site: Arc<str>,
    },
}

/// No trace has more threads: a file that says so is damaged.
pub const MAX_THREADS: u32 = 1 << 20;
/// Why such a file is refused.
pub(crate) const TOO_MANY: &str = "more threads than a million";

/// Accesses in the order of the source, and what was said before, among and after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The accesses.
    pub accesses: Vec<Access>,
    /// Events, each with the number of accesses of this batch that came before it; in order.
    pub events: Vec<(usize, Event)>,
}

impl Batch {
    /// Empties it.
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
    pub fn tell(&mut self, event: Event) {
        self.events.push((self.accesses.len(), event));
    }
}

/// Accesses that a source hands out at a time, about.
pub const BATCH: usize = 16 << 10;

/// Somewhere that accesses come from.
pub trait Source {
    /// Appends what comes next, at least one item; false if there is nothing any more.
    ///
    /// # Errors
    /// What comes next is damaged, or cannot be read. What came before it stands in the batch.
    /// [`Source::go_on`] tells whether asking again makes sense.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool>;

    /// After an error: whether the source can go on behind what is damaged.
    fn go_on(&self) -> bool {
        false
    }

    /// Whether what was read goes to the program's end, as far as the source can tell.
    fn whole(&self) -> bool {
        true
    }

    /// What the user should know of what was left out, once everything was read.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Reads a source to its end; what came before an error stands in the batch.
///
/// # Errors
/// The first of the source.
pub fn read_all(source: &mut dyn Source, batch: &mut Batch) -> Result<()> {
    while source.fill(batch)? {}
    Ok(())
}
