//! The telemetry region: memory that a controller answers from its SRAM.
//!
//! States are loaded, a cache line of eight words at a time, through a cacheable region, because
//! that is as fast as memory (NEMO, section 4). Two things follow.
//!
//! - What the host's cache holds of it is old: the driver invalidates a line before it loads it.
//! - Caches fetch lines that nobody asked for, drop them, and fetch them again. So **no load ever has
//!   an effect**. Reading with effect is in two steps: the driver writes a control register, upon
//!   which the controller *captures* up to a page of states of each channel, one a slot of the
//!   pipeline, each with the rule's read effect in the same slot; then the driver loads the
//!   *capture page*, as often as caches please. A page per channel and controller suffices for all
//!   pipelines; the prototype, whose loads have effects, has none.
//!
//! Lines in order: the states, by pipeline, then by line of its words, channels in turns as of any
//! memory; behind them the capture page, channels in turns.

use crate::geometry::{Geometry, LINE_WORDS, PAGE_WORDS, WORDS};

/// What a line of the region holds, from that word on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holds {
    /// States of a pipeline as they are.
    States {
        /// The pipeline.
        pipeline: usize,
        /// The channel.
        channel: usize,
        /// Its first word.
        word: usize,
    },
    /// Captured words.
    Captured {
        /// The channel.
        channel: usize,
        /// Its first word.
        word: usize,
    },
}

/// Where things lie in the region of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    geometry: Geometry,
}

impl Region {
    /// The region of a controller.
    #[must_use]
    pub fn of(geometry: Geometry) -> Self {
        Self { geometry }
    }

    /// The line of a pipeline's word.
    #[must_use]
    pub fn states(&self, pipeline: usize, channel: usize, word: usize) -> u64 {
        let line = pipeline * (WORDS / LINE_WORDS) + word / LINE_WORDS;
        (line * self.geometry.channels + channel) as u64
    }

    /// The line of a captured word.
    #[must_use]
    pub fn captured(&self, channel: usize, word: usize) -> u64 {
        let states = self.states(self.geometry.pipelines, 0, 0);
        states + (word / LINE_WORDS * self.geometry.channels + channel) as u64
    }

    /// Lines of the region.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.captured(0, PAGE_WORDS)
    }

    /// What a line holds; `None` beyond the region.
    #[must_use]
    pub fn holds(&self, line: u64) -> Option<Holds> {
        if line >= self.lines() {
            return None;
        }
        let channels = self.geometry.channels as u64;
        let channel = (line % channels) as usize;
        let states = self.states(self.geometry.pipelines, 0, 0);
        if line >= states {
            let word = ((line - states) / channels) as usize * LINE_WORDS;
            return Some(Holds::Captured { channel, word });
        }
        let word = (line / channels) as usize * LINE_WORDS;
        Some(Holds::States { pipeline: word / WORDS, channel, word: word % WORDS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_found_again() {
        let region = Region::of(Geometry { pipelines: 3, channels: 2, banks: 24 });
        for line in 0..region.lines() {
            let again = match region.holds(line).unwrap() {
                Holds::States { pipeline, channel, word } => region.states(pipeline, channel, word),
                Holds::Captured { channel, word } => region.captured(channel, word),
            };
            assert_eq!(again, line);
        }
        assert_eq!([region.lines(), u64::MAX].map(|line| region.holds(line)), [None, None]);
        // Three pipelines of 64 KiB in two channels, and a page of 4 KiB in each.
        assert_eq!(region.lines() * 64, 3 * 2 * (64 << 10) + 2 * (4 << 10));
    }
}
