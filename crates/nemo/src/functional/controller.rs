//! The pipelines of one controller.

use tierscope_core::BusRecord;

use super::part::Chunk;
use super::pipeline::Pipeline;
use crate::engine::{Control, Line};
use crate::geometry::{Geometry, LINE_WORDS, PAGE_WORDS};
use crate::program::{Chain, Program, capture_slots};
use crate::region::{LineContent, Region};

/// A memory controller with telemetry.
#[derive(Clone, Debug)]
pub struct Controller {
    geometry: Geometry,
    channel_shift: u32,
    pipelines: Vec<Pipeline>,
    /// Requests not yet processed; all pipelines process them before any result is read.
    waiting: Chunk,
    /// Capture page of each channel.
    captured: Vec<[u64; PAGE_WORDS]>,
}

impl Controller {
    /// An idle controller; the address bits from `channel_shift` on select the channel.
    #[must_use]
    pub fn new(geometry: Geometry, channel_shift: u32) -> Self {
        let pipelines = vec![Pipeline::new(geometry.channels); geometry.pipelines];
        let captured = vec![[0; PAGE_WORDS]; geometry.channels];
        Self { geometry, channel_shift, pipelines, waiting: Chunk::default(), captured }
    }

    /// Resources of the controller.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// A pipeline, after all pending requests.
    pub fn pipeline(&mut self, number: usize) -> &Pipeline {
        self.catch_up();
        &self.pipelines[number]
    }

    /// Takes requests, in order.
    pub fn observe(&mut self, mut batch: &[BusRecord]) {
        while !batch.is_empty() {
            let (now, later) = batch.split_at(batch.len().min(self.waiting.room()));
            self.waiting.extend(now, self.channel_shift, self.geometry.channels);
            batch = later;
            if self.waiting.room() == 0 {
                self.catch_up();
            }
        }
    }

    /// Runs the pending requests through all pipelines.
    fn catch_up(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let mut part = std::mem::take(&mut self.waiting);
        let mut next = 0;
        while next < self.pipelines.len() {
            let links = self.chain_from(next);
            match links {
                1 => self.pipelines[next].see(&part),
                _ => self.observe_chain(next..next + links, &part.records),
            }
            next += links;
        }
        part.clear();
        self.waiting = part;
    }

    /// Length of the chain that begins with pipeline `first`; 1 for a single pipeline.
    fn chain_from(&self, first: usize) -> usize {
        let linked = |pipeline: &&Pipeline| {
            pipeline.program().is_some_and(|program| program.chain != Chain::None)
        };
        1 + self.pipelines[first + 1..].iter().take_while(linked).count()
    }

    /// A request that a link drops does not reach the following links.
    fn observe_chain(&mut self, links: std::ops::Range<usize>, batch: &[BusRecord]) {
        let mask = self.geometry.channels - 1;
        for record in batch {
            let channel = (record.address() >> self.channel_shift) as usize & mask;
            let mut value = 0;
            for pipeline in &mut self.pipelines[links.clone()] {
                match pipeline.request(channel, *record, value) {
                    Some(updated) => value = updated,
                    None => break,
                }
            }
        }
    }

    /// Writes to the control registers of a pipeline.
    pub fn control(&mut self, pipeline: usize, control: Control) {
        self.catch_up();
        match control {
            Control::Program(program) => {
                debug_assert!(program.is_none_or(|program| self.has_banks(pipeline, &program)));
                self.pipelines[pipeline].reprogram(program);
            }
            Control::Translate(key, entry) => self.pipelines[pipeline].translate(key, entry),
            Control::Capture { first, count } => self.capture(pipeline, first, count),
            Control::Acknowledge => {
                self.pipelines[pipeline].status.iter_mut().for_each(|status| status.hint = None);
            }
        }
    }

    /// Whether no other pipeline owns a bank of this program.
    #[must_use]
    pub fn has_banks(&self, pipeline: usize, program: &Program) -> bool {
        let others = self.pipelines.iter().enumerate().filter(|(number, _)| *number != pipeline);
        others.filter_map(|(_, other)| other.program()).all(|other| {
            other.first_bank + other.banks <= program.first_bank
                || program.first_bank + program.banks <= other.first_bank
        })
    }

    fn capture(&mut self, pipeline: usize, first: u32, count: u32) {
        let Some(program) = self.pipelines[pipeline].program else { return };
        for (at, (word, lanes)) in capture_slots(&program, first, count).enumerate() {
            for (channel, page) in self.captured.iter_mut().enumerate() {
                if let Some(cell) = page.get_mut(at) {
                    *cell = self.pipelines[pipeline].take(channel, word, lanes);
                }
            }
        }
    }

    /// Loads a line of the telemetry region; zeros beyond its end.
    pub fn load(&mut self, line: u64) -> Line {
        self.catch_up();
        let mut words = [0; LINE_WORDS];
        match Region::of(self.geometry).holds(line) {
            Some(LineContent::Captured { channel, word }) => {
                words.copy_from_slice(&self.captured[channel][word..word + LINE_WORDS]);
            }
            Some(LineContent::States { pipeline, channel, word }) => {
                let pipeline = &self.pipelines[pipeline];
                words = std::array::from_fn(|at| pipeline.word(channel, word + at));
            }
            None => {}
        }
        words
    }

    /// Bitmap of the pipelines that hold a hint.
    pub fn pending(&mut self) -> u64 {
        self.catch_up();
        let holds = |pipeline: &Pipeline| pipeline.status.iter().any(|s| s.hint.is_some());
        let bits = self.pipelines.iter().enumerate().filter(|(_, pipeline)| holds(pipeline));
        bits.fold(0, |bits, (number, _)| bits | 1 << number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::tests::counting;
    use tierscope_core::{Cell, Operand, Operator, ReadEffect, RequestField, Time, Trigger};

    const TINY: Geometry = Geometry { pipelines: 2, channels: 2, banks: 16 };

    fn lines(of: &[u64]) -> Vec<BusRecord> {
        of.iter().map(|line| BusRecord::new(Time(9), line * 64, false)).collect()
    }

    /// A controller whose pages 0 and 1 have states 3 and 4.
    fn two_pages(program: Program) -> Controller {
        let mut controller = Controller::new(TINY, 6);
        controller.control(0, Control::Program(Some(program)));
        controller.control(0, Control::Translate(0, Some(3)));
        controller.control(0, Control::Translate(1, Some(4)));
        controller
    }

    // Lines 0, 2, 64 and 128 are even: channel 0; line 128 is in page 2, which has no entry.
    #[test]
    fn each_channel_counts_its_lines() {
        let mut controller = two_pages(counting());
        controller.observe(&lines(&[0, 1, 2, 3, 5, 64, 65, 128]));
        let channels = [0, 1].map(|channel| controller.pipeline(0).word(channel, 3));
        assert_eq!(channels, [2, 3]);
        assert_eq!(controller.load(Region::of(TINY).states(0, 0, 0)), [0, 0, 0, 2, 1, 0, 0, 0]);
        controller.control(0, Control::Translate(0, None));
        controller.observe(&lines(&[0]));
        assert_eq!(controller.pipeline(0).word(0, 3), 2);
    }

    #[test]
    fn a_capture_resets_and_a_load_does_not() {
        let mut controller = two_pages(counting());
        controller.observe(&lines(&[0, 64, 66]));
        let (states, page) = (Region::of(TINY).states(0, 0, 0), Region::of(TINY).captured(0, 0));
        for _ in 0..3 {
            assert_eq!(controller.load(states)[3..5], [1, 2]);
        }
        controller.control(0, Control::Capture { first: 4, count: 1 });
        for _ in 0..3 {
            assert_eq!(controller.load(page)[0], 2);
        }
        assert_eq!(controller.load(states)[3..5], [1, 0], "only what was captured was reset");
    }

    #[test]
    fn hints_keep_the_first_and_count_the_rest() {
        let trigger = Some(Trigger { compare: tierscope_core::Compare::AtLeast, value: 2 });
        let mut program = counting();
        program.home.trigger = trigger;
        let mut controller = two_pages(program);
        controller.observe(&lines(&[0, 64, 66, 2, 4]));
        let hint = controller.pipeline(0).status(0).hint.unwrap();
        assert_eq!((hint.state, hint.value, hint.time, hint.more), (4, 2, Time(9), 2));
        assert_eq!(controller.pending(), 1);
        controller.control(0, Control::Acknowledge);
        assert_eq!(controller.pending(), 0);
    }

    // The first link counts requests by page, the second sums the squares of both counts: 3
    // requests to page 0 and 2 to page 1 in one channel make 9 + 4.
    #[test]
    fn a_chain_sums_squares() {
        let mut controller = two_pages(counting());
        let squares = Program {
            chain: Chain::SquareStep,
            key: tierscope_core::Key::NONE,
            first_bank: 8,
            ..counting()
        };
        controller.control(1, Control::Program(Some(squares)));
        controller.control(1, Control::Translate(0, Some(7)));
        controller.observe(&lines(&[0, 2, 64, 4, 66, 128]));
        assert_eq!(controller.pipeline(1).word(0, 7), 13);
        assert_eq!(controller.pipeline(1).word(1, 7), 0);
    }

    fn wrap(cell: Cell) -> bool {
        let update = (Operator::Add, Operand::Field(RequestField::Length));
        let side = crate::program::Side { start: 200, effect: ReadEffect::Keep, trigger: None };
        let (operator, operand) = update;
        let program = Program { operator, operand, cell, home: side, ..counting() };
        let mut controller = two_pages(program);
        controller.observe(&lines(&[0]));
        controller.pipeline(0).status(0).wrapped
    }

    #[test]
    fn a_wrapped_counter_sets_its_flag() {
        assert!(wrap(Cell::new(1, false).unwrap()));
        assert!(!wrap(Cell::new(1, true).unwrap()));
        assert!(!wrap(Cell::WORD));
    }
}
