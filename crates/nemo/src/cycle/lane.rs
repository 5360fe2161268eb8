//! A lane, that is one channel of a pipeline, modelled cycle by cycle.
//!
//! ```text
//!           ┌────────┐   match    select    update    write back
//! request ──▶ queue  ├──▶ [1] ──▶ [2] ──▶ [3] ──▶ [4] ──▶ states
//! control ──────────────┘  │ table  │ state │ ▲       │
//!                          └ SRAM ──┘ SRAM ─┘ └───────┴ forwarding
//! ```
//!
//! In each cycle one request or control operation enters stage 1, which reads the translation
//! table; stage 2 adds the offset and reads the state SRAM; stage 3 updates; stage 4 writes back.
//! The result of stage 3 reaches SRAM too late for the next two operations: they get it forwarded
//! from stage 4, or from stage 4's previous write. So there are no stalls and no lost updates,
//! however closely updates and reads of one state follow each other.
//!
//! A load of the telemetry region comes over the channel like a request and takes a slot of the
//! stages: it finds all updates before it, and with none in between a lane delivers a line a cycle.
//!
//! At most one request arrives per cycle, and none waits unless a control operation takes a slot. A
//! control operation takes a slot without a request, or the next slot when its patience ends
//! ([`Arbiter`]); requests then wait in the queue, and a request that finds the queue full is
//! dropped and counted. The rates leave headroom: a DDR4-2400 channel (JESD79-4: 19.2 GB/s) serves
//! at most 300 million lines per second, the prototype's pipeline takes 400 million (NEMO, section
//! 4: 400 MHz).

use std::collections::VecDeque;

use super::ports::{CompletedUpdate, Granted, In, Out, Request};
use super::sram::Sram;
use crate::engine::Status;
use crate::geometry::{KEYS, LINE_WORDS, WORDS};
use crate::program::{Chain, Hint, Program, Slot};

/// Arbitration between requests and control operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arbiter {
    /// Capacity of the request queue.
    pub queue: usize,
    /// Cycles that a control operation yields to requests.
    pub patience: u32,
}

/// Neither value is in the paper: both are assumed. At the rates above a queue of one entry would
/// do; with a patience of 64 cycles the capture of a page takes at most 83 µs at 400 MHz, however
/// busy the channel is. A test varies both to show what depends on them.
impl Default for Arbiter {
    fn default() -> Self {
        Self { queue: 8, patience: 64 }
    }
}

/// An operation in the stages.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A request; its state is known after stage 2.
    Update { request: Request, state: Option<u32> },
    /// Reads a word and captures some of its lanes.
    Take { word: u16, lanes: u8 },
    /// Clears the hint.
    Acknowledge,
    /// Reads a line of words.
    Load { line: u16 },
}

/// A word to be written to the state SRAM.
#[derive(Clone, Copy, Debug)]
struct PendingWrite {
    word: usize,
    value: u64,
}

/// One channel of a pipeline.
#[derive(Clone, Debug)]
pub struct Lane {
    channel: usize,
    arbiter: Arbiter,
    program: Option<Program>,
    table: Sram<Option<u32>>,
    /// Word n is in column n % 8, so that a line is a row: one word of each column.
    states: [Sram<u64>; LINE_WORDS],
    queue: VecDeque<Request>,
    /// Input of stages 2 and 3.
    select: Option<Op>,
    update: Option<Op>,
    /// Result of stage 3 for stage 4; the word that stage 4 writes in this cycle; the one it wrote
    /// before.
    back: Option<PendingWrite>,
    written: Option<PendingWrite>,
    earlier: Option<PendingWrite>,
    waited: u32,
    /// The next cell to initialise after programming.
    clearing: Option<usize>,
    status: Status,
    /// Disabled only by the test that shows it is needed.
    forwarding: bool,
}

impl Lane {
    /// An idle lane.
    #[must_use]
    pub fn new(channel: usize) -> Self {
        Self::with(channel, Arbiter::default())
    }

    /// An idle lane with another arbitration.
    #[must_use]
    pub fn with(channel: usize, arbiter: Arbiter) -> Self {
        Self {
            channel,
            arbiter,
            program: None,
            table: Sram::new(KEYS, None),
            states: std::array::from_fn(|_| Sram::new(WORDS / LINE_WORDS, 0)),
            queue: VecDeque::with_capacity(arbiter.queue),
            select: None,
            update: None,
            back: None,
            written: None,
            earlier: None,
            waited: 0,
            clearing: None,
            status: Status::default(),
            forwarding: true,
        }
    }

    /// Status registers of the lane.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Registers of the current program.
    #[must_use]
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    /// Whether no operation is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_drained() && self.queue.is_empty() && self.clearing.is_none()
    }

    fn is_drained(&self) -> bool {
        self.select.is_none() && self.update.is_none() && self.back.is_none()
    }

    /// A word of state of an idle lane; 0 for words that it does not own.
    #[must_use]
    pub fn word(&self, word: usize) -> u64 {
        let owned = self.program.map_or(0, |program| program.words());
        if word < owned { self.states[word % LINE_WORDS].peek(word / LINE_WORDS) } else { 0 }
    }

    /// Simulates one cycle.
    pub fn clock(&mut self, input: In) -> Out {
        let mut out = Out::default();
        self.write_back();
        self.update(&mut out);
        self.select();
        match self.clearing {
            Some(cell) => self.clear(cell),
            None => self.enter(input, &mut out),
        }
        self.table.edge();
        self.states.iter_mut().for_each(Sram::edge);
        out
    }

    /// Stage 4: write back.
    fn write_back(&mut self) {
        self.earlier = self.written;
        self.written = self.back.take();
        if let Some(PendingWrite { word, value }) = self.written {
            self.states[word % LINE_WORDS].write(word / LINE_WORDS, value);
        }
    }

    /// The word for stage 3. Its SRAM read was issued in the previous cycle, before the writes of
    /// the two preceding operations had reached the SRAM.
    fn fetched(&self, word: usize) -> u64 {
        let newest = [self.written, self.earlier].into_iter().flatten().find(|w| w.word == word);
        match newest {
            Some(written) if self.forwarding => written.value,
            _ => self.states[word % LINE_WORDS].out(),
        }
    }

    /// Stage 3: update.
    fn update(&mut self, out: &mut Out) {
        let (Some(program), Some(op)) = (self.program, self.update.take()) else { return };
        match op {
            Op::Acknowledge => self.status.hint = None,
            Op::Take { word, lanes } => {
                let word = usize::from(word);
                let inside = word < program.words();
                let old = if inside { self.fetched(word) } else { 0 };
                out.taken = Some(old);
                if inside {
                    let value = program.captured(old, lanes, self.channel);
                    self.back = Some(PendingWrite { word, value });
                }
            }
            Op::Load { line } => {
                let first = usize::from(line) * LINE_WORDS;
                let owned = first < program.words();
                let word = |at: usize| if owned { self.fetched(first + at) } else { 0 };
                out.line = Some(std::array::from_fn(word));
            }
            Op::Update { request, state } => {
                let Some(state) = state else { return };
                out.ended = Some(self.update_state(&program, request, state));
            }
        }
    }

    fn update_state(&mut self, program: &Program, request: Request, state: u32) -> CompletedUpdate {
        let (word, lane) = program.word_of(state);
        let operand = match program.chain {
            Chain::None => program.operand.of(request.record),
            chain => chain.operand(request.chained.unwrap_or(0)),
        };
        let made = program.update(self.fetched(word), lane, operand, self.channel);
        self.back = Some(PendingWrite { word, value: made.word });
        self.status.wrapped |= made.wrapped;
        if made.triggered {
            Hint::latch(&mut self.status.hint, state, made.value, request.record.time());
        }
        CompletedUpdate {
            request,
            state,
            value: made.value,
            triggered: made.triggered,
            wrapped: made.wrapped,
        }
    }

    /// Stage 2: takes the table's answer and reads the state SRAM.
    fn select(&mut self) {
        let (Some(program), Some(op)) = (self.program, self.select.take()) else { return };
        self.update = match op {
            Op::Update { request, .. } => {
                let state = program.state(request.record, |_| self.table.out());
                state.map(|state| {
                    self.read(program.word_of(state).0);
                    Op::Update { request, state: Some(state) }
                })
            }
            Op::Take { word, .. } => {
                if usize::from(word) < program.words() {
                    self.read(word.into());
                }
                Some(op)
            }
            Op::Load { line } => {
                let first = usize::from(line) * LINE_WORDS;
                if first < program.words() {
                    (first..first + LINE_WORDS).for_each(|word| self.read(word));
                }
                Some(op)
            }
            Op::Acknowledge => Some(op),
        };
    }

    fn read(&mut self, word: usize) {
        self.states[word % LINE_WORDS].read(word / LINE_WORDS);
    }

    /// Stage 1: chooses the next operation and reads the table.
    fn enter(&mut self, input: In, out: &mut Out) {
        if let Some(slot) = input.control
            && self.control_goes(slot, input.request.is_some())
        {
            self.waited = 0;
            out.granted = Granted::Control;
            self.enter_control(slot);
            self.enqueue(input.request, out);
            return;
        }
        self.waited += u32::from(input.control.is_some());
        // Programming waits until the stages have drained: no operation enters meanwhile.
        let drains = matches!(input.control, Some(Slot::Program(_))) && self.is_urgent();
        let first = if drains { None } else { self.queue.pop_front() };
        match first {
            Some(first) => {
                self.enqueue(input.request, out);
                self.enter_request(first, out);
            }
            None if drains => self.enqueue(input.request, out),
            None => {
                if let Some(request) = input.request.filter(|_| self.program.is_some()) {
                    self.enter_request(request, out);
                }
            }
        }
    }

    fn is_urgent(&self) -> bool {
        self.waited >= self.arbiter.patience
    }

    fn control_goes(&self, slot: Slot, request: bool) -> bool {
        let free = (self.queue.is_empty() && !request) || self.is_urgent();
        match slot {
            Slot::Program(_) => self.is_drained() && (free || self.program.is_none()),
            _ => free,
        }
    }

    fn enter_control(&mut self, slot: Slot) {
        match slot {
            Slot::Program(program) => {
                // Queued requests were meant for the old program.
                self.queue.clear();
                self.program = program;
                self.status = Status::default();
                (self.written, self.earlier) = (None, None);
                self.clearing = program.map(|_| 0);
            }
            Slot::Translate(key, entry) => self.table.write(key.into(), entry),
            Slot::Take { word, lanes } if self.program.is_some() => {
                self.select = Some(Op::Take { word, lanes });
            }
            Slot::Acknowledge if self.program.is_some() => self.select = Some(Op::Acknowledge),
            Slot::Load { line } if self.program.is_some() => self.select = Some(Op::Load { line }),
            Slot::Take { .. } | Slot::Acknowledge | Slot::Load { .. } => {}
        }
    }

    fn enter_request(&mut self, request: Request, out: &mut Out) {
        out.granted = Granted::Request(request);
        let Some(program) = self.program else { return };
        if let Some(entry) = program.entry(request.record) {
            self.table.read(entry);
        }
        self.select = Some(Op::Update { request, state: None });
    }

    fn enqueue(&mut self, request: Option<Request>, out: &mut Out) {
        let Some(request) = request.filter(|_| self.program.is_some()) else { return };
        if self.queue.len() >= self.arbiter.queue {
            out.dropped = true;
            self.status.dropped += 1;
        } else {
            self.queue.push_back(request);
        }
    }

    /// After programming, one cell of the table and one of the states are initialised per cycle;
    /// meanwhile requests are ignored, as by an idle lane.
    fn clear(&mut self, cell: usize) {
        let fresh = self.program.map_or(0, |program| program.fresh_word(self.channel));
        if cell < KEYS {
            self.table.write(cell, None);
        }
        if cell < WORDS {
            self.states[cell % LINE_WORDS].write(cell / LINE_WORDS, fresh);
        }
        self.clearing = Some(cell + 1).filter(|next| *next < KEYS.max(WORDS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::tests::counting;
    use proptest::prelude::*;
    use tierscope_core::{BusRecord, Time};

    /// A lane that counts pages 0..8 in states 0..8.
    fn lane() -> Lane {
        lane_with(Arbiter::default())
    }

    fn lane_with(arbiter: Arbiter) -> Lane {
        let mut lane = Lane::with(0, arbiter);
        control(&mut lane, Slot::Program(Some(counting())));
        (0..8).for_each(|key| control(&mut lane, Slot::Translate(key, Some(key.into()))));
        lane
    }

    fn control(lane: &mut Lane, slot: Slot) {
        while lane.clock(In { request: None, control: Some(slot) }).granted != Granted::Control {}
        idle(lane, &mut Vec::new());
    }

    fn idle(lane: &mut Lane, taken: &mut Vec<u64>) {
        while !lane.is_idle() {
            taken.extend(lane.clock(In::default()).taken);
        }
    }

    fn page(page: u64) -> In {
        In { request: Some(BusRecord::new(Time(1), page << 12, false).into()), control: None }
    }

    #[test]
    fn one_request_a_cycle_forever() {
        let mut lane = lane();
        for n in 0..10_000u64 {
            let out = lane.clock(page(n % 8));
            assert!(matches!(out.granted, Granted::Request(_)) && !out.dropped);
            // Stage 3 ends two cycles after stage 1 began, whatever preceded.
            assert_eq!(out.ended.is_some(), n >= 2, "{n}");
        }
        idle(&mut lane, &mut Vec::new());
        assert_eq!([0, 7].map(|word| lane.word(word)), [1250, 1250]);
    }

    // Updates of one state at every distance at which SRAM is still stale, and one beyond.
    fn updates_at_distance(lane: &mut Lane, distance: u64) -> u64 {
        for _ in 0..10 {
            lane.clock(page(0));
            for other in 1..distance {
                lane.clock(page(other));
            }
        }
        idle(lane, &mut Vec::new());
        lane.word(0)
    }

    #[test]
    fn close_updates_need_forwarding() {
        for distance in 1..=4 {
            assert_eq!(updates_at_distance(&mut lane(), distance), 10, "{distance}");
            let mut bare = lane();
            bare.forwarding = false;
            let counted = updates_at_distance(&mut bare, distance);
            assert_eq!(counted < 10, distance <= 2, "{distance}: {counted}");
        }
    }

    // A read directly after an update or directly before one; the prototype loses a count when a
    // control read directly follows an increment.
    #[test]
    fn a_read_right_after_an_update_and_right_before_one() {
        for gap in 0..4 {
            let mut lane = lane();
            let mut taken = Vec::new();
            lane.clock(page(0));
            for _ in 0..gap {
                lane.clock(In::default());
            }
            let take = In { request: None, control: Some(Slot::Take { word: 0, lanes: 1 }) };
            taken.extend(lane.clock(take).taken);
            taken.extend(lane.clock(page(0)).taken);
            taken.extend(lane.clock(page(0)).taken);
            idle(&mut lane, &mut taken);
            assert_eq!((taken, lane.word(0)), (vec![1], 2), "{gap} cycles later");
        }
    }

    // Loads in every cycle, while requests are in the stages: each line has all that came before.
    #[test]
    fn a_line_is_loaded_each_cycle_with_the_newest_states() {
        let mut lane = lane();
        let load = In { request: None, control: Some(Slot::Load { line: 0 }) };
        let mut first_words = Vec::new();
        for input in [page(0), load, page(0), page(1), load, load, load, In::default()] {
            first_words.extend(lane.clock(input).line.map(|line| (line[0], line[1])));
        }
        first_words.extend(lane.clock(In::default()).line.map(|line| (line[0], line[1])));
        assert_eq!(first_words, [(1, 0), (2, 1), (2, 1), (2, 1)]);
        let beyond = In { request: None, control: Some(Slot::Load { line: 1024 }) };
        lane.clock(beyond);
        lane.clock(In::default());
        assert_eq!(lane.clock(In::default()).line, Some([0; 8]));
    }

    #[test]
    fn a_control_operation_waits_for_a_free_cycle_but_not_forever() {
        let mut lane = lane();
        let take = Some(Slot::Take { word: 0, lanes: 0 });
        let mut waited = 0;
        while lane.clock(In { control: take, ..page(0) }).granted != Granted::Control {
            waited += 1;
        }
        assert_eq!(waited, Arbiter::default().patience);
        assert_eq!(lane.clock(In { control: take, ..In::default() }).granted, {
            // The request that was delayed by the control operation enters now.
            Granted::Request(page(0).request.unwrap())
        });
    }

    /// Issues requests in `busy` of 4 cycles while 12 control operations are issued at full rate;
    /// returns the number of dropped requests and of executed control operations.
    fn dropped(arbiter: Arbiter, busy: u32) -> (u64, u64) {
        let mut lane = lane_with(arbiter);
        let take = Some(Slot::Take { word: 7, lanes: 0 });
        let (mut dropped, mut controls, mut requests) = (0, 0, 0);
        for cycle in 0..12 * (arbiter.patience + 1) {
            let request = page(0).request.filter(|_| cycle % 4 < busy);
            requests += u64::from(request.is_some());
            let out = lane.clock(In { control: take, request });
            dropped += u64::from(out.dropped);
            controls += u64::from(out.granted == Granted::Control);
        }
        idle(&mut lane, &mut Vec::new());
        assert_eq!(lane.status().dropped, dropped, "what is dropped is counted");
        assert_eq!(lane.word(0) + dropped, requests, "and nothing else is missing");
        (dropped, controls)
    }

    // The two assumed values: with any of them no request is lost at three requests in four cycles,
    // the limit of DRAM. At full rate each control operation takes up an entry of the queue.
    #[test]
    fn queue_and_patience_matter_only_at_full_rate() {
        for (queue, patience) in [(1, 64), (8, 64), (64, 64), (8, 4), (8, 16), (8, 1000)] {
            let arbiter = Arbiter { queue, patience };
            assert_eq!(dropped(arbiter, 3).0, 0, "{arbiter:?}");
            assert_eq!(
                dropped(arbiter, 4),
                (12u64.saturating_sub(queue as u64), 12),
                "{arbiter:?}"
            );
        }
    }

    #[test]
    fn a_new_program_finds_everything_fresh() {
        let mut lane = lane();
        lane.clock(page(0));
        control(&mut lane, Slot::Program(Some(counting())));
        lane.clock(page(0));
        idle(&mut lane, &mut Vec::new());
        assert_eq!(lane.word(0), 0, "no entry is left of the old table");
    }

    proptest! {
        /// Fixed latency: the end of an update depends neither on its address nor on any state, so
        /// that there is no timing side channel.
        #[test]
        fn time_does_not_depend_on_data(pages in prop::collection::vec(0..8u64, 3..60)) {
            let mut lane = lane();
            for (n, number) in pages.iter().enumerate() {
                let ended = lane.clock(page(*number)).ended;
                let expected = n.checked_sub(2).map(|earlier| pages[earlier] as u32);
                prop_assert_eq!(ended.map(|ended| ended.state), expected);
            }
        }
    }
}
