//! Page truth: draws the accesses of a truth again.

use std::sync::Arc;

use tierscope_core::{Error, ErrorKind, PAGE_SHIFT, Range, RangeSet, Result, SpaceId, Time};

use super::{Piece, Tally, TruthDir};
use crate::stream::{Program, Stream, Touch};

/// Replays the accesses of a truth up to a given time, and records when each page was last touched.
pub struct Replay<'a> {
    truth: &'a TruthDir,
    streams: Vec<Stream>,
    pages: Vec<LastTouched>,
    done: usize,
    segment: Option<usize>,
}

impl<'a> Replay<'a> {
    /// A replay at the beginning of the truth.
    #[must_use]
    pub fn new(truth: &'a TruthDir) -> Self {
        let begin = truth.begin();
        let program = Arc::new(Program::new(truth.workload()));
        let bases: Vec<u64> = begin.areas.iter().map(|area| area.start).collect();
        let stream = |lane| Stream::new(&program, &bases, begin.seed, lane, begin.threads);
        Self {
            truth,
            streams: (0..begin.threads).map(stream).collect(),
            pages: begin.areas.iter().map(|area| LastTouched::new(area.start, area.end)).collect(),
            done: 0,
            segment: None,
        }
    }

    /// Replays all pieces whose middle lies before `end`.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] if a checksum differs: the truth is damaged, or was written by a version
    /// that draws other accesses.
    pub fn until(&mut self, end: Time) -> Result<()> {
        while let Some(piece) = self.truth.pieces().get(self.done).filter(|p| p.middle() < end) {
            self.piece(piece)?;
            self.done += 1;
        }
        Ok(())
    }

    fn piece(&mut self, piece: &Piece) -> Result<()> {
        if self.segment != Some(piece.segment) {
            let segment = self.truth.segment_of(piece);
            self.streams.iter_mut().for_each(|stream| stream.enter(&segment));
            self.segment = Some(piece.segment);
        }
        let told = piece.touches.iter().zip(&piece.sums).enumerate();
        for (lane, (touches, sum)) in told {
            if self.draw(lane, *touches).checksum() != *sum {
                return Err(self.differs(lane));
            }
        }
        Ok(())
    }

    fn draw(&mut self, lane: usize, touches: u64) -> Tally {
        let mut tally = Tally::default();
        let mut batch = [Touch::default(); 512];
        while tally.touches < touches {
            let count = batch.len().min((touches - tally.touches) as usize);
            self.streams[lane].fill(&mut batch[..count]);
            tally.add(&batch[..count]);
            self.mark(&batch[..count]);
        }
        tally
    }

    fn mark(&mut self, batch: &[Touch]) {
        let now = self.done as u32 + 1;
        for touch in batch {
            let at = touch.address();
            if let Some(pages) = self.pages.iter_mut().find(|p| p.start <= at && at < p.end) {
                pages.mark(at, now);
            }
        }
    }

    fn differs(&self, lane: usize) -> Error {
        Error::new(ErrorKind::Data, format!("cannot replay truth {}", self.truth.name()))
            .cause(format!("the checksum of thread {lane} differs in piece {}", self.done))
            .remedy("the truth is damaged, or was written by another version of the toucher")
    }

    /// Pages touched in the replayed pieces whose middle lies at or after `from`.
    #[must_use]
    pub fn touched(&self, from: Time) -> RangeSet {
        let first = self.truth.pieces().partition_point(|piece| piece.middle() < from) as u32 + 1;
        self.pages.iter().flat_map(|pages| pages.since(first)).collect()
    }
}

const BLOCK: usize = 512;

/// For each page of an area the number of the piece that last touched it, from 1; 0 for never.
/// Untouched blocks of pages are not allocated.
struct LastTouched {
    start: u64,
    end: u64,
    blocks: Vec<Option<Box<[u32; BLOCK]>>>,
}

impl LastTouched {
    fn new(start: u64, end: u64) -> Self {
        let pages = (end - start).div_ceil(1 << PAGE_SHIFT) as usize;
        let mut blocks = Vec::new();
        blocks.resize_with(pages.div_ceil(BLOCK), || None);
        Self { start, end, blocks }
    }

    #[inline]
    fn mark(&mut self, address: u64, now: u32) {
        let page = ((address - self.start) >> PAGE_SHIFT) as usize;
        let block = self.blocks[page / BLOCK].get_or_insert_with(|| Box::new([0; BLOCK]));
        block[page % BLOCK] = now;
    }

    fn since(&self, first: u32) -> impl Iterator<Item = Range> + '_ {
        let there = self.blocks.iter().enumerate().filter_map(|(i, b)| Some((i, b.as_deref()?)));
        there.flat_map(move |(index, block)| {
            let touched = block.iter().enumerate().filter(move |(_, last)| **last >= first);
            touched.map(move |(page, _)| self.page(index * BLOCK + page))
        })
    }

    fn page(&self, page: usize) -> Range {
        let start = self.start + ((page as u64) << PAGE_SHIFT);
        Range::new(SpaceId(0), start, (start + (1 << PAGE_SHIFT)).min(self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::begin;
    use super::super::{Line, Pieces, SegmentLine};
    use super::*;
    use crate::generate::from_spec;
    use std::time::Duration;

    /// The truth file and touched pages of a program with two threads: 1000 accesses per piece.
    fn run(spec: &str) -> (String, Vec<RangeSet>) {
        let workload = from_spec(spec).unwrap();
        let begin = super::super::Begin { threads: 2, ..begin(&workload) };
        let program = Arc::new(Program::new(&workload));
        let mut streams: Vec<_> =
            (0..2).map(|lane| Stream::new(&program, &[1 << 30], begin.seed, lane, 2)).collect();
        let (mut lines, mut touched, mut last) = (vec![Line::Begin(begin)], Vec::new(), None);
        for span in Pieces::new(&workload, Duration::from_millis(10), workload.duration()) {
            if last.replace(span.number) != Some(span.number) {
                streams.iter_mut().for_each(|stream| stream.enter(&span.segment));
                lines.push(Line::Segment(SegmentLine {
                    begin_ns: span.begin.as_nanos() as u64,
                    pass: span.segment.pass,
                    phase: span.segment.phase,
                    name: "p".into(),
                    into_ns: span.segment.into.as_nanos() as u64,
                    hot: vec![],
                }));
            }
            let mut piece = Piece {
                begin_ns: span.begin.as_nanos() as u64,
                end_ns: span.end.as_nanos() as u64,
                segment: span.number,
                touches: vec![],
                sums: vec![],
                late_ns: 0,
            };
            let mut pages = Vec::new();
            for stream in &mut streams {
                let mut batch = vec![Touch::default(); 1000];
                stream.fill(&mut batch);
                let mut tally = Tally::default();
                tally.add(&batch);
                piece.touches.push(tally.touches);
                piece.sums.push(tally.checksum());
                pages.extend(batch.iter().map(|touch| {
                    let start = touch.address() & !4095;
                    Range::new(SpaceId(0), start, start + 4096)
                }));
            }
            touched.push(pages.into_iter().collect());
            lines.push(Line::Piece(piece));
        }
        (lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect(), touched)
    }

    #[test]
    fn a_replay_knows_the_pages_of_every_window() {
        for spec in [
            "drift:space=64MiB,window=8MiB,step=2MiB,every=15ms,time=100ms,share=0.9,writes=0.5",
            "stairs:space=64MiB,hot=4MiB,steps=3,every=25ms,stride=4096",
        ] {
            let (text, touched) = run(spec);
            let truth = TruthDir::parse("t", &text).unwrap();
            let mut replay = Replay::new(&truth);
            for (index, piece) in truth.pieces().iter().enumerate() {
                replay.until(Time(piece.end_ns)).unwrap();
                assert_eq!(replay.touched(Time(piece.begin_ns)), touched[index], "{spec} {index}");
                let all: RangeSet =
                    touched[..=index].iter().flat_map(RangeSet::as_slice).copied().collect();
                assert_eq!(replay.touched(Time(0)), all, "{spec} {index}");
            }
        }
    }

    #[test]
    fn a_replay_notices_other_accesses() {
        let (text, _) = run("contiguous:space=1MiB,hot=1MiB,time=30ms");
        let truth = TruthDir::parse("t", &text.replacen("1000,1000", "1000,999", 1)).unwrap();
        let error = Replay::new(&truth).until(Time(u64::MAX)).unwrap_err().to_string();
        assert!(error.contains("the checksum of thread 1 differs in piece 0"), "{error}");
    }
}
