//! Machine descriptions as data: one format for the simulated machine and for the instrumented
//! virtual machine.
//!
//! Every table names the `source` of its numbers, and under `assumed` the keys whose values no
//! source gives. Nothing here is fitted to a result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tierscope_core::{Error, ErrorKind, Level, Result};

pub use crate::memory_tier::{Medium, MemoryTier, Unit};
use crate::position::position_of;

/// Uncertain keys of a table, each with the minimum and maximum that sources give or that is
/// plausible, for sensitivity runs.
pub type Ranges = BTreeMap<String, [u64; 2]>;

/// A page size of x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PageSize {
    /// 4 KiB.
    #[serde(rename = "4K")]
    K4,
    /// 2 MiB.
    #[serde(rename = "2M")]
    M2,
    /// 1 GiB.
    #[serde(rename = "1G")]
    G1,
}

impl PageSize {
    /// All page sizes, the smallest first.
    pub const ALL: [PageSize; 3] = [PageSize::K4, PageSize::M2, PageSize::G1];

    /// Page-table level of the leaves of this size.
    #[must_use]
    pub fn level(self) -> Level {
        [Level::PTE, Level::PMD, Level::PUD][self as usize]
    }

    /// Page size of the leaves of `level`; `None` for a level without leaves.
    #[must_use]
    #[inline]
    pub fn of_level(level: Level) -> Option<PageSize> {
        Self::ALL.get(usize::from(level.number() - 1)).copied()
    }

    /// log2 of the bytes of a page.
    #[inline(always)]
    #[must_use]
    pub fn shift(self) -> u32 {
        12 + 9 * self as u32
    }

    /// Bytes of a page.
    #[must_use]
    pub fn bytes(self) -> u64 {
        1 << self.shift()
    }
}

/// Replacement policy of a full set. An empty way is always filled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Replacement {
    /// Least recently used.
    Lru,
    /// Tree pseudo-LRU: a binary tree of bits points to the victim; the ways must be a power of
    /// two, at most 32.
    TreePlru,
    /// A random way.
    Random {
        /// Seed of the victim choice.
        seed: u64,
    },
}

/// How a second-level TLB relates to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inclusion {
    /// A walk fills both levels, and each evicts independently.
    Neither,
    /// An eviction from the second level also evicts from the first.
    Inclusive,
    /// A translation is in one level only: the second holds the first one's evictions.
    Exclusive,
}

/// One array of a TLB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbArray {
    /// The page sizes whose translations share it.
    pub pages: Vec<PageSize>,
    /// Number of translations that the array holds.
    pub entries: u32,
    /// Ways of a set; the number of entries for a fully associative array.
    pub ways: u32,
    /// Replacement policy of a full set.
    pub replacement: Replacement,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table whose values are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// Paging-structure cache of the non-leaf entries of one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PscArray {
    /// Level of the cached entries: 2 = PDE, 3 = PDPTE, 4 = PML4E, 5 = PML5E.
    pub level: u8,
    /// Number of entries in the cache.
    pub entries: u32,
    /// Ways of a set.
    pub ways: u32,
    /// Replacement policy of a full set.
    pub replacement: Replacement,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table whose values are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// Address translation hardware of a core: TLBs, paging-structure caches, page-table depth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Translation {
    /// Levels of the page table: 4 or 5.
    pub levels: u8,
    /// How the second-level TLB relates to the first.
    pub inclusion: Inclusion,
    /// First-level data TLB; a page size is in at most one array.
    pub l1: Vec<TlbArray>,
    /// Second-level TLB; a page size is in at most one array.
    #[serde(default)]
    pub l2: Vec<TlbArray>,
    /// Paging-structure caches, at most one array per level.
    #[serde(default)]
    pub psc: Vec<PscArray>,
    /// Source of `levels` and `inclusion`.
    pub source: String,
    /// Keys of this table whose values are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// Geometry of a write-back cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheGeometry {
    /// Slices over which lines are distributed by a hash of their address; 1 for none.
    pub slices: u32,
    /// Sets of a slice, a power of two.
    pub sets: u32,
    /// Ways of a set.
    pub ways: u32,
    /// Bytes of a line, a power of two from 64 on.
    pub line: u32,
    /// Replacement policy of a full set.
    pub replacement: Replacement,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table whose values are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
}

impl CacheGeometry {
    /// Total capacity in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        [self.slices, self.sets, self.ways, self.line].map(u64::from).iter().product()
    }
}

/// A prefetcher that follows streams of lines within pages of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streamer {
    /// Number of pages whose streams are followed at a time.
    pub pages: u32,
    /// Accesses in one direction that establish a stream.
    pub train: u32,
    /// Maximum lines prefetched per access.
    pub degree: u32,
    /// Maximum distance of the prefetches ahead of the program, in lines.
    pub distance: u32,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table whose values are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// Processor: number of cores, frequency and address width.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Number of sockets.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Hardware threads per core.
    pub threads: u32,
    /// Base frequency in MHz.
    pub mhz: u32,
    /// Width of a physical address, 32..=52 bits.
    pub physical_bits: u32,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table whose values are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// Latencies of a core other than those of memory, and its memory-level parallelism.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// Cycles between two accesses without stalls, including the work between them.
    pub access_cycles: u32,
    /// KiB of the core's private caches; data there have no extra cost. 0 for none.
    pub private_kib: u32,
    /// Cycles that a walk waits for an entry in the private caches.
    pub private_cycles: u32,
    /// Extra cycles of a second-level TLB hit over a first-level hit.
    pub second_tlb_cycles: u32,
    /// Cycles of a last-level cache hit.
    pub llc_cycles: u32,
    /// Maximum outstanding lines of a core.
    pub fill_buffers: u32,
    /// Maximum lines that a core's prefetcher waits for at a time.
    pub prefetches: u32,
    /// Maximum concurrent page walks of a core.
    pub walkers: u32,
    /// Accesses that a core dispatches before the oldest one retires: its reorder buffer, at the
    /// instructions of an access.
    pub window: u32,
    /// Stores that have retired, and whose lines have not arrived.
    pub store_buffer: u32,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table whose values are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

/// Description of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name of the machine on the command line.
    pub name: String,
    /// One-line description.
    pub about: String,
    /// Processor: number of cores, frequency and address width.
    pub processor: Processor,
    /// Latencies and memory-level parallelism of a core.
    pub timing: Timing,
    /// Address translation hardware of every core.
    pub translation: Translation,
    /// Last-level cache of a socket.
    pub llc: Option<CacheGeometry>,
    /// Prefetcher that fills the last-level cache.
    pub prefetcher: Option<Streamer>,
    /// Memory tiers, the fastest first.
    pub tiers: Vec<MemoryTier>,
}

impl Machine {
    /// Nanoseconds of `cycles` of a core.
    #[must_use]
    pub fn nanoseconds(&self, cycles: u32) -> f64 {
        f64::from(cycles) * 1e3 / f64::from(self.processor.mhz)
    }

    /// Parses and checks a machine file; `name`, usually the file's, is used in errors.
    ///
    /// # Errors
    /// Invalid TOML, an unknown key, or an impossible geometry, with position and cause.
    pub fn parse(name: &str, text: &str) -> Result<Machine> {
        let machine: Machine = toml::from_str(text).map_err(|error| {
            let (line, column) = position(text, error.span().map_or(0, |span| span.start));
            fault(format!("machine {name}, line {line}, column {column}"))
                .cause(error.message().replace('\n', " "))
                .remedy("see crates/hw/machines for files that work")
        })?;
        machine.check_parts().map_err(|wrong| {
            let (line, column) = position(text, position_of(text, &wrong.place));
            wrong.error(&format!("{name}, line {line}, column {column}"))
        })?;
        Ok(machine)
    }

    /// The built-in machine with this name.
    ///
    /// # Errors
    /// No such machine; the error lists the existing ones.
    pub fn ready_made(name: &str) -> Result<Machine> {
        let found = READY_MADE.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| {
            let names: Vec<&str> = READY_MADE.iter().map(|(name, _)| *name).collect();
            fault(format!("there is no ready-made machine {name}"))
                .remedy(format!("choose one of {}, or give a file", names.join(", ")))
        })?;
        Machine::parse(name, text)
    }

    /// Cores of all sockets.
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.processor.sockets.saturating_mul(self.processor.cores)
    }

    /// The machine with the memory of some of its cores: their part of the bandwidth and the
    /// channels of every tier. Sizes stay.
    pub fn take_memory_of(&mut self, cores: u32) {
        let (part, all) = (u64::from(cores), u64::from(self.cores()));
        for tier in &mut self.tiers {
            let of = |whole: u64| (whole * part / all).max(1);
            // One line at a time has no less.
            let alone = |ns: u32| ((64 * 1_000_000_000 / u64::from(ns)) >> 20).max(1);
            tier.read_mib_s = of(tier.read_mib_s).max(alone(tier.read_ns));
            tier.write_mib_s = of(tier.write_mib_s).max(alone(tier.write_ns));
            // Their ranges are those of the whole.
            tier.ranges.retain(|key, _| !key.ends_with("_mib_s"));
            let medium = &mut tier.medium;
            medium.ranges.retain(|key, _| key != "channels" && key != "duplex_mib_s");
            medium.channels = (u64::from(medium.channels) * part).div_ceil(all) as u32;
            medium.duplex_mib_s = medium.duplex_mib_s.map(|both| of(both).max(tier.read_mib_s));
            medium.unit =
                medium.unit.map(|unit| Unit { buffered: of(unit.buffered.into()) as u32, ..unit });
        }
    }

    /// Checks all values and their consistency.
    ///
    /// # Errors
    /// The first inconsistency, with its cause and a remedy.
    pub fn check(&self) -> Result<()> {
        self.check_parts().map_err(|wrong| wrong.error(&self.name))
    }

    fn check_parts(&self) -> Result<(), Inconsistency> {
        self.processor.check()?;
        self.timing.check()?;
        self.translation.check_parts()?;
        if let Some(llc) = &self.llc {
            llc.check_parts("llc", self.processor.physical_bits)?;
        }
        if let Some(prefetcher) = &self.prefetcher {
            prefetcher.check_parts()?;
        }
        require(!self.tiers.is_empty(), "tiers", "there are none", "give at least one [[tiers]]")?;
        for (index, tier) in self.tiers.iter().enumerate() {
            tier.check(&format!("tiers[{index}]"))?;
        }
        let mib: u64 = self.tiers.iter().map(|tier| tier.mib).sum();
        let room = 1u64 << (self.processor.physical_bits - 20);
        require(
            mib <= room,
            "processor.physical_bits",
            format!("the tiers hold {mib} MiB, the addresses reach {room}"),
            "raise physical_bits or make the tiers smaller",
        )
    }
}

/// The built-in machines: name and TOML text.
pub const READY_MADE: &[(&str, &str)] = &[
    ("xeon-gold-6238m", include_str!("../machines/xeon-gold-6238m.toml")),
    ("xeon-gold-6354", include_str!("../machines/xeon-gold-6354.toml")),
    ("xeon-gold-6430-cxl", include_str!("../machines/xeon-gold-6430-cxl.toml")),
    ("xeon-gold-5218", include_str!("../machines/xeon-gold-5218.toml")),
    ("xeon-24-core-optane", include_str!("../machines/xeon-24-core-optane.toml")),
    ("xeon-e5-2620v2", include_str!("../machines/xeon-e5-2620v2.toml")),
    ("xeon-e5-2620v2-b", include_str!("../machines/xeon-e5-2620v2-b.toml")),
    ("laptop", include_str!("../machines/laptop.toml")),
    ("qemu-tcg", include_str!("../machines/qemu-tcg.toml")),
    ("qemu-two-tiers", include_str!("../machines/qemu-two-tiers.toml")),
];

/// An inconsistency in a machine description.
#[derive(Debug)]
pub(crate) struct Inconsistency {
    place: String,
    cause: String,
    remedy: String,
}

impl Inconsistency {
    fn error(self, machine: &str) -> Error {
        fault(format!("machine {machine}, {}", self.place)).cause(self.cause).remedy(self.remedy)
    }
}

pub(crate) fn require(
    holds: bool,
    place: impl Into<String>,
    cause: impl Into<String>,
    remedy: impl Into<String>,
) -> Result<(), Inconsistency> {
    if holds {
        return Ok(());
    }
    Err(Inconsistency { place: place.into(), cause: cause.into(), remedy: remedy.into() })
}

fn fault(what: String) -> Error {
    Error::new(ErrorKind::Usage, what)
}

/// Line and column, from 1, of a byte offset in a text.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    (line, before.len() - start + 1)
}

pub(crate) fn check_source(
    place: &str,
    source: &str,
    assumed: &[String],
    keys: &[&str],
) -> Result<(), Inconsistency> {
    require(
        !source.trim().is_empty(),
        format!("{place}.source"),
        "it is empty",
        "name the manual, table or paper that the numbers come from",
    )?;
    let strange = assumed.iter().find(|key| !keys.contains(&key.as_str()));
    require(
        strange.is_none(),
        format!("{place}.assumed"),
        format!("there is no key {:?}", strange.map_or("", String::as_str)),
        format!("its keys are {}", keys.join(", ")),
    )
}

/// Checks that each range belongs to a number of the table, and contains it.
///
/// # Errors
/// The first key that violates this, and the cause.
pub fn check_ranges(table: &impl Serialize, ranges: &Ranges) -> Result<(), (String, String)> {
    let table = toml::Table::try_from(table).unwrap_or_default();
    for (key, [least, most]) in ranges {
        let value = table.get(key).and_then(toml::Value::as_integer);
        let wrong = match value.and_then(|value| u64::try_from(value).ok()) {
            None => "there is no such number in the table".into(),
            Some(value) if !(*least..=*most).contains(&value) => {
                format!("{value} does not lie within {least} to {most}")
            }
            Some(_) => continue,
        };
        return Err((key.clone(), wrong));
    }
    Ok(())
}

pub(crate) fn require_ranges(
    place: &str,
    table: &impl Serialize,
    ranges: &Ranges,
) -> Result<(), Inconsistency> {
    check_ranges(table, ranges).map_err(|(key, cause)| Inconsistency {
        place: format!("{place}.ranges.{key}"),
        cause,
        remedy: "give [least, most] around the table's own number".into(),
    })
}

fn check_array(
    place: &str,
    entries: u32,
    ways: u32,
    replacement: Replacement,
) -> Result<(), Inconsistency> {
    require(entries > 0, format!("{place}.entries"), "it is 0", "leave the array out instead")?;
    require(
        ways > 0 && entries.is_multiple_of(ways),
        format!("{place}.ways"),
        format!("{entries} entries do not make whole sets of {ways} ways"),
        "choose ways that divide the entries",
    )?;
    let sets = entries / ways;
    require(
        sets.is_power_of_two(),
        format!("{place}.entries"),
        format!("{entries} entries of {ways} ways make {sets} sets, no power of two"),
        "the low bits of the page number choose the set: make them a power of two",
    )?;
    check_replacement(place, ways, replacement)
}

fn check_replacement(
    place: &str,
    ways: u32,
    replacement: Replacement,
) -> Result<(), Inconsistency> {
    require(
        replacement != Replacement::TreePlru || (ways.is_power_of_two() && ways <= 32),
        format!("{place}.replacement"),
        format!("tree-PLRU cannot have {ways} ways"),
        "use \"lru\" or { random = { seed = 1 } }, or a power of two of ways up to 32",
    )
}

impl Processor {
    /// Number of hardware threads of all sockets.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.sockets.saturating_mul(self.cores).saturating_mul(self.threads)
    }

    fn check(&self) -> Result<(), Inconsistency> {
        let keys = ["sockets", "cores", "threads", "mhz", "physical_bits"];
        check_source("processor", &self.source, &self.assumed, &keys)?;
        for (key, value) in keys.iter().zip([self.sockets, self.cores, self.threads, self.mhz]) {
            require(value > 0, format!("processor.{key}"), "it is 0", "give at least 1")?;
        }
        require(
            (32..=52).contains(&self.physical_bits),
            "processor.physical_bits",
            format!("{} is not within 32..=52", self.physical_bits),
            "take it from CPUID 80000008H: 46 on most servers, 39 on many laptops",
        )
    }
}

impl Timing {
    fn check(&self) -> Result<(), Inconsistency> {
        let keys = [
            "access_cycles",
            "private_kib",
            "private_cycles",
            "second_tlb_cycles",
            "llc_cycles",
            "fill_buffers",
            "prefetches",
            "walkers",
            "window",
            "store_buffer",
        ];
        check_source("timing", &self.source, &self.assumed, &keys)?;
        require_ranges("timing", self, &self.ranges)?;
        let limits = [
            ("access_cycles", self.access_cycles, u32::MAX),
            ("fill_buffers", self.fill_buffers, 64),
            ("prefetches", self.prefetches, 64),
            ("walkers", self.walkers, 8),
            ("window", self.window, 256),
            ("store_buffer", self.store_buffer, 128),
        ];
        for (key, value, most) in limits {
            require(
                (1..=most).contains(&value),
                format!("timing.{key}"),
                format!("it is {value}"),
                format!("give 1 to {most}"),
            )?;
        }
        Ok(())
    }
}

impl Translation {
    /// Checks the geometry of all arrays.
    ///
    /// # Errors
    /// The first impossible value.
    pub fn check(&self) -> Result<()> {
        self.check_parts()
            .map_err(|wrong| fault(wrong.place).cause(wrong.cause).remedy(wrong.remedy))
    }

    fn check_parts(&self) -> Result<(), Inconsistency> {
        let place = "translation";
        check_source(place, &self.source, &self.assumed, &["levels", "inclusion"])?;
        require(
            matches!(self.levels, 4 | 5),
            format!("{place}.levels"),
            format!("{} levels", self.levels),
            "x86-64 has 4 or 5",
        )?;
        check_stage(&format!("{place}.l1"), &self.l1)?;
        check_stage(&format!("{place}.l2"), &self.l2)?;
        let homeless = PageSize::ALL
            .into_iter()
            .find(|size| !self.l1.iter().chain(&self.l2).any(|array| array.pages.contains(size)));
        require(
            homeless.is_none(),
            format!("{place}.l1"),
            format!("no array takes pages of {homeless:?}"),
            "name every page size in one array",
        )?;
        self.check_psc(&format!("{place}.psc"))
    }

    fn check_psc(&self, place: &str) -> Result<(), Inconsistency> {
        let keys = ["level", "entries", "ways", "replacement"];
        for (index, array) in self.psc.iter().enumerate() {
            let at = format!("{place}[{index}]");
            check_source(&at, &array.source, &array.assumed, &keys)?;
            check_array(&at, array.entries, array.ways, array.replacement)?;
            require(
                (2..=self.levels).contains(&array.level),
                format!("{at}.level"),
                format!("level {} has no non-leaf entries here", array.level),
                format!("choose within 2..={}", self.levels),
            )?;
            require(
                !self.psc[..index].iter().any(|other| other.level == array.level),
                format!("{at}.level"),
                format!("level {} has a cache already", array.level),
                "one array a level",
            )?;
        }
        Ok(())
    }
}

fn check_stage(place: &str, arrays: &[TlbArray]) -> Result<(), Inconsistency> {
    let mut seen: Vec<PageSize> = Vec::new();
    for (index, array) in arrays.iter().enumerate() {
        let at = format!("{place}[{index}]");
        let keys = ["pages", "entries", "ways", "replacement"];
        check_source(&at, &array.source, &array.assumed, &keys)?;
        check_array(&at, array.entries, array.ways, array.replacement)?;
        for size in &array.pages {
            require(
                !seen.contains(size),
                format!("{at}.pages"),
                format!("{size:?} has an array already"),
                "a page size is in one array of a level",
            )?;
            seen.push(*size);
        }
    }
    Ok(())
}

impl CacheGeometry {
    /// Checks the geometry for a machine with `physical_bits` bits of physical addresses.
    ///
    /// # Errors
    /// The first impossible value.
    pub fn check(&self, physical_bits: u32) -> Result<()> {
        self.check_parts("cache", physical_bits)
            .map_err(|wrong| fault(wrong.place).cause(wrong.cause).remedy(wrong.remedy))
    }

    fn check_parts(&self, place: &str, physical_bits: u32) -> Result<(), Inconsistency> {
        let keys = ["slices", "sets", "ways", "line", "replacement"];
        check_source(place, &self.source, &self.assumed, &keys)?;
        for (key, value) in [("slices", self.slices), ("ways", self.ways)] {
            require(value > 0, format!("{place}.{key}"), "it is 0", "give at least 1")?;
        }
        require(
            self.sets.is_power_of_two(),
            format!("{place}.sets"),
            format!("{} is no power of two", self.sets),
            "spread the rest over slices: slices x sets x ways x line = bytes",
        )?;
        require(
            self.line.is_power_of_two() && self.line >= 64,
            format!("{place}.line"),
            format!("{} bytes", self.line),
            "a power of two of 64 and more",
        )?;
        let reach = self.reach_bits();
        require(
            physical_bits <= reach,
            format!("{place}.sets"),
            format!("tags of 30 bits reach 2^{reach} bytes, addresses have {physical_bits} bits"),
            "choose more sets, longer lines, or fewer physical_bits",
        )?;
        check_replacement(place, self.ways, self.replacement)
    }

    /// Number of address bits that the tags can distinguish.
    #[must_use]
    pub fn reach_bits(&self) -> u32 {
        crate::cache::TAG_BITS + self.sets.trailing_zeros() + self.line.trailing_zeros()
    }
}

impl Streamer {
    fn check_parts(&self) -> Result<(), Inconsistency> {
        let keys = ["pages", "train", "degree", "distance"];
        check_source("prefetcher", &self.source, &self.assumed, &keys)?;
        let values = [self.pages, self.train, self.degree, self.distance];
        for (key, value) in keys.iter().zip(values) {
            require(
                (1..=64).contains(&value),
                format!("prefetcher.{key}"),
                format!("it is {value}"),
                "a page has 64 lines: give 1..=64",
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_file_is_valid() {
        for (name, _) in READY_MADE {
            let machine = Machine::ready_made(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(machine.name, *name);
        }
    }

    fn edited(from: &str, to: &str) -> String {
        let text = READY_MADE[0].1;
        assert!(text.contains(from), "the test edits what is there: {from}");
        Machine::parse("m.toml", &text.replacen(from, to, 1)).expect_err("it is wrong").to_string()
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = edited("[processor]\n", "[processor]\nturbo = 1\n");
        assert!(error.contains("line 5, column 1: unknown field `turbo`"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn impossible_geometry_is_explained() {
        let cases = [
            ("entries = 1536\nways = 12", "entries = 1536\nways = 7", "whole sets of 7 ways"),
            ("entries = 1536\nways = 12", "entries = 1536\nways = 8", "192 sets, no power of two"),
            ("levels = 4", "levels = 3", "3 levels"),
            ("pages = [\"1G\"]", "pages = [\"4K\"]", "K4 has an array already"),
            ("sets = 2048", "sets = 2000", "2000 is no power of two"),
            ("sets = 2048", "sets = 8", "tags of 30 bits reach 2^39"),
            ("physical_bits = 46", "physical_bits = 42", "the addresses reach"),
            ("read_mib_s = 150300", "read_mib_s = 150", "less than one line at a time gets"),
            ("banks = 16", "banks = 1", "24 channels of 1 banks, 150 ns each, reach 39062 MiB/s"),
            ("channels = 24", "channels = 0", "medium.channels: it is 0"),
            ("hit_ns = 124", "hit_ns = 400", "a read from the buffer takes 400 ns"),
            ("store_buffer = 56", "store_buffer = 500", "give 1 to 128"),
            ("llc_cycles = [", "llc_cycle = [", "timing.ranges.llc_cycle: there is no such number"),
            ("llc_cycles = [50, 77]", "llc_cycles = [10, 20]", "does not lie within 10 to 20"),
            ("assumed = [\"replacement\"]", "assumed = [\"colour\"]", "no key \"colour\""),
        ];
        for (from, to, says) in cases {
            let error = edited(from, to);
            assert!(error.contains(says), "{to}: {error}");
            assert!(error.starts_with("machine m.toml, line "), "{error}");
        }
    }

    // 4 x 22 cores: one of them has 1/88 of the bandwidth, and a channel.
    #[test]
    fn a_part_of_the_cores_has_its_part_of_the_memory() {
        let mut machine = Machine::ready_made("xeon-gold-6238m").expect("it is there");
        machine.take_memory_of(1);
        let [dram, optane] = &machine.tiers[..] else { panic!("there are two") };
        assert_eq!((dram.read_mib_s, dram.medium.channels), (483_398 / 88, 1));
        assert_eq!(optane.medium.unit.map(|unit| unit.buffered), Some(17));
        assert!(machine.check().is_ok());
    }

    #[test]
    fn contradictions_have_the_line_of_their_key() {
        let line = |from: &str| {
            let text = READY_MADE[0].1;
            text.lines().position(|line| line.starts_with(from)).expect("it is there") + 1
        };
        let error = edited("read_mib_s = 150300", "read_mib_s = 150");
        let place = format!("line {}, column 14, tiers[1].read_mib_s", line("read_mib_s = 150300"));
        assert!(error.contains(&place), "{error}");
    }

    #[test]
    fn a_tree_needs_a_power_of_two() {
        let wrong = check_array("x", 12, 12, Replacement::TreePlru).expect_err("12 ways");
        assert!(wrong.cause.contains("12 ways"));
        assert!(check_array("x", 16, 16, Replacement::TreePlru).is_ok());
    }

    #[test]
    fn page_sizes_are_those_of_their_levels() {
        for size in PageSize::ALL {
            assert_eq!(size.bytes(), size.level().entry_bytes());
            assert_eq!(PageSize::of_level(size.level()), Some(size));
        }
        assert_eq!(PageSize::of_level(Level::P4D), None);
    }
}
