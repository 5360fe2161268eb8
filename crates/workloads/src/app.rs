//! Programs that really compute: a graph kernel, a key-value store, a recorded trace.
//!
//! A [`crate::Workload`] describes accesses by patterns. An [`App`] produces them: it computes its
//! own result, and each of its threads hands out, in order, the accesses that the computation
//! needs. Like a description it drives any kind of simulated machine, and the same bases and seed
//! give the same accesses.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::Error;

use crate::description::Area;
use crate::{Touch, Workload};

/// A program, ready to be started any number of times.
pub trait App: Debug + Send + Sync {
    /// Name for messages: the kernel and its input.
    fn name(&self) -> &str;

    /// The memory that the program maps when it starts.
    fn areas(&self) -> &[Area];

    /// What [`Lane::operations`] counts, in the plural: "edges", "requests".
    fn unit(&self) -> &'static str;

    /// A description with the same areas whose patterns fall where the program's accesses fall, for
    /// machines that work on densities; `None` if there is none. It covers neither the order of
    /// accesses nor their duration.
    fn described(&self) -> Option<Workload> {
        None
    }

    /// Number of threads that the program requests; `None` by default. It runs with any other
    /// number too.
    fn threads(&self) -> Option<u32> {
        None
    }

    /// The external error that ended the program's threads early, such as a read error of a program
    /// that streams a file.
    fn failed(&self) -> Option<Error> {
        None
    }

    /// The parts of a program that does one thing after the other at fixed times, in order.
    fn phases(&self) -> Vec<Phase> {
        Vec::new()
    }

    /// The same program on data drawn from another seed, `shift` above its own; `None` for one
    /// whose data are the same under all seeds, or are drawn from the seed of [`App::start`].
    fn reseeded(&self, _shift: u64) -> Option<Arc<dyn App>> {
        None
    }

    /// Prepares what [`App::start`] would otherwise prepare, if that takes long: a graph. `on`
    /// receives the share that is done, and returns `false` to stop; then `false` is returned.
    fn prepare(&self, _on: &mut dyn FnMut(f64) -> bool) -> bool {
        true
    }

    /// Starts the program with `lanes` threads; area `i` begins at `bases[i]`. Prepares it if
    /// [`App::prepare`] has not. A machine that steps the lanes in the same order gets the same
    /// accesses.
    fn start(&self, bases: &[u64], seed: u64, lanes: u32) -> Vec<Box<dyn Lane>>;
}

/// A part of a program's run ([`App::phases`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Name: `load`, `a`.
    pub name: String,
    /// Time after the program's begin at which it starts.
    pub from: Duration,
    /// Time after the program's begin at which it ends.
    pub to: Duration,
}

/// A thread of a program.
pub trait Lane: Send {
    /// Sets the time since the program began, by the clock of the machine that runs it, before
    /// [`Lane::next`]. For programs that change with time, such as a client whose hot keys move.
    fn now(&mut self, _since: Duration) {}

    /// Continues: fills `out`, which is not empty, from its beginning, and returns the lane's next
    /// action.
    fn next(&mut self, out: &mut [Touch]) -> Next;

    /// Counts steps that other lanes may wait for and that [`Lane::next`] does not show: for
    /// example, reaching another barrier while the lane is [waiting](Next::Waits) already. The
    /// machine steps waiting lanes again when another lane returns anything but [`Next::Waits`], or
    /// its count changed.
    fn steps(&self) -> u64 {
        0
    }

    /// Operations completed by the accesses handed out so far. Where operations are short and their
    /// latency matters, the last access of each is marked ([`Touch::last`]).
    fn operations(&self) -> u64;
}

/// The next action of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// That number of accesses (at least one) are in the buffer.
    Touches(usize),
    /// The thread makes a system call.
    Call(Call),
    /// The thread waits for other lanes: step it again when one of them made progress.
    Waits,
    /// The thread is idle until that time after the program's begin: step it again then. For lanes
    /// that follow the time ([`Lane::now`]).
    Until(Duration),
    /// The thread has ended.
    Ends,
}

/// A system call that touches memory or changes the kernel's view of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The kernel reads or writes pages of a file on the program's behalf: a supervised access,
    /// which marks the page without an ACCESSED bit (`mark_page_accessed`, mm/swap.c).
    File {
        /// First address of the program's buffer.
        at: u64,
        /// Length of the buffer in bytes.
        bytes: u64,
        /// Whether the call is `write` rather than `read`.
        writes: bool,
    },
    /// `mlock` and `munlock`: locked pages may not be moved or reclaimed.
    Lock {
        /// First address of the range.
        at: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// `mlock` rather than `munlock`.
        on: bool,
    },
    /// `madvise(MADV_DONTNEED)`: the pages are freed, and the next access faults in new ones.
    Free {
        /// First address of the range.
        at: u64,
        /// Length of the range in bytes.
        bytes: u64,
    },
}
