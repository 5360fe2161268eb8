//! The telemetry region: memory-mapped access to a controller's SRAM.
//!
//! States are loaded by cache lines of eight words, through a cacheable region, because that is as
//! fast as memory (NEMO, section 4). Two things follow.
//!
//! - Lines in the host's cache are stale: the driver invalidates a line before it loads it.
//! - Caches prefetch lines, evict them, and fetch them again. So **no load ever has an effect**.
//!   Reading with effect is in two steps: the driver writes a control register, upon which the
//!   controller *captures* up to a page of states of each channel, one per slot of the pipeline,
//!   each with the rule's read effect in the same slot; then the driver loads the *capture page*,
//!   repeatedly if caches need it. One page per channel and controller suffices for all pipelines;
//!   the prototype, whose loads have effects, has none.
//!
//! Order of the lines: the states, by pipeline, then by line of its words, interleaved between
//! channels like memory; then the capture page, interleaved between channels.

use crate::geometry::{Geometry, LINE_WORDS, PAGE_WORDS, WORDS};

/// Content of a line of the region, from the given word on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineContent {
    /// Current states of a pipeline.
    States {
        /// Number of the pipeline.
        pipeline: usize,
        /// Number of the channel.
        channel: usize,
        /// First word of the line.
        word: usize,
    },
    /// Captured words.
    Captured {
        /// Number of the channel.
        channel: usize,
        /// First word of the line.
        word: usize,
    },
}

/// Layout of a controller's telemetry region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    geometry: Geometry,
}

impl Region {
    /// The region of a controller of that geometry.
    #[must_use]
    pub fn of(geometry: Geometry) -> Self {
        Self { geometry }
    }

    /// The line that holds a state word.
    #[must_use]
    pub fn states(&self, pipeline: usize, channel: usize, word: usize) -> u64 {
        let line = pipeline * (WORDS / LINE_WORDS) + word / LINE_WORDS;
        (line * self.geometry.channels + channel) as u64
    }

    /// The line that holds a captured word.
    #[must_use]
    pub fn captured(&self, channel: usize, word: usize) -> u64 {
        let states = self.states(self.geometry.pipelines, 0, 0);
        states + (word / LINE_WORDS * self.geometry.channels + channel) as u64
    }

    /// Number of lines of the region.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.captured(0, PAGE_WORDS)
    }

    /// Content of a line; `None` beyond the region.
    #[must_use]
    pub fn holds(&self, line: u64) -> Option<LineContent> {
        if line >= self.lines() {
            return None;
        }
        let channels = self.geometry.channels as u64;
        let channel = (line % channels) as usize;
        let states = self.states(self.geometry.pipelines, 0, 0);
        if line >= states {
            let word = ((line - states) / channels) as usize * LINE_WORDS;
            return Some(LineContent::Captured { channel, word });
        }
        let word = (line / channels) as usize * LINE_WORDS;
        Some(LineContent::States { pipeline: word / WORDS, channel, word: word % WORDS })
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
                LineContent::States { pipeline, channel, word } => {
                    region.states(pipeline, channel, word)
                }
                LineContent::Captured { channel, word } => region.captured(channel, word),
            };
            assert_eq!(again, line);
        }
        assert_eq!([region.lines(), u64::MAX].map(|line| region.holds(line)), [None, None]);
        // Three pipelines of 64 KiB in two channels, and a page of 4 KiB in each.
        assert_eq!(region.lines() * 64, 3 * 2 * (64 << 10) + 2 * (4 << 10));
    }
}
