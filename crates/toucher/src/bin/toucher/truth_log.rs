//! Collects the threads' access counts, and writes the ground truth.

use std::collections::BTreeMap;

use serde::Serialize;
use tierscope_core::{Result, SpaceId, Time};
use tierscope_workloads::file;
use tierscope_workloads::truth_dir::{
    AreaLine, Begin, CLOCK, End, FORMAT, Piece, Pieces, SegmentLine, Span, Tally, Writer,
};

use crate::args::Args;
use crate::clock;
use crate::memory::Backing;
use crate::thread::Shared;

/// The truth directory, if requested, and totals of the run.
pub(crate) struct TruthLog {
    writer: Option<Writer>,
    touches: u64,
    nanos: u64,
}

#[derive(Serialize)]
struct Summary {
    touches: u64,
    seconds: f64,
    touches_per_second: f64,
}

impl TruthLog {
    pub(crate) fn create(
        args: &Args,
        shared: &Shared,
        backing: Backing,
        areas: Vec<AreaLine>,
    ) -> Result<Self> {
        let begin = |_| Begin {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            boot: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .unwrap_or_default()
                .trim()
                .into(),
            clock: CLOCK.into(),
            at_ns: clock::now().0,
            command: std::env::args().collect::<Vec<_>>().join(" "),
            workload: file::to_toml(&shared.workload),
            seed: shared.seed,
            threads: shared.threads,
            grain_ns: shared.grain.as_nanos() as u64,
            backing: backing.name().into(),
            areas,
        };
        let writer = args.truth.as_deref().map(|dir| Writer::create(dir, begin(()))).transpose()?;
        Ok(Self { writer, touches: 0, nanos: 0 })
    }

    fn segment(&mut self, shared: &Shared, span: &Span) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let hot = shared.workload.hot_at(&span.segment, &shared.bases, SpaceId(0));
        writer.segment(SegmentLine {
            begin_ns: (shared.begin + span.begin).0,
            pass: span.segment.pass,
            phase: span.segment.phase,
            name: shared.workload.phase(&span.segment).name.clone(),
            into_ns: span.segment.into.as_nanos() as u64,
            hot: hot.as_slice().iter().map(|range| [range.start, range.end]).collect(),
        })
    }

    fn piece(&mut self, piece: Piece) -> Result<()> {
        self.touches += piece.touches.iter().sum::<u64>();
        self.nanos += piece.end_ns - piece.begin_ns;
        self.writer.as_mut().map_or(Ok(()), |writer| writer.piece(piece))
    }

    /// The summary of the run, as one line of JSON.
    pub(crate) fn summary(&self) -> String {
        let seconds = self.nanos as f64 / 1e9;
        let rate = if self.nanos > 0 { self.touches as f64 / seconds } else { 0.0 };
        let summary = Summary { touches: self.touches, seconds, touches_per_second: rate };
        serde_json::to_string(&summary).expect("numbers are JSON")
    }

    pub(crate) fn end(self, end: End) -> Result<()> {
        self.writer.map_or(Ok(()), |writer| writer.end(end))
    }
}

/// Pieces that some threads have not completed yet.
pub(crate) struct OpenPieces<'a> {
    shared: &'a Shared,
    spans: Pieces<'a>,
    cuts: BTreeMap<usize, Vec<Option<(Tally, Time)>>>,
    next: usize,
    segment: Option<usize>,
}

impl<'a> OpenPieces<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self { shared, spans: shared.pieces(), cuts: BTreeMap::new(), next: 0, segment: None }
    }

    pub(crate) fn cut(&mut self, lane: u32, piece: usize, tally: Tally, at: Time) {
        let lanes = self.shared.threads as usize;
        let cuts = self.cuts.entry(piece).or_insert_with(|| vec![None; lanes]);
        cuts[lane as usize] = Some((tally, at));
    }

    /// Writes the pieces that all threads have completed.
    pub(crate) fn write_whole(&mut self, log: &mut TruthLog) -> Result<()> {
        while self
            .cuts
            .first_key_value()
            .is_some_and(|(piece, cuts)| *piece == self.next && cuts.iter().all(Option::is_some))
        {
            self.write_first(log)?;
        }
        Ok(())
    }

    /// Writes the remaining pieces too: threads that ended earlier touched nothing in them.
    pub(crate) fn write_rest(&mut self, log: &mut TruthLog) -> Result<()> {
        while !self.cuts.is_empty() {
            self.write_first(log)?;
        }
        Ok(())
    }

    fn write_first(&mut self, log: &mut TruthLog) -> Result<()> {
        let (Some((_, cuts)), Some(span)) = (self.cuts.pop_first(), self.spans.next()) else {
            return Ok(());
        };
        self.next += 1;
        if self.segment.replace(span.number) != Some(span.number) {
            log.segment(self.shared, &span)?;
        }
        let (begin, end) = (self.shared.begin + span.begin, self.shared.begin + span.end);
        let last = cuts.iter().flatten().map(|(_, at)| *at).max().unwrap_or(end);
        let tallies = cuts.iter().map(|cut| cut.map(|(tally, _)| tally).unwrap_or_default());
        log.piece(Piece {
            begin_ns: begin.0,
            // Threads that were stopped end earlier than the piece.
            end_ns: end.0.min(last.0.max(begin.0)),
            segment: span.number,
            touches: tallies.clone().map(|tally| tally.touches).collect(),
            sums: tallies.map(|tally| tally.checksum()).collect(),
            late_ns: last.0.saturating_sub(end.0),
        })
    }
}
