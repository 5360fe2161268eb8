//! Probes and scans where processes share memory. What is asked of memory with views is asked of
//! each process that maps it, and the answers are united. A scan of a process's own space leaves
//! out its views: a clear there would hide accesses from the scans of the memory. Entries of upper
//! levels that cover memory of both are judged by both.

use tierscope_core::{
    AccessedSet, Judged, Level, Probe, ProbeOp, Range, Result, ScanMode, ScanStats, SpaceId, State,
};

use super::unite::{add_bits, unite};
use super::{Bits, answer, find};
use crate::abi;
use crate::module::Presence;
use crate::shared_memory::Piece;

/// A question to a process, for a probe of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Question {
    space: SpaceId,
    level: Level,
    /// Number of the entry.
    entry: u64,
    /// Whether it is about a process's own space. Such a probe may be at an address that is not
    /// mapped any more: of questions about one entry, the first one's address is used.
    own: bool,
    /// Index of the probe.
    probe: u32,
    at: u64,
}

impl Question {
    fn same_entry(&self, other: &Self) -> bool {
        (self.space, self.level, self.entry) == (other.space, other.level, other.entry)
    }
}

impl Bits {
    /// Whether a probe of the batch is about a space with memory that others map.
    pub(super) fn asks_for_shared(&self, probes: &[Probe]) -> bool {
        let has_views = |probe: &Probe| self.memory.has_views_of(probe.at.space);
        !self.memory.is_empty() && probes.iter().any(has_views)
    }

    /// Judges a batch with probes of the shared space. An entry is asked once, even if it answers
    /// several probes: one clear would hide the access from the other one.
    pub(super) fn probe_shared(&mut self, probes: &mut [Probe]) -> Result<()> {
        let mut questions = std::mem::take(&mut self.questions);
        questions.clear();
        for (index, probe) in (0..).zip(probes.iter_mut()) {
            probe.answer = Judged::default();
            let before = questions.len();
            self.ask(index, probe, &mut questions);
            if questions.len() > before {
                probe.answer.state = State::Gone;
            }
        }
        questions.sort_unstable();
        let mut runs = questions.chunk_by(|one, other| one.space == other.space);
        let asked = runs.try_for_each(|run| self.ask_process(probes, run));
        self.questions = questions;
        asked
    }

    /// Appends the questions of a probe.
    fn ask(&self, index: u32, probe: &Probe, out: &mut Vec<Question>) {
        let (level, shift) = (probe.level, probe.level.shift());
        let question = |space, at: u64, own| Question {
            space,
            level,
            entry: at >> shift,
            own,
            probe: index,
            at,
        };
        if !self.memory.is_shared(probe.at.space) {
            out.push(question(probe.at.space, probe.at.at, true));
        }
        for piece in self.memory.users(&level.entry_of(probe.at)) {
            let Range { space, start, end } = piece.range;
            // A range of at most an entry's size: it lies in one entry or in two.
            out.push(question(space, start, false));
            if (end - 1) >> shift != start >> shift {
                out.push(question(space, end - 1, false));
            }
        }
    }

    /// Asks a process, and unites its answers with the others'.
    fn ask_process(&mut self, probes: &mut [Probe], questions: &[Question]) -> Result<()> {
        let space = questions[0].space;
        let entries = || questions.chunk_by(Question::same_entry);
        let clears = |of: &Question| probes[of.probe as usize].op != ProbeOp::Test;
        self.batch.clear();
        self.batch.extend(entries().map(|entry| {
            let op = match entry.iter().any(clears) {
                true => abi::OP_TEST_AND_CLEAR,
                false => abi::OP_TEST,
            };
            let (addr, level) = (entry[0].at, entry[0].level.number());
            abi::Probe { addr, level, op, ..Default::default() }
        }));
        let presence = match find(&mut self.attached, space) {
            Some(attachment) => attachment.probe(&mut self.batch)?,
            None => Presence::Gone,
        };
        if presence == Presence::Gone {
            self.lose(space);
            return Ok(());
        }
        for (entry, answered) in entries().zip(&self.batch) {
            for question in entry {
                let probe = &mut probes[question.probe as usize];
                probe.answer = unite(probe.answer, answer(answered));
            }
        }
        Ok(())
    }

    /// The parts of processes that a scan of `range` has to look at; `None` if that is the range
    /// itself.
    pub(super) fn pieces(&self, range: &Range, level: Level) -> Option<Vec<Piece>> {
        if self.memory.is_empty() {
            return None;
        }
        let whole = level.align(range);
        let mut pieces: Vec<Piece> = self.memory.users(&whole).collect();
        if self.memory.is_shared(range.space) {
            return Some(pieces);
        }
        if pieces.is_empty() {
            self.memory.views(whole).next()?;
        }
        self.memory.split(&whole, |own, memory| {
            if own == memory {
                pieces.push(Piece { range: own, memory: own.at(0), writable: true });
            }
        });
        Some(pieces)
    }

    /// Scans parts of processes, and unites their bits. Upper entries prune nothing: they also
    /// cover memory of other scans, which clear them.
    pub(super) fn scan_pieces(
        &mut self,
        (range, level): (&Range, Level),
        mode: ScanMode,
        mut pieces: Vec<Piece>,
        set: &mut AccessedSet,
    ) -> Result<ScanStats> {
        set.reset(range, level, mode.present);
        pieces.sort_unstable();
        let mode = ScanMode { prune: false, ..mode };
        let mut part = std::mem::take(&mut self.part);
        let (mut stats, mut rest) = (ScanStats::default(), pieces.as_slice());
        while let Some(first) = rest.first() {
            let mut whole = level.align(&first.range);
            let joins = |piece: &&Piece| {
                let next = level.align(&piece.range);
                let joined = next.space == whole.space && next.start <= whole.end;
                whole.end = if joined { whole.end.max(next.end) } else { whole.end };
                joined
            };
            let (group, others) = rest.split_at(rest.iter().take_while(joins).count());
            rest = others;
            let found = match find(&mut self.attached, whole.space) {
                Some(attachment) => attachment.scan(&whole, level, mode, &mut part)?,
                None => None,
            };
            match found {
                Some(found) => add_stats(&mut stats, &found),
                None => self.lose(whole.space),
            }
            if found.is_some() {
                group.iter().for_each(|piece| add_bits(set, &part, piece));
            }
        }
        self.part = part;
        let count = |words: &[u64]| words.iter().map(|word| u64::from(word.count_ones())).sum();
        stats.young = set.young_count();
        stats.present = match mode.present {
            true => count(&set.present),
            false => stats.present.min(set.entries()),
        };
        Ok(stats)
    }
}

/// Adds the work of a scan; leaves count once for each process that maps them.
fn add_stats(to: &mut ScanStats, from: &ScanStats) {
    to.visited += from.visited;
    to.present += from.present;
    to.pruned += from.pruned;
    to.leaves.iter_mut().zip(from.leaves).for_each(|(to, from)| *to += from);
}
