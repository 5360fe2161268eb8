//! One order of accesses across threads, whatever the container: by time, then by pid and tid, then
//! as the source has them.
//!
//! Formats store the accesses of threads in blocks, in files of their own, or as buffers were
//! flushed. Within [`WINDOW`] accesses these are merged; an access that comes later than that after
//! its time goes first, and is counted. A trace without times keeps its source's order.

use tierscope_core::{Result, Time};

use crate::access::{Access, Batch, Event, Source};

/// Accesses among which the next one is looked for.
pub(crate) const WINDOW: usize = 1 << 18;

/// A thread's accesses that are read and not yet passed on.
#[derive(Debug, Default)]
struct Queue {
    /// Pid and tid.
    id: (u64, u64),
    /// In order of time; those before `at` were passed on.
    accesses: Vec<Access>,
    at: usize,
    /// Events that have their place among the accesses, each with the index of the next access.
    events: Vec<(usize, Event)>,
}

impl Queue {
    /// Sort key of its next access.
    fn next(&self) -> Option<(Time, (u64, u64))> {
        self.accesses.get(self.at).map(|access| (access.time, self.id))
    }

    /// Number of its next accesses that come before `bound`, up to `most`.
    fn before(&self, bound: Option<(Time, (u64, u64))>, most: usize) -> usize {
        let rest = &self.accesses[self.at..];
        let rest = &rest[..rest.len().min(most)];
        let Some((time, id)) = bound else { return rest.len() };
        let is_before = |access: &Access| (access.time, self.id) < (time, id);
        // Runs are short or very long: double the step.
        let mut step = 1;
        while step < rest.len() && is_before(&rest[step]) {
            step *= 2;
        }
        let from = step / 2;
        from + rest[from..rest.len().min(step + 1)].partition_point(is_before)
    }

    /// Forgets what was passed on.
    fn compact(&mut self) {
        let done = std::mem::take(&mut self.at);
        self.accesses.drain(..done);
        self.events.iter_mut().for_each(|(at, _)| *at -= done);
    }
}

/// A source in order of time.
pub(crate) struct ByTime<S> {
    source: S,
    /// Whether the first access that is passed on is the beginning of time.
    from_zero: bool,
    zero: Option<u64>,
    /// Read and not yet passed on, before it is known whether there are times.
    early: Batch,
    /// The queues, by number of the thread; and the number of accesses in them.
    queues: Vec<Queue>,
    waiting: usize,
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
            early: Batch::default(),
            queues: Vec::new(),
            waiting: 0,
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

    /// Reads until there are two windows of accesses, or the source's error or end.
    fn read(&mut self, out: &mut Batch) -> Result<()> {
        let mut read = Batch::default();
        while !self.ended && self.waiting + self.early.accesses.len() < 2 * WINDOW {
            read.clear();
            let filled = self.source.fill(&mut read);
            if !self.has_times {
                self.has_times = read.accesses.iter().any(|access| access.time > Time(0));
                if self.has_times {
                    let early = std::mem::take(&mut self.early);
                    self.take_all(early, out);
                }
            }
            if self.has_times {
                let more = std::mem::take(&mut read);
                read.accesses = self.take_all(more, out);
            } else {
                let before = self.early.accesses.len();
                self.early.accesses.extend_from_slice(&read.accesses);
                let events = read.events.drain(..).map(|(at, event)| (before + at, event));
                self.early.events.extend(events);
            }
            self.ended = !filled?;
        }
        Ok(())
    }

    /// Puts a batch into the queues; returns its buffer. Events that concern all threads are passed
    /// on at once; an event that changes mappings follows all accesses read before it.
    fn take_all(&mut self, batch: Batch, out: &mut Batch) -> Vec<Access> {
        let Batch { mut accesses, events } = batch;
        let mut from = 0;
        for (at, event) in events {
            self.take(&accesses[from..at]);
            from = at;
            self.event(event, out);
        }
        self.take(&accesses[from..]);
        accesses.clear();
        accesses
    }

    fn queue(&mut self, thread: u32) -> &mut Queue {
        let at = thread as usize;
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, Queue::default);
        }
        &mut self.queues[at]
    }

    fn take(&mut self, accesses: &[Access]) {
        self.waiting += accesses.len();
        for run in accesses.chunk_by(|one, next| one.thread == next.thread) {
            self.queue(run[0].thread).accesses.extend_from_slice(run);
        }
    }

    fn event(&mut self, event: Event, out: &mut Batch) {
        match &event {
            Event::Thread { number, pid, tid, .. } => {
                self.queue(*number).id = (*pid, *tid);
                out.event(event);
            }
            Event::Given { thread, .. } => {
                let queue = self.queue(*thread);
                queue.events.push((queue.accesses.len(), event));
            }
            Event::Symbol { .. } => out.event(event),
            Event::Map { .. } | Event::Unmap { .. } => {
                self.pass_on(self.waiting, out);
                out.event(event);
            }
        }
    }

    /// Passes the first `count` accesses of the queues on, in order.
    fn pass_on(&mut self, count: usize, out: &mut Batch) {
        let mut left = count;
        while left > 0 {
            let (mut first, mut second) = (None, None);
            for (number, queue) in self.queues.iter().enumerate() {
                let Some(key) = queue.next() else { continue };
                match first {
                    Some((least, _)) if key >= least => {
                        second = Some(second.map_or(key, |second| key.min(second)));
                    }
                    _ => {
                        second = first.map(|(least, _)| least);
                        first = Some((key, number));
                    }
                }
            }
            let Some((_, number)) = first else { break };
            // The least one comes in any case: threads may have the same id.
            let run = self.queues[number].before(second, left).max(1);
            self.pass_run(number, run, out);
            left -= run;
        }
        self.waiting -= count - left;
        self.queues.iter_mut().for_each(Queue::compact);
    }

    /// Passes the next `count` accesses of a queue on, and the events before them.
    fn pass_run(&mut self, number: usize, count: usize, out: &mut Batch) {
        let queue = &mut self.queues[number];
        let end = queue.at + count;
        let before = out.accesses.len();
        let events = queue.events.partition_point(|(at, _)| *at < end);
        for (at, event) in queue.events.drain(..events) {
            out.accesses.extend_from_slice(&queue.accesses[queue.at..at]);
            queue.at = at;
            out.event(event);
        }
        out.accesses.extend_from_slice(&queue.accesses[queue.at..end]);
        queue.at = end;
        let run = &mut out.accesses[before..];
        let [first, last] = [run[0].time, run[run.len() - 1].time];
        if first < self.last {
            self.late += run.iter().filter(|access| access.time < self.last).count() as u64;
        }
        self.last = self.last.max(last);
        if self.from_zero {
            let zero = *self.zero.get_or_insert(first.0);
            run.iter_mut().for_each(|access| access.time.0 = access.time.0.saturating_sub(zero));
        }
    }

    /// Passes what was read before there were times on, in the source's order.
    fn pass_early(&mut self, out: &mut Batch) {
        let before = out.accesses.len();
        let Batch { accesses, events } = std::mem::take(&mut self.early);
        out.accesses.extend_from_slice(&accesses);
        for (at, event) in events {
            if let Event::Thread { number, pid, tid, .. } = &event {
                self.queue(*number).id = (*pid, *tid);
            }
            out.events.push((before + at, event));
        }
    }
}

impl<S: Source> Source for ByTime<S> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        let before = (batch.accesses.len(), batch.events.len());
        let read = self.read(batch);
        let is_over = self.ended || read.is_err() && !self.source.go_on();
        let count = if is_over { self.waiting } else { self.waiting.saturating_sub(WINDOW) };
        self.pass_on(count, batch);
        if is_over || self.early.accesses.len() >= WINDOW {
            self.pass_early(batch);
        }
        if is_over {
            let rest = self.queues.iter_mut().flat_map(|queue| queue.events.drain(..));
            rest.for_each(|(_, event)| batch.event(event));
        }
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
                "{} accesses come more than {WINDOW} accesses after their time, and are late",
                self.late
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A source of batches.
    struct Batches(std::vec::IntoIter<Batch>);

    impl Source for Batches {
        fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
            let Some(next) = self.0.next() else { return Ok(false) };
            let before = batch.accesses.len();
            batch.accesses.extend(next.accesses);
            batch.events.extend(next.events.into_iter().map(|(at, event)| (before + at, event)));
            Ok(true)
        }
    }

    fn thread(number: u32, tid: u64) -> Event {
        Event::Thread { number, pid: 0, tid, name: "".into() }
    }

    proptest! {
        // Threads 0 to 3 have tids 9 to 6. Blocks of their accesses, in any order across threads:
        // merged, they are as sorted by time and tid, and an allocation stays before the access of
        // its thread that follows it.
        #[test]
        fn blocks_are_merged_by_time_and_tid(
            blocks in prop::collection::vec((0u32..4, 0u64..3, 1usize..6, any::<bool>()), 1..40),
        ) {
            let mut nows = [1; 4];
            let (mut batches, mut expected) = (Vec::new(), Vec::new());
            let threads = (0..4).map(|number| (0, thread(number, 9 - u64::from(number)))).collect();
            batches.push(Batch { accesses: Vec::new(), events: threads });
            for (number, (thread, step, count, gives)) in blocks.into_iter().enumerate() {
                let mut batch = Batch::default();
                for index in 0..count {
                    nows[thread as usize] += step;
                    let address = (number * 8 + index) as u64;
                    if gives && index == 0 {
                        let (start, bytes, site) = (address, 1, "".into());
                        batch.event(Event::Given { thread, start, bytes, site });
                    }
                    let time = Time(nows[thread as usize]);
                    batch.push(Access { address, time, thread, ..Access::default() });
                }
                expected.extend(batch.accesses.clone());
                batches.push(batch);
            }
            expected.sort_by_key(|access| (access.time, 9 - access.thread));
            let mut source = ByTime::new(Batches(batches.into_iter()));
            let mut all = Batch::default();
            crate::access::read_all(&mut source, &mut all).unwrap();
            prop_assert_eq!(&all.accesses, &expected);
            for (at, event) in &all.events {
                if let Event::Given { start, thread, .. } = event {
                    let next = all.accesses[*at..].iter().find(|access| access.thread == *thread);
                    prop_assert_eq!(next.unwrap().address, *start);
                }
            }
        }
    }

    #[test]
    fn without_times_the_order_is_the_source_s() {
        let access = |thread, address| Access { address, thread, ..Access::default() };
        let accesses = vec![access(1, 5), access(0, 6), access(1, 7)];
        let events = vec![(0, thread(0, 2)), (0, thread(1, 1))];
        let batch = Batch { accesses: accesses.clone(), events };
        let mut source = ByTime::new(Batches(vec![batch].into_iter()));
        let mut all = Batch::default();
        crate::access::read_all(&mut source, &mut all).unwrap();
        assert_eq!(all.accesses, accesses);
    }
}
