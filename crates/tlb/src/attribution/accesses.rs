//! Accesses of a trace, each with its process and the function that made it.

use std::sync::Arc;

use tierscope_core::Access as Touch;
use tierscope_trace::{Batch, Event, Kind};

/// A data access, with its process and the code that made it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Thread, by its number in the trace.
    pub thread: u32,
    /// Its process.
    pub pid: u64,
    /// Address of the data.
    pub address: u64,
    /// Load or store.
    pub access: Touch,
    /// The instruction's address or its function's start, if the trace has it.
    pub from: Option<CodeAddress>,
}

/// Code address of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeAddress {
    /// The address.
    pub address: u64,
    /// The address is a function's start, not an instruction's.
    pub function: bool,
}

/// Consumer of a trace.
pub trait Listener {
    /// An event: a thread, a mapping, a symbol.
    fn event(&mut self, event: &Event);
    /// An allocation by a process.
    fn allocated(&mut self, _pid: u64, _start: u64, _bytes: u64, _site: &Arc<str>) {}
    /// An access to data.
    fn access(&mut self, seen: Seen);
}

/// Process and current code address of each thread.
#[derive(Debug, Default)]
pub struct Threads(Vec<(u64, Option<CodeAddress>)>);

impl Threads {
    /// Passes a batch to a listener: accesses and events, in order.
    pub fn pass(&mut self, batch: &Batch, listener: &mut dyn Listener) {
        let mut at = 0;
        for (before, event) in &batch.events {
            self.accesses(batch, at, *before, listener);
            at = *before;
            if let Event::Thread { number, pid, .. } = event {
                self.of(*number).0 = *pid;
            }
            if let Event::Given { thread, start, bytes, site } = event {
                listener.allocated(self.of(*thread).0, *start, *bytes, site);
            }
            listener.event(event);
        }
        self.accesses(batch, at, batch.accesses.len(), listener);
    }

    fn of(&mut self, thread: u32) -> &mut (u64, Option<CodeAddress>) {
        let at = thread as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, (0, None));
        }
        &mut self.0[at]
    }

    fn accesses(&mut self, batch: &Batch, from: usize, to: usize, listener: &mut dyn Listener) {
        for access in &batch.accesses[from..to] {
            let thread = self.of(access.thread);
            if access.kind == Kind::Fetch {
                thread.1 =
                    Some(CodeAddress { address: access.address, function: access.bytes == 0 });
                continue;
            }
            let (pid, from) = *thread;
            let touch = if access.kind == Kind::Load { Touch::Load } else { Touch::Store };
            let thread = access.thread;
            listener.access(Seen { thread, pid, address: access.address, access: touch, from });
        }
    }
}

/// Several listeners on one pass over a trace.
pub struct All<T>(pub Vec<T>);

impl<T: Listener> Listener for All<T> {
    fn event(&mut self, event: &Event) {
        self.0.iter_mut().for_each(|listener| listener.event(event));
    }

    fn allocated(&mut self, pid: u64, start: u64, bytes: u64, site: &Arc<str>) {
        self.0.iter_mut().for_each(|listener| listener.allocated(pid, start, bytes, site));
    }

    fn access(&mut self, seen: Seen) {
        self.0.iter_mut().for_each(|listener| listener.access(seen));
    }
}
