//! Handling of a memory access. The code is monomorphised for each combination of parts, so that
//! disabled parts cost nothing.
//!
//! An access that crosses a line or page boundary counts for the line and page of its first byte.
//! All code here runs in the thread of its vCPU.

use std::ffi::c_void;

use tierscope_core::{Access, Time};
use tierscope_hw::cache::{Cache, Request};
use tierscope_wire::stats::{Block, Count, Switch, switched_off};
use tierscope_wire::touched::Marker;
use tierscope_wire::{Note, Producer, RawAccess, Reader, Record, TlbMiss};

use crate::allocations::{Allocation, OpenCalls};
use crate::log::say;
use crate::memory::At;
use crate::options::{Options, Part, WhenFull};
use crate::qemu_state::{Registers, Search, Verdict};
use crate::run::Run;
use crate::tlb::{Model, Seen};

/// The cache, with the tiers and counters behind it.
pub const LLC: u32 = 1;
/// Records of TLB misses.
pub const TLB: u32 = 2;
/// Raw records of all accesses.
pub const RAW: u32 = 4;
/// Tables of touched pages.
pub const TOUCHED: u32 = 8;
/// The telemetry device, which is notified of stores.
pub const DEVICE: u32 = 16;
/// Number of combinations of the plugin's parts that can be enabled.
pub const COMBINATIONS: usize = 32;

/// Bit mask of the enabled parts.
#[must_use]
pub fn parts_of(options: &Options) -> u32 {
    let bit = |part, bit| if options.has(part) { bit } else { 0 };
    bit(Part::Llc, LLC)
        | bit(Part::Tlb, TLB)
        | bit(Part::Raw, RAW)
        | bit(Part::Touched, TOUCHED)
        | bit(Part::Device, DEVICE)
}

/// First address of the kernel's half of the address space.
const KERNEL: u64 = 1 << 63;

/// Kind of an access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Load,
    Store,
    NonTemporal,
}

/// Size of a cache line in bytes, the same in all caches here.
const LINE: u64 = 64;
/// Matches no access.
const NO_LINE: (u64, Kind, u64) = (u64::MAX, Kind::Load, 0);

/// Number of accesses between two samples for the search for CR3.
const SEARCH_EVERY: u64 = 64;

/// Number of accesses between two reads of the clock, a power of two: reading the time-stamp
/// counter costs as much as the rest of a record.
const CLOCK_EVERY: u64 = 8;

/// Number of accesses between two reads of the clock for the interval of a touch, a power of two.
const INTERVAL_EVERY: u64 = 32;

/// Time for which a full ring waits for its first reader.
const FIRST_READER_NS: u64 = 5_000_000_000;

/// A ring of records, with its behaviour when full.
#[derive(Debug)]
pub struct Ring<R: 'static> {
    producer: Producer<'static, R>,
    when_full: WhenFull,
}

impl<R: Record> Ring<R> {
    /// Makes a ring from a producer and its behaviour when full.
    #[must_use]
    pub fn new(producer: Producer<'static, R>, when_full: WhenFull) -> Self {
        Self { producer, when_full }
    }

    #[inline(always)]
    fn push(&mut self, record: &R, run: &Run, stats: Block) {
        if !self.producer.has_room() && self.when_full == WhenFull::Wait {
            self.wait(run, stats);
        }
        let count = if self.producer.push(record) { Count::Records } else { Count::Lost };
        stats.add(count, 1);
    }

    /// Waits for space as long as a reader is attached. If the reader is gone, later records are
    /// dropped without waiting.
    #[cold]
    fn wait(&mut self, run: &Run, stats: Block) {
        let begun = run.clock.now();
        while !self.producer.has_room() {
            let waited = run.clock.now() - begun;
            let patient = match self.producer.reader() {
                Reader::Attached => true,
                Reader::None => waited < FIRST_READER_NS,
                Reader::Gone => false,
            };
            if !patient {
                self.when_full = WhenFull::Count;
                say(
                    "a ring is full and has no reader: records without space count as lost from now on",
                );
                break;
            }
            std::thread::yield_now();
        }
        stats.add(Count::WaitedNs, run.clock.now() - begun);
    }
}

/// A decoded description of an access.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    /// QEMU's word for the access, shifted left; bit 0 marks a valid entry.
    known: u64,
    is_store: bool,
    size_log2: u8,
}

/// Size of the cache of decoded words: few different ones occur, and decoding by QEMU costs as much
/// as a record.
const WORDS: usize = 16;

/// State of a vCPU, or of a thread of a program.
#[derive(Debug)]
pub struct Vcpu {
    /// Number of the vCPU.
    pub number: u32,
    /// Counters of the vCPU.
    pub stats: Block<'static>,
    /// Model of its last-level cache.
    pub llc: Option<Cache>,
    /// Ring for records of accesses.
    pub raw: Option<Ring<RawAccess>>,
    /// Ring for records of TLB misses.
    pub misses: Option<Ring<TlbMiss>>,
    /// Table of touched pages.
    pub marker: Option<Marker<'static>>,
    /// Location of CR3 and CR4, once proven.
    pub registers: Option<Registers>,
    /// Search for CR3 and CR4, until it ends.
    pub search: Option<Search>,
    /// Model of its TLBs, once the number of page-table levels is known.
    pub tlb: Option<Model>,
    /// Allocation calls of its thread that have not returned.
    pub open: OpenCalls,
    /// Function of the previous record; 0 before the first.
    function: u64,
    accesses: u64,
    /// Last value read from the clock; 0: read it again.
    now: u64,
    /// Number of the interval of the last touch, if touches count once an interval.
    interval: u64,
    /// The TLB model was switched off, so its translations are outdated.
    forgets: bool,
    /// Line and kind of the previous access, and the parts switched off at that time.
    last: (u64, Kind, u64),
    words: [Word; WORDS],
}

impl Vcpu {
    /// A vCPU without any parts.
    #[must_use]
    pub fn new(number: u32, stats: Block<'static>) -> Self {
        Self {
            number,
            stats,
            llc: None,
            raw: None,
            misses: None,
            marker: None,
            registers: None,
            search: None,
            tlb: None,
            open: OpenCalls::default(),
            function: 0,
            accesses: 0,
            now: 0,
            interval: 0,
            forgets: false,
            last: NO_LINE,
            words: [Word::default(); WORDS],
        }
    }

    /// Decodes QEMU's word for an access.
    #[inline(always)]
    fn word(&mut self, run: &Run, info: u32) -> Word {
        let known = u64::from(info) << 1 | 1;
        let place = (info ^ info >> 16) as usize % WORDS;
        if self.words[place].known != known {
            let (is_store, size_log2) = (run.is_store(info), run.size_log2(info));
            self.words[place] = Word { known, is_store, size_log2 };
        }
        self.words[place]
    }

    /// Handles an access; `info` is QEMU's word for it.
    #[inline(always)]
    fn access<const PARTS: u32, const STORE: bool>(
        &mut self,
        run: &Run,
        info: u32,
        linear: u64,
        flags: u64,
    ) {
        let non_temporal = flags & NON_TEMPORAL != 0;
        self.accesses += 1;
        self.stats.add(Count::Accesses, 1);
        let kind = match (STORE, non_temporal) {
            (false, _) => Kind::Load,
            (true, false) => Kind::Store,
            (true, true) => Kind::NonTemporal,
        };
        let of_interest = linear < KERNEL || !run.options.programs_only;
        // Read once per access, so that parts that are switched together record the same accesses.
        let off = if PARTS & (RAW | TLB | TOUCHED) != 0 { switched_off(run.stats) } else { 0 };
        if PARTS & RAW != 0 && of_interest && Switch::Raw.is_on(off) {
            self.record::<STORE>(run, info, linear, flags);
        }
        if PARTS & (LLC | TLB | DEVICE) != 0 && !self.again(linear, kind, off)
            || PARTS & TOUCHED != 0 && self.search.is_some()
        {
            let at = run.place_of::<STORE>(self, info, linear);
            self.last = match at {
                Some(_) => (linear / LINE, kind, off),
                None => NO_LINE,
            };
            if let Some(at) = at
                && self.search.is_some()
            {
                self.prove(run, linear, at);
            }
            if PARTS & TLB != 0 && of_interest {
                let physical = at.map(|at| at.physical);
                self.translate::<STORE>(run, linear, physical, Switch::Tlb.is_on(off));
            }
            if PARTS & LLC != 0
                && let Some(at) = at
            {
                self.cache(run, at, kind);
            }
        }
        if PARTS & TOUCHED != 0 && of_interest && Switch::Touched.is_on(off) {
            self.mark(run, linear);
        }
    }

    /// Whether the previous access went to the same line and had the same effects: then this access
    /// changes nothing in caches and TLBs, and no translation can have changed in between.
    /// Non-temporal stores to one line leave the processor as a single write (Intel SDM volume 1,
    /// section 11.3.1: write combining).
    #[inline(always)]
    fn again(&self, linear: u64, kind: Kind, off: u64) -> bool {
        let (line, before, was_off) = self.last;
        let covered = kind == before || (kind, before) == (Kind::Load, Kind::Store);
        line == linear / LINE && covered && was_off == off
    }

    #[inline(always)]
    fn record<const STORE: bool>(&mut self, run: &Run, info: u32, linear: u64, flags: u64) {
        let space = self.space().unwrap_or(0);
        if self.now == 0 || self.accesses.is_multiple_of(CLOCK_EVERY) {
            self.now = run.clock.now();
        }
        let (function, non_temporal) = (flags >> 1, flags & NON_TEMPORAL != 0);
        if function != 0 && function != self.function {
            self.function = function;
            self.note(run, Note::Function(function));
        }
        let size_log2 = self.word(run, info).size_log2;
        let Some(ring) = &mut self.raw else { return };
        let access = RawAccess {
            address: linear,
            size_log2,
            store: STORE,
            non_temporal,
            time: Time(self.now),
            cpu: self.number as u16,
            space,
        };
        ring.push(&access, run, self.stats);
    }

    /// Inserts a note among the records of accesses.
    #[cold]
    fn note(&mut self, run: &Run, note: Note) {
        let space = self.space().unwrap_or(0);
        let record = RawAccess::of_note(note, Time(self.now), self.number as u16, space);
        if let Some(ring) = &mut self.raw {
            ring.push(&record, run, self.stats);
        }
    }

    /// Records an allocation by this thread.
    #[cold]
    pub fn allocated(&mut self, run: &Run, allocation: Allocation) {
        let Allocation { start, bytes, site } = allocation;
        [Note::Given(start), Note::Bytes(bytes), Note::Site(site)]
            .into_iter()
            .for_each(|note| self.note(run, note));
    }

    /// Called after a wait of unknown length: the clock will be read before the next record.
    pub fn resumes(&mut self) {
        self.now = 0;
    }

    /// Number of the address space as used in records of accesses; None unless TLBs are modelled.
    #[inline(always)]
    #[must_use]
    pub fn space(&mut self) -> Option<u8> {
        let root = self.registers?.root();
        Some((self.tlb.as_mut()?.tag(root).number() & 63) as u8)
    }

    /// Root table of the address space; 0 in user emulation.
    #[inline(always)]
    fn root(&self, run: &Run) -> Option<u64> {
        if run.system { self.registers.map(Registers::root) } else { Some(0) }
    }

    /// Number of the interval in which touches of a page count as one; None if each counts.
    #[inline(always)]
    fn interval(&mut self, run: &Run) -> Option<u64> {
        let length = run.options.touched_us?;
        if self.accesses & (INTERVAL_EVERY - 1) == 0 {
            self.interval = run.clock.now() / (u64::from(length.get()) * 1000);
        }
        Some(self.interval)
    }

    #[inline(always)]
    fn mark(&mut self, run: &Run, linear: u64) {
        let interval = self.interval(run);
        if let (Some(root), Some(marker)) = (self.root(run), &mut self.marker) {
            marker.mark(root, linear, interval);
        }
    }

    /// Marks the page at `linear` as touched by execution.
    pub fn executes(&mut self, run: &Run, linear: u64) {
        let of_interest = linear < KERNEL || !run.options.programs_only;
        if of_interest && Switch::Touched.is_on(switched_off(run.stats)) {
            self.mark(run, linear);
        }
    }

    #[inline(always)]
    fn translate<const STORE: bool>(
        &mut self,
        run: &Run,
        linear: u64,
        physical: Option<u64>,
        on: bool,
    ) {
        let (Some(model), Some(root)) = (&mut self.tlb, self.registers.map(Registers::root)) else {
            return;
        };
        if !on {
            self.forgets = true;
            return;
        }
        if std::mem::take(&mut self.forgets) {
            model.forget();
        }
        let access = if STORE { Access::Store } else { Access::Load };
        let seen = model.access(&run.memory, root, linear, access, physical);
        if seen == Seen::default() {
            return;
        }
        self.missed(run, root, linear, seen);
    }

    fn missed(&mut self, run: &Run, root: u64, linear: u64, seen: Seen) {
        self.stats.add(Count::TlbStale, seen.stale.into());
        self.stats.add(Count::WalkMismatches, seen.mismatch.into());
        self.stats.add(Count::WalkFaults, seen.fault.into());
        let (Some((entry, level)), Some(ring)) = (seen.missed, &mut self.misses) else { return };
        self.stats.add(Count::TlbMisses, 1);
        let time = Time(run.clock.now());
        let miss = TlbMiss { time, address: linear, entry, level, root, cpu: self.number as u16 };
        ring.push(&miss, run, self.stats);
    }

    #[inline(always)]
    fn cache(&mut self, run: &Run, at: At, kind: Kind) {
        let Some(llc) = &mut self.llc else { return };
        let request = match kind {
            Kind::Load => Request::Read,
            Kind::Store => Request::Write,
            Kind::NonTemporal => Request::NonTemporal,
        };
        let reply = llc.access(at.physical, request);
        if reply.hit && reply.writeback.is_none() && request != Request::NonTemporal {
            return;
        }
        self.on_bus(run, at, request, reply.hit, reply.writeback);
    }

    /// Handles bus traffic: the line that was loaded and the line that was written back.
    fn on_bus(&mut self, run: &Run, at: At, request: Request, hit: bool, written: Option<u64>) {
        let stores = request == Request::NonTemporal;
        self.stats.add(Count::NonTemporal, stores.into());
        if !hit || stores {
            self.stats.add(Count::CacheMisses, u64::from(!hit && !stores));
            self.stats.add(if at.node == 0 { Count::Node0 } else { Count::OtherNodes }, 1);
            self.count(run, at.physical, stores);
            if let Some(tiers) = &run.tiers {
                self.stats.add(Count::SpunNs, tiers.serve(at.node, &run.clock));
            }
        }
        if let Some(line) = written {
            self.stats.add(Count::Writebacks, 1);
            self.count(run, line, true);
            if let (Some(tiers), Some(node)) = (&run.tiers, run.memory.node_of(line)) {
                tiers.write_back(node, &run.clock);
            }
        }
    }

    #[inline(always)]
    fn count(&self, run: &Run, physical: u64, write: bool) {
        if run.counts
            && let Some(device) = &run.device
        {
            device.count(self.number, physical, write, &run.clock, self.stats);
        }
    }

    /// Continues the search for CR3, and ends it if there is a verdict.
    #[cold]
    fn prove(&mut self, run: &Run, linear: u64, at: At) {
        if linear >= KERNEL || !self.accesses.is_multiple_of(SEARCH_EVERY) {
            return;
        }
        let (Some(search), Some(qemu)) = (&mut self.search, &run.qemu) else { return };
        let verdict = search.look(qemu.cpu(self.number), &run.memory, linear, at.physical);
        match verdict {
            Verdict::Open => return,
            Verdict::Proven(registers) => self.believe(run, registers),
            Verdict::Failed => {
                say(format_args!(
                    "vCPU {}: CR3 is not where QEMU {} has it: parts tlb and touched stay off; {}",
                    self.number,
                    crate::qemu_state::KNOWN.join(", "),
                    run.fall_back()
                ));
            }
        }
        self.search = None;
    }

    fn believe(&mut self, run: &Run, registers: Registers) {
        say(format_args!("vCPU {}: CR3 and host addresses proven by walks", self.number));
        self.registers = Some(registers);
        self.stats.add(Count::Proven, 1);
        if run.options.has(Part::Tlb) {
            match Model::new(&run.machine.translation, registers.levels()) {
                Ok(model) => self.tlb = Some(model),
                Err(error) => say(format_args!("part tlb stays off: {error}")),
            }
        }
    }
}

/// Bit in an instruction's user data that marks its stores as non-temporal.
const NON_TEMPORAL: u64 = 1;

/// User data for an instruction's callback: the function's address, if functions are recorded, and
/// whether its stores are non-temporal.
pub(crate) fn access_flags(function: u64, non_temporal: bool) -> u64 {
    function << 1 | u64::from(non_temporal)
}

/// Callback for a load or store of an instruction; `flags` is a value of [`access_flags`].
extern "C" fn on_access<const PARTS: u32>(cpu: u32, info: u32, linear: u64, flags: *mut c_void) {
    let Some((run, vcpu)) = Run::and_vcpu(cpu) else { return };
    let flags = flags.addr() as u64;
    if vcpu.word(run, info).is_store {
        vcpu.access::<PARTS, true>(run, info, linear, flags);
    } else {
        vcpu.access::<PARTS, false>(run, info, linear, flags & !NON_TEMPORAL);
    }
}

macro_rules! combinations {
    ($($parts:literal)*) => {
        /// The access callbacks, indexed by the bit mask of parts.
        pub const CALLBACKS: [crate::calls::OnAccess; COMBINATIONS] = [$(on_access::<$parts>),*];
    };
}

combinations!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
