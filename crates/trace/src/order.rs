//! One order of accesses across threads, whatever the container: by time, then by pid and tid, then
//! as the source has them.
//!
//! Formats store the accesses of threads in blocks, in files of their own, or as buffers were
//! flushed. Within [`WINDOW`] accesses these are sorted; an access that comes later than that after
//! its time stays where it is, and is counted. A trace without times keeps its source's order.

use tierscope_core::{Result, Time};

use crate::access::{Access, Batch, Event, Source};

/// Accesses among which the next one is looked for.
pub(crate) const WINDOW: usize = 1 << 18;

/// Pid and tid of a thread.
type Id = (u64, u64);

/// What is sorted: an access, or an event that has its place among a thread's accesses.
#[derive(Debug)]
struct Item {
    time: Time,
    thread: u32,
    what: What,
}

#[derive(Debug)]
enum What {
    Access(Access),
    Event(Box<Event>),
}

/// A source in order of time.
pub(crate) struct ByTime<S> {
    source: S,
    /// Whether the first access that is passed on is the beginning of time.
    from_zero: bool,
    zero: Option<u64>,
    read: Batch,
    /// Read and not yet passed on.
    items: Vec<Item>,
    ids: Vec<Id>,
    /// Time of the last access read of each thread.
    times: Vec<Time>,
    has_times: bool,
    last: Time,
    late: u64,
    ended: bool,
}

impl<S: Source> ByTime<S> {
    /// Sorts `source`.
    pub(crate) fn new(source: S) -> Self {
        Self {
            source,
            from_zero: false,
            zero: None,
            read: Batch::default(),
            items: Vec::new(),
            ids: Vec::new(),
            times: Vec::new(),
            has_times: false,
            last: Time(0),
            late: 0,
            ended: false,
        }
    }

    /// Sorts `source`, and counts time from the first access on: its times are of any clock.
    pub(crate) fn from_zero(source: S) -> Self {
        Self { from_zero: true, ..Self::new(source) }
    }

    /// Reads until there are two windows of items, or the source's error or end. Events that
    /// concern all threads are passed on at once, those that change mappings after all accesses
    /// before.
    fn read(&mut self, out: &mut Batch) -> Result<()> {
        while !self.ended && self.items.len() < 2 * WINDOW {
            self.read.clear();
            let filled = self.source.fill(&mut self.read);
            let Batch { accesses, events } = std::mem::take(&mut self.read);
            let mut from = 0;
            for (at, event) in events {
                self.take(&accesses[from..at]);
                from = at;
                self.event(event, out);
            }
            self.take(&accesses[from..]);
            self.read.accesses = accesses;
            self.ended = !filled?;
        }
        Ok(())
    }

    fn take(&mut self, accesses: &[Access]) {
        for access in accesses {
            let (time, thread) = (access.time, access.thread);
            self.has_times |= time > Time(0);
            if let Some(last) = self.times.get_mut(thread as usize) {
                *last = time;
            }
            self.items.push(Item { time, thread, what: What::Access(*access) });
        }
    }

    fn event(&mut self, event: Event, out: &mut Batch) {
        match &event {
            Event::Thread { number, pid, tid, .. } => {
                let at = *number as usize;
                if self.ids.len() <= at {
                    self.ids.resize(at + 1, (0, 0));
                    self.times.resize(at + 1, Time(0));
                }
                self.ids[at] = (*pid, *tid);
                out.event(event);
            }
            Event::Given { thread, .. } => {
                let thread = *thread;
                let time = self.times.get(thread as usize).copied().unwrap_or_default();
                self.items.push(Item { time, thread, what: What::Event(Box::new(event)) });
            }
            Event::Symbol { .. } => out.event(event),
            Event::Map { .. } | Event::Unmap { .. } => {
                self.pass_on(self.items.len(), out);
                out.event(event);
            }
        }
    }

    /// Passes the first `count` items on, in order.
    fn pass_on(&mut self, count: usize, out: &mut Batch) {
        let ids = &self.ids;
        let id = |thread: u32| ids.get(thread as usize);
        if ids.len() > 1 && self.has_times {
            let key = |item: &Item| (item.time, id(item.thread));
            self.items.sort_by(|a, b| key(a).cmp(&key(b)));
        }
        for Item { time, what, .. } in self.items.drain(..count) {
            self.late += u64::from(time < self.last);
            self.last = self.last.max(time);
            match what {
                What::Event(event) => out.event(*event),
                What::Access(mut access) => {
                    if self.from_zero {
                        let zero = *self.zero.get_or_insert(time.0);
                        access.time = Time(time.0.saturating_sub(zero));
                    }
                    out.push(access);
                }
            }
        }
    }
}

impl<S: Source> Source for ByTime<S> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        let before = (batch.accesses.len(), batch.events.len());
        let read = self.read(batch);
        let is_over = self.ended || read.is_err() && !self.source.go_on();
        let count =
            if is_over { self.items.len() } else { self.items.len().saturating_sub(WINDOW) };
        self.pass_on(count, batch);
        read?;
        Ok((batch.accesses.len(), batch.events.len()) > before)
    }

    fn go_on(&self) -> bool {
        self.source.go_on()
    }

    fn whole(&self) -> bool {
        self.source.whole()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.source.notes();
        if self.late > 0 {
            notes.push(format!(
                "{} accesses come more than {WINDOW} accesses after their time, and stay there",
                self.late
            ));
        }
        notes
    }
}
