//! Costs of software: CPU time for a probe, a fault, a page move.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tierscope_core::{Error, ErrorKind, PAGE_SIZE, RegisterWork, Result};
use tierscope_hw::PageSize;
use tierscope_hw::config::{Ranges, check_ranges};

/// Costs of one operating system on one kind of server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Name, as on the command line.
    pub name: String,
    /// One-line description.
    pub about: String,
    /// Probes and scans of ACCESSED bits.
    pub access_bits: AccessBitCosts,
    /// Sampled accesses.
    pub samples: SampleCosts,
    /// Telemetry registers in the memory controller.
    pub registers: RegisterCosts,
    /// The kernel's periodic work on a running core.
    pub tick: Tick,
    /// Page faults and hint faults.
    pub faults: FaultCosts,
    /// System calls on memory.
    pub calls: CallCosts,
    /// TLB shootdowns.
    pub shootdown: ShootdownCosts,
    /// Moving, splitting and collapsing pages.
    pub moves: MoveCosts,
    /// Reclaimed pages on a swap device.
    pub swap: SwapCosts,
    /// Reclaimed pages in zswap, compressed in memory.
    pub zswap: ZswapCosts,
}

/// Probes and scans of ACCESSED bits; charged to the profiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessBitCosts {
    /// Nanoseconds of a call, independent of its size.
    pub call_ns: u64,
    /// Nanoseconds of a probe in a batch, without the reads of its walk.
    pub probe_ns: u64,
    /// Whether the reads of a probe's walk are charged, at the latencies of the machine
    /// ([`crate::LookPrice`]).
    pub reads: bool,
    /// Nanoseconds for an entry visited by a scan.
    pub entry_ns: u64,
    /// Additional nanoseconds for a young entry that a scan clears.
    pub clear_ns: u64,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

/// Sampled accesses; charged to the sampled core, except for the cost of reading the samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleCosts {
    /// Nanoseconds that hardware takes to write a record.
    pub record_ns: u64,
    /// Nanoseconds of the interrupt when the hardware's buffer is full.
    pub interrupt_ns: u64,
    /// Nanoseconds of the interrupt for each record in it.
    pub handle_ns: u64,
    /// The profiler's nanoseconds for a sample that it reads.
    pub read_ns: u64,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

/// Telemetry registers in the memory controller; charged to the profiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterCosts {
    /// Nanoseconds of a write to a control register.
    pub write_ns: u64,
    /// Nanoseconds to invalidate and reload a line of states.
    pub line_ns: u64,
    /// Nanoseconds of a read of an uncached register.
    pub read_ns: u64,
    /// Nanoseconds of an interrupt that wakes the reader.
    pub interrupt_ns: u64,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

impl RegisterCosts {
    /// Nanoseconds of these accesses.
    pub(crate) fn time(&self, done: &RegisterWork) -> u64 {
        done.writes * self.write_ns
            + done.lines * self.line_ns
            + done.reads * self.read_ns
            + done.interrupts * self.interrupt_ns
    }
}

/// The kernel's timer tick on a running core. Its accesses fill entries of the paging-structure
/// caches, and evict some of the program's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tick {
    /// Microseconds between ticks.
    pub period_us: u64,
    /// Kernel memory that a tick accesses.
    pub regions: Vec<KernelRegion>,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

/// Kernel memory below one entry of each level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelRegion {
    /// Name, for reports.
    pub name: String,
    /// The region's address with page tables of 4 levels.
    pub four: Address,
    /// The region's address with page tables of 5 levels.
    pub five: Address,
    /// Size of the pages that map it.
    pub pages: PageSize,
}

/// An address, a string in a file: TOML has no integers beyond 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub u64);

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{:#x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        u64::from_str_radix(digits, 16)
            .map(Address)
            .map_err(|_| de::Error::custom(format!("`{text}` is not an address like 0xffff…")))
    }
}

/// Page faults and hint faults; charged to the thread that faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultCosts {
    /// Nanoseconds of a first touch of a page of 4 KiB, zeroing included.
    pub small_ns: u64,
    /// Nanoseconds of a first touch of a page of 2 MiB, zeroing included.
    pub huge_ns: u64,
    /// Nanoseconds of a hint fault.
    pub hint_ns: u64,
    /// Nanoseconds to arm a page; charged to the profiler.
    pub arm_ns: u64,
    /// Nanoseconds of a fault on a reserved bit, which reports a TLB miss to software.
    pub trap_ns: u64,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

/// System calls on memory; charged to the calling thread, with the memory stalls of their copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallCosts {
    /// Nanoseconds of a call, without its work on pages.
    pub call_ns: u64,
    /// Additional nanoseconds for a page that is locked, unlocked or freed.
    pub page_ns: u64,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

/// TLB shootdowns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShootdownCosts {
    /// The initiator's nanoseconds for the first core.
    pub initiator_ns: u64,
    /// The initiator's additional nanoseconds for each further core.
    pub each_core_ns: u64,
    /// Nanoseconds of an interrupted core.
    pub responder_ns: u64,
    /// Number of pages above which the whole address space is flushed instead.
    pub flush_all_pages: u64,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

impl ShootdownCosts {
    /// Nanoseconds of an initiator that interrupts `cores` cores; 0 for none.
    #[must_use]
    pub fn initiator(&self, cores: u64) -> u64 {
        let others = cores.checked_sub(1);
        others.map_or(0, |others| self.initiator_ns + self.each_core_ns * others)
    }
}

/// Moving, splitting and collapsing pages; charged to the mover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveCosts {
    /// Nanoseconds to move a page of any size, apart from the copy.
    pub page_ns: u64,
    /// Copy bandwidth of one CPU in MiB a second, if no tier is slower.
    pub copy_mib_s: u64,
    /// Pages moved between two shootdowns.
    pub batch: u64,
    /// Nanoseconds to split a page of 2 MiB.
    pub split_ns: u64,
    /// Nanoseconds to collapse into a page of 2 MiB, apart from the copy.
    pub collapse_ns: u64,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

impl MoveCosts {
    /// Nanoseconds to copy `bytes`, if no tier is slower.
    #[must_use]
    pub fn copy_ns(&self, bytes: u64) -> f64 {
        bytes as f64 * 1e9 / (self.copy_mib_s << 20) as f64
    }

    /// Nanoseconds to move a byte, in pages of 4 KiB.
    #[must_use]
    pub fn byte_ns(&self) -> f64 {
        self.copy_ns(1) + self.page_ns as f64 / PAGE_SIZE as f64
    }
}

/// Swap device for reclaimed pages; reads are charged to the faulting thread, writes to the mover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapCosts {
    /// Latency of a read from swap, in nanoseconds.
    pub read_ns: u64,
    /// Read bandwidth of swap, in MiB a second.
    pub read_mib_s: u64,
    /// Latency of a write to swap, in nanoseconds.
    pub write_ns: u64,
    /// Write bandwidth of swap, in MiB a second.
    pub write_mib_s: u64,
    /// Compression ratio in hundredths; `None` if nothing is kept in memory, as with a device
    /// ([`Costs::compressing`]).
    #[serde(skip)]
    pub ratio_percent: Option<u64>,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

/// zswap: reclaimed pages compressed in memory; compression is charged to the mover, faults and
/// decompression to the faulting thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZswapCosts {
    /// Compression ratio in hundredths.
    pub ratio_percent: u64,
    /// Nanoseconds to compress a page of 4 KiB.
    pub compress_ns: u64,
    /// Nanoseconds to decompress a page of 4 KiB.
    pub decompress_ns: u64,
    /// Nanoseconds to take a page out of the page tables and the LRU lists.
    pub page_ns: u64,
    /// Nanoseconds of a refault, apart from decompression.
    pub fault_ns: u64,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table without a source.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

/// The ready-made costs: name and TOML text.
const READY_MADE: &[(&str, &str)] = &[("linux", include_str!("../../costs/linux.toml"))];

impl Costs {
    /// Parses and checks a costs file; `name` is for errors, usually the file's.
    ///
    /// # Errors
    /// Invalid TOML, an unknown key or an impossible value, with its position.
    pub fn parse(name: &str, text: &str) -> Result<Costs> {
        let costs: Costs = toml::from_str(text).map_err(|error| {
            let (line, column) = position(text, error.span().map_or(0, |span| span.start));
            Error::new(ErrorKind::Usage, format!("costs {name}, line {line}, column {column}"))
                .cause(error.message().replace('\n', " "))
                .remedy("see crates/sim/costs for a file that works")
        })?;
        costs.check(name)?;
        Ok(costs)
    }

    /// The ready-made costs of that name.
    ///
    /// # Errors
    /// The name is unknown; the error lists the known names.
    pub fn ready_made(name: &str) -> Result<Costs> {
        let found = READY_MADE.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| {
            let names: Vec<&str> = READY_MADE.iter().map(|(name, _)| *name).collect();
            Error::new(ErrorKind::Usage, format!("there are no ready-made costs {name}"))
                .remedy(format!("choose one of {}, or give a file", names.join(", ")))
        })?;
        Costs::parse(name, text)
    }

    /// Replaces the swap device by zswap: a device with zswap's latencies that keeps its pages in
    /// memory.
    #[must_use]
    pub fn compressing(self) -> Self {
        /// Bandwidth at which the transfer of a page takes no time.
        const AT_ONCE: u64 = 1 << 40;
        let swap = SwapCosts {
            read_ns: self.zswap.fault_ns + self.zswap.decompress_ns,
            read_mib_s: AT_ONCE,
            write_ns: self.zswap.compress_ns,
            write_mib_s: AT_ONCE,
            ratio_percent: Some(self.zswap.ratio_percent),
            source: self.zswap.source.clone(),
            assumed: Vec::new(),
            ranges: Ranges::default(),
        };
        Self { swap, ..self }
    }

    fn check(&self, name: &str) -> Result<()> {
        let above_zero = [
            ("moves.copy_mib_s", self.moves.copy_mib_s),
            ("moves.batch", self.moves.batch),
            ("swap.read_mib_s", self.swap.read_mib_s),
            ("swap.write_mib_s", self.swap.write_mib_s),
            ("zswap.ratio_percent", self.zswap.ratio_percent),
            ("tick.period_us", self.tick.period_us),
            ("shootdown.flush_all_pages", self.shootdown.flush_all_pages),
        ];
        for (key, value) in above_zero {
            if value == 0 {
                return Err(Error::new(ErrorKind::Usage, format!("costs {name}, {key}"))
                    .cause("it is 0")
                    .remedy("give at least 1"));
            }
        }
        check_table(name, "access_bits", &self.access_bits)?;
        check_table(name, "samples", &self.samples)?;
        check_table(name, "registers", &self.registers)?;
        check_table(name, "tick", &self.tick)?;
        check_table(name, "faults", &self.faults)?;
        check_table(name, "calls", &self.calls)?;
        check_table(name, "shootdown", &self.shootdown)?;
        check_table(name, "moves", &self.moves)?;
        check_table(name, "swap", &self.swap)?;
        check_table(name, "zswap", &self.zswap)
    }
}

/// Common keys of all tables apart from the numbers.
#[derive(Deserialize)]
struct Sourced {
    source: String,
    assumed: Vec<String>,
    ranges: Ranges,
}

/// Checks that a table names its source, and refers only to its own keys.
fn check_table(name: &str, table: &str, numbers: &impl Serialize) -> Result<()> {
    let wrong = |key: String, cause: String, remedy: &str| {
        Err(Error::new(ErrorKind::Usage, format!("costs {name}, {table}.{key}"))
            .cause(cause)
            .remedy(remedy))
    };
    let all = toml::Table::try_from(numbers).unwrap_or_default();
    let sourced: Sourced = all.clone().try_into().map_err(|error| {
        Error::new(ErrorKind::Other, format!("costs {name}, {table}")).cause(error)
    })?;
    if sourced.source.trim().is_empty() {
        return wrong("source".into(), "it is empty".into(), "say where the numbers come from");
    }
    if let Some(key) = sourced.assumed.iter().find(|key| !all.contains_key(*key)) {
        let cause = format!("there is no key {key:?}");
        return wrong("assumed".into(), cause, "name keys of the table");
    }
    match check_ranges(numbers, &sourced.ranges) {
        Ok(()) => Ok(()),
        Err((key, cause)) => wrong(
            format!("ranges.{key}"),
            cause,
            "give [least, most] around the table's own number",
        ),
    }
}

/// Line and column, from 1 on, of a byte of a text.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ready_made_table_is_whole() {
        for (name, _) in READY_MADE {
            let costs = Costs::ready_made(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(costs.name, *name);
        }
    }

    #[test]
    fn zswap_is_a_device_of_its_costs() {
        let costs = Costs::ready_made("linux").expect("it is there");
        assert_eq!(costs.swap.ratio_percent, None, "a device keeps nothing in memory");
        let (zswap, swap) = (costs.zswap.clone(), costs.compressing().swap);
        assert_eq!(swap.read_ns, zswap.fault_ns + zswap.decompress_ns);
        assert_eq!(swap.write_ns, zswap.compress_ns);
        assert_eq!(swap.ratio_percent, Some(zswap.ratio_percent));
    }

    #[test]
    fn wrong_files_are_refused_by_line_and_key() {
        let text = READY_MADE[0].1;
        let error = Costs::parse("c.toml", &text.replacen("[faults]", "[faults]\nfee = 1", 1));
        let error = error.expect_err("unknown key").to_string();
        assert!(error.contains("unknown field `fee`") && error.contains("line "), "{error}");
        let error = Costs::parse("c.toml", &text.replacen("batch = 32", "batch = 0", 1));
        let error = error.expect_err("no batch").to_string();
        assert!(error.contains("moves.batch: it is 0"), "{error}");
        let error =
            Costs::parse("c.toml", &text.replacen("probe_ns = [52, 390]", "probe_ns = [9, 10]", 1));
        let error = error.expect_err("out of range").to_string();
        assert!(error.contains("access_bits.ranges.probe_ns: 100 does not lie"), "{error}");
        let error =
            Costs::parse("c.toml", &text.replacen("assumed = [", "assumed = [\"fee\", ", 1));
        let error = error.expect_err("unknown key").to_string();
        assert!(error.contains("assumed: there is no key \"fee\""), "{error}");
    }
}
