//! One pipeline with all its channels.

use tierscope_core::BusRecord;

use super::batch::Matched;
use crate::engine::Status;
use crate::geometry::{KEYS, WORDS};
use crate::program::{Chain, Program, Slot};

/// A table entry that selects no state: beyond the last state, also with an offset added.
pub(super) const NONE: u16 = u16::MAX;

/// State words for the maximum number of channels.
const PLACES: usize = 8 * WORDS;

/// Table, states and flags of a pipeline.
#[derive(Clone, Debug)]
pub struct Pipeline {
    pub(super) program: Option<Program>,
    pub(super) channels: usize,
    /// The translation table, followed by an entry that is never valid.
    pub(super) table: Box<[u16; KEYS + 1]>,
    /// Words that it owns in each channel.
    owned: usize,
    /// State words of the maximum number of channels, channel 0 first.
    pub(super) words: Box<[u64; PLACES]>,
    pub(super) status: Vec<Status>,
    pub(super) matched: Matched,
}

impl Pipeline {
    /// An idle pipeline.
    #[must_use]
    pub fn new(channels: usize) -> Self {
        let status = vec![Status::default(); channels];
        let table = Box::new([NONE; KEYS + 1]);
        Self {
            program: None,
            channels,
            table,
            owned: 0,
            words: fresh_words(),
            status,
            matched: Matched::default(),
        }
    }

    /// Registers of the current program.
    #[must_use]
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    /// Status of a channel.
    #[must_use]
    pub fn status(&self, channel: usize) -> Status {
        self.status[channel]
    }

    /// A word of state; 0 for words that it does not own.
    #[must_use]
    pub fn word(&self, channel: usize, word: usize) -> u64 {
        if word < self.owned { self.words[channel * WORDS + word] } else { 0 }
    }

    /// Programs all channels.
    pub fn reprogram(&mut self, program: Option<Program>) {
        self.owned = program.map_or(0, |program| program.words());
        for channel in 0..self.channels {
            let fresh = program.map_or(0, |program| program.fresh_word(channel));
            self.words[channel * WORDS..][..self.owned].fill(fresh);
        }
        self.program = program;
        self.table.fill(NONE);
        self.status.fill(Status::default());
    }

    /// Writes a table entry; all channels share one table here.
    pub fn translate(&mut self, key: u16, entry: Option<u32>) {
        // No pipeline has more than 65,535 states: a larger base is equivalent to no entry.
        let entry = entry.and_then(|base| u16::try_from(base).ok());
        self.table[usize::from(key)] = entry.unwrap_or(NONE);
    }

    /// Executes a control operation of one channel; returns the word that was read.
    ///
    /// Programs and table entries are shared by all channels here: they apply to all of them.
    pub fn slot(&mut self, channel: usize, slot: Slot) -> Option<u64> {
        match slot {
            Slot::Program(program) => self.reprogram(program),
            Slot::Translate(key, entry) => self.translate(key, entry),
            Slot::Acknowledge => self.status[channel].hint = None,
            // Without effect; what it would return is `Pipeline::word`.
            Slot::Load { .. } => {}
            Slot::Take { word, lanes } => return Some(self.take(channel, word.into(), lanes)),
        }
        None
    }

    /// Reads a word and captures its counters of `lanes`.
    pub fn take(&mut self, channel: usize, word: usize, lanes: u8) -> u64 {
        let old = self.word(channel, word);
        if let Some(program) = self.program
            && word < self.owned
        {
            let after = program.captured(old, lanes, channel);
            self.words[channel * WORDS + word] = after;
        }
        old
    }

    /// Processes one request by the straightforward path; returns the new value of the updated
    /// state. In a chain, `chained` is the predecessor's result.
    pub fn request(&mut self, channel: usize, request: BusRecord, chained: u64) -> Option<u64> {
        let program = self.program?;
        let entry = |key: usize| Some(self.table[key]).filter(|e| *e != NONE).map(u32::from);
        let state = program.state(request, entry)?;
        let operand = match program.chain {
            Chain::None => program.operand.of(request),
            chain => chain.operand(chained),
        };
        let (word, lane) = program.word_of(state);
        let place = channel * WORDS + word;
        Some(self.update(&program, state, place, lane, operand, request))
    }
}

/// Zero pages, which the host allocates on first touch.
fn fresh_words() -> Box<[u64; PLACES]> {
    let words = vec![0; PLACES].into_boxed_slice();
    words.try_into().unwrap_or_else(|_| unreachable!("it has that length"))
}
