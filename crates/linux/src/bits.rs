//! ACCESSED bits of all spaces: a batch is split by space, and the answers are merged again.

mod hidden;
mod shared;
mod unite;

use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    AccessBits, AccessedSet, Flushed, Judged, LeafKind, Level, Mappings, Probe, ProbeOp, Radix,
    Range, Result, ScanMode, ScanStats, SpaceId, State, Unknown,
};

use crate::abi;
use crate::bit_consumers::BitConsumers;
use crate::clock;
use crate::module::{Attachment, Module, Presence};
use crate::pidfd::PidFd;
use crate::shared_memory::Translation;
use shared::Question;

/// The kernel module, with one attachment per space.
pub(crate) struct Bits {
    module: Module,
    /// Sorted: ids only increase.
    attached: Vec<(SpaceId, Attachment)>,
    /// Bits that other sessions cleared in spaces that were detached.
    cleared_in_detached: u64,
    /// Spaces were found gone since [`Bits::take_gone`] was called last.
    gone: bool,
    /// Indices into the batch, sorted by space; kept to reuse its memory.
    order: Vec<u32>,
    /// Probes of one space; kept to reuse its memory.
    batch: Vec<abi::Probe>,
    /// Memory that processes share.
    memory: Arc<Translation>,
    /// Questions of a batch about shared memory; kept to reuse its memory.
    questions: Vec<Question>,
    /// Bits of a part of a scan; kept to reuse its memory.
    part: AccessedSet,
    /// Totals of the scans so far.
    scans: Scans,
    /// Other readers of ACCESSED bits.
    others: BitConsumers,
}

/// Totals of scans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scans {
    /// Number of ranges scanned.
    pub scans: u64,
    /// Entries visited, of all levels.
    pub visited: u64,
    /// Young entries found at the requested level.
    pub young: u64,
    /// CPU time of the scanning thread, including the kernel's work for it.
    pub cpu: Duration,
}

impl Bits {
    pub(crate) fn new(module: Module) -> Self {
        Self {
            module,
            attached: Vec::new(),
            cleared_in_detached: 0,
            gone: false,
            order: Vec::new(),
            batch: Vec::new(),
            memory: Arc::default(),
            questions: Vec::new(),
            part: AccessedSet::default(),
            scans: Scans::default(),
            others: BitConsumers::default(),
        }
    }

    /// Attaches to a process. `space` is greater than all attached before it.
    pub(crate) fn attach(&mut self, space: SpaceId, pid: u32, pidfd: &PidFd) -> Result<()> {
        let attachment = self.module.attach_as(pid, pidfd)?;
        self.attached.push((space, attachment));
        Ok(())
    }

    /// Sets the memory that processes share.
    pub(crate) fn share(&mut self, memory: Arc<Translation>) {
        self.memory = memory;
    }

    /// Totals of the scans so far.
    pub(crate) fn scans(&self) -> Scans {
        self.scans
    }

    pub(crate) fn detach(&mut self, space: SpaceId) {
        for (_, attachment) in self.attached.extract_if(.., |(id, _)| *id == space) {
            self.cleared_in_detached += attachment.cleared_by_others();
        }
    }

    /// Whether a space was found gone since the last call; resets it.
    pub(crate) fn take_gone(&mut self) -> bool {
        std::mem::take(&mut self.gone)
    }

    /// Whether `space` is attached: it was not found gone.
    pub(crate) fn is_attached(&self, space: SpaceId) -> bool {
        self.attached.binary_search_by_key(&space, |(id, _)| *id).is_ok()
    }

    /// Whether `space` is attached, and its process still runs the same program.
    pub(crate) fn is_here(&mut self, space: SpaceId) -> Result<bool> {
        match find(&mut self.attached, space) {
            Some(attachment) => Ok(attachment.presence()? == Presence::Here),
            None => Ok(false),
        }
    }

    /// Judges the probes selected by a part of `self.order`, all of one space.
    fn probe_space(&mut self, probes: &mut [Probe], order: std::ops::Range<usize>) -> Result<()> {
        let order = &self.order[order];
        let space = probes[order[0] as usize].at.space;
        self.batch.clear();
        self.batch.extend(order.iter().map(|i| question(&probes[*i as usize])));
        let presence = match find(&mut self.attached, space) {
            Some(attachment) => attachment.probe(&mut self.batch)?,
            None => Presence::Gone,
        };
        for (index, answered) in order.iter().zip(&self.batch) {
            probes[*index as usize].answer = match presence {
                Presence::Here => answer(answered),
                Presence::Gone => Judged { state: State::Gone, ..Judged::default() },
            };
        }
        if presence == Presence::Gone {
            self.lose(space);
        }
        Ok(())
    }

    fn lose(&mut self, space: SpaceId) {
        let before = self.attached.len();
        self.detach(space);
        self.gone |= self.attached.len() != before;
    }
}

fn find(attached: &mut [(SpaceId, Attachment)], space: SpaceId) -> Option<&mut Attachment> {
    let at = attached.binary_search_by_key(&space, |(id, _)| *id).ok()?;
    Some(&mut attached[at].1)
}

fn question(probe: &Probe) -> abi::Probe {
    let op = match probe.op {
        ProbeOp::Test => abi::OP_TEST,
        ProbeOp::TestAndClear | ProbeOp::Clear => abi::OP_TEST_AND_CLEAR,
    };
    abi::Probe { addr: probe.at.at, level: probe.level.number(), op, ..Default::default() }
}

fn answer(probe: &abi::Probe) -> Judged {
    let state = match probe.state {
        abi::STATE_UNMAPPED => State::Unmapped,
        abi::STATE_ABSENT => State::Absent,
        abi::STATE_OLD => State::Old,
        abi::STATE_YOUNG => State::Young,
        _ => State::Refused,
    };
    let kind = match probe.kind {
        abi::KIND_TABLE => LeafKind::Table,
        abi::KIND_PAGE => LeafKind::Page,
        abi::KIND_HUGETLB => LeafKind::Hugetlb,
        abi::KIND_SPECIAL => LeafKind::Special,
        _ => LeafKind::None,
    };
    Judged { state, reached: Level::new(probe.reached), kind, dirty: false }
}

impl AccessBits for Bits {
    fn radix(&self) -> Radix {
        let mut radix = self.module.radix();
        for (_, attachment) in &self.attached {
            let both = radix.proven.bits() & attachment.proven().bits();
            radix.proven = tierscope_core::LevelSet::from_bits(both);
        }
        radix
    }

    fn probe(&mut self, probes: &mut [Probe]) -> Result<()> {
        if self.asks_for_shared(probes) {
            return self.probe_shared(probes);
        }
        let space_of = |i: u32| probes[i as usize].at.space;
        self.order.clear();
        self.order.extend(0..probes.len() as u32);
        // The index in the key keeps the order within a space, and the sort does not allocate.
        self.order.sort_unstable_by_key(|i| (space_of(*i), *i));
        let mut start = 0;
        while start < self.order.len() {
            let space = probes[self.order[start] as usize].at.space;
            let run = self.order[start..]
                .iter()
                .take_while(|i| probes[**i as usize].at.space == space)
                .count();
            self.probe_space(probes, start..start + run)?;
            start += run;
        }
        Ok(())
    }

    fn scan(
        &mut self,
        range: &Range,
        level: Level,
        mode: ScanMode,
        set: &mut AccessedSet,
    ) -> Result<ScanStats> {
        let began = clock::thread_cpu();
        let found = match self.pieces(range, level) {
            Some(pieces) => Some(self.scan_pieces((range, level), mode, pieces, set)?),
            None => match find(&mut self.attached, range.space) {
                Some(attachment) => attachment.scan(range, level, mode, set)?,
                None => None,
            },
        };
        self.scans.cpu += clock::thread_cpu().saturating_sub(began);
        self.scans.scans += 1;
        self.scans.visited += found.map_or(0, |found| found.visited);
        self.scans.young += found.map_or(0, |found| found.young);
        if found.is_none() {
            set.reset(range, level, mode.present);
            self.lose(range.space);
        }
        Ok(found.unwrap_or_default())
    }

    fn hidden(&mut self, mappings: &Mappings) -> Result<Vec<(Range, Unknown)>> {
        self.hidden_parts(mappings)
    }

    fn cleared_by_others(&self) -> u64 {
        let of_each = self.attached.iter().map(|(_, attachment)| attachment.cleared_by_others());
        self.cleared_in_detached + of_each.sum::<u64>()
    }

    fn other_readers(&mut self) -> &[&'static str] {
        self.others.seen(&|path| std::fs::read_to_string(path).ok())
    }

    /// Flushes every space. A CPU that runs several of the spaces is counted once for each.
    fn flush(&mut self) -> Result<Flushed> {
        let mut flushed = Flushed::default();
        let mut gone = Vec::new();
        for (space, attachment) in &mut self.attached {
            match attachment.flush()? {
                Some(cpus) => flushed.cpus += cpus,
                None => gone.push(*space),
            }
        }
        gone.into_iter().for_each(|space| self.lose(space));
        Ok(flushed)
    }
}

#[cfg(test)]
mod tests;
