//! Programs that really compute: a graph kernel, a store of keys, a recorded trace.
//!
//! A [`crate::Workload`] describes accesses by patterns. An [`App`] makes them: it computes its own
//! result, and each of its threads hands out, in order, the accesses that the computation needs. Like a
//! description it feeds a simulated machine of any kind, and the same bases and seed give the same
//! accesses.

use std::fmt::Debug;
use std::time::Duration;

use tierscope_core::Error;

use crate::description::Area;
use crate::{Touch, Workload};

/// A program, ready to be started any number of times.
pub trait App: Debug + Send + Sync {
    /// For people: the kernel and its input.
    fn name(&self) -> &str;

    /// The memory that it maps when it starts.
    fn areas(&self) -> &[Area];

    /// What [`Lane::operations`] counts, in the plural: "edges", "requests".
    fn unit(&self) -> &'static str;

    /// A description with the same areas whose patterns fall where the program's accesses fall, for
    /// machines that want densities; `None` if there is none. It says nothing of their order, nor of
    /// how long they take.
    fn described(&self) -> Option<Workload> {
        None
    }

    /// How many threads it wants; `None` if nothing tells. It runs with any other number too.
    fn threads(&self) -> Option<u32> {
        None
    }

    /// What went wrong while it ran, from outside: its threads ended there. A program that reads a
    /// file as it goes has such things.
    fn failed(&self) -> Option<Error> {
        None
    }

    /// Prepares what [`App::start`] would otherwise, if that takes time: a graph. `on` is told which
    /// share is done, and stops it by `false`; then `false` comes back.
    fn prepare(&self, _on: &mut dyn FnMut(f64) -> bool) -> bool {
        true
    }

    /// Starts it with `lanes` threads; area `i` begins at `bases[i]`. What must be prepared
    /// and was not is prepared here. The machine that asks the lanes in the same order gets the same
    /// accesses.
    fn start(&self, bases: &[u64], seed: u64, lanes: u32) -> Vec<Box<dyn Lane>>;
}

/// A thread of a program.
pub trait Lane: Send {
    /// How long ago the program began, by the clock of whoever runs it, who says so before
    /// [`Lane::next`]. For programs that change with time, such as a client whose hot keys move.
    fn now(&mut self, _since: Duration) {}

    /// Goes on: fills `out`, which is not empty, from its beginning, and says what came of it.
    fn next(&mut self, out: &mut [Touch]) -> Next;

    /// Counts steps that other lanes may wait for and that [`Lane::next`] does not show: coming to
    /// another barrier while it [waits](Next::Waits) already, say. Whoever runs the lanes asks those
    /// that wait again when one of them returns anything but [`Next::Waits`], or this changed.
    fn steps(&self) -> u64 {
        0
    }

    /// Operations completed by the accesses handed out so far. Where operations are short and their
    /// latency matters, the last access of each is marked ([`Touch::last`]).
    fn operations(&self) -> u64;
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// So many accesses (at least one) stand in the buffer.
    Touches(usize),
    /// It calls the system.
    Call(Call),
    /// It waits for the other lanes: ask again when one of them got on.
    Waits,
    /// It has nothing to do until so long after the program began: ask again then. For lanes that
    /// follow the time ([`Lane::now`]).
    Until(Duration),
    /// It is over.
    Ends,
}

/// A call of the system that touches memory or the kernel's view of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The kernel reads or writes pages of a file on the program's behalf: a supervised access,
    /// which marks the page without an ACCESSED bit (`mark_page_accessed`, mm/swap.c).
    File {
        /// First byte.
        at: u64,
        /// How many.
        bytes: u64,
        /// `write` instead of `read`.
        writes: bool,
    },
    /// `mlock` and `munlock`: the pages may not be moved or reclaimed meanwhile.
    Lock {
        /// First byte.
        at: u64,
        /// How many.
        bytes: u64,
        /// Whether they are locked from now on.
        on: bool,
    },
    /// `madvise(MADV_DONTNEED)`: the pages are given back, and come anew with the next access.
    Free {
        /// First byte.
        at: u64,
        /// How many.
        bytes: u64,
    },
}
