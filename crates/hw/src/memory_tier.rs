//! Description of a memory tier: sizes, times and bandwidths, and the parts of the medium that make
//! requests wait for each other (`loaded.rs`).

use serde::{Deserialize, Serialize};

use crate::config::{Inconsistency, Ranges, check_source, require, require_ranges};

/// Bytes of a cache line.
const LINE: u64 = 64;

/// A memory tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryTier {
    /// Name of the technology: `dram`, `optane`, `cxl`, …
    pub name: String,
    /// Capacity in MiB.
    pub mib: u64,
    /// Latency of an unloaded read, in nanoseconds.
    pub read_ns: u32,
    /// Latency of an unloaded write, in nanoseconds.
    pub write_ns: u32,
    /// Bandwidth of pure reads, in MiB per second.
    pub read_mib_s: u64,
    /// Bandwidth of pure writes, in MiB per second.
    pub write_mib_s: u64,
    /// What makes requests wait for each other.
    pub medium: Medium,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table whose values are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

/// The medium of a tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Medium {
    /// Independent channels, over which lines are spread evenly.
    pub channels: u32,
    /// Banks of a channel.
    pub banks: u32,
    /// Nanoseconds for which a bank is busy with a row (tRC of DRAM).
    pub bank_ns: u32,
    /// Nanoseconds that a channel loses when it turns from reads to writes and back.
    pub turn_ns: u32,
    /// Writes that a channel drains in a row.
    pub drain: u32,
    /// Bytes that the medium reads or writes at a time; units that its buffer holds, if these are
    /// more than a line, and nanoseconds of a read from the buffer.
    #[serde(default)]
    pub unit: Option<Unit>,
    /// Bandwidth of reads and writes together, in MiB per second, for a device behind a link whose
    /// directions are independent. `None` if reads and writes share one bus.
    #[serde(default)]
    pub duplex_mib_s: Option<u64>,
    /// Source of the numbers.
    pub source: String,
    /// Keys of this table whose values are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Uncertain keys of this table, with their ranges.
    #[serde(default)]
    pub ranges: Ranges,
}

/// A medium that is accessed in units larger than a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// Bytes of a unit.
    pub bytes: u32,
    /// Units that the buffers of all channels hold together.
    pub buffered: u32,
    /// Latency of a read of a buffered unit, in nanoseconds.
    pub hit_ns: u32,
}

impl Medium {
    /// A medium of one channel without banks to wait for, for tests.
    #[must_use]
    pub fn plain() -> Self {
        Self {
            channels: 1,
            banks: 1 << 20,
            bank_ns: 1,
            turn_ns: 0,
            drain: 1,
            unit: None,
            duplex_mib_s: None,
            source: "toy".into(),
            assumed: Vec::new(),
            ranges: Ranges::new(),
        }
    }

    fn check(&self, place: &str) -> Result<(), Inconsistency> {
        let keys = ["channels", "banks", "bank_ns", "turn_ns", "drain", "unit", "duplex_mib_s"];
        check_source(place, &self.source, &self.assumed, &keys)?;
        require_ranges(place, self, &self.ranges)?;
        let above_zero = [
            ("channels", self.channels),
            ("banks", self.banks),
            ("bank_ns", self.bank_ns),
            ("drain", self.drain),
        ];
        for (key, value) in above_zero {
            require(value > 0, format!("{place}.{key}"), "it is 0", "give at least 1")?;
        }
        let Some(unit) = self.unit else { return Ok(()) };
        require(
            unit.bytes.is_power_of_two() && (128..=4096).contains(&unit.bytes),
            format!("{place}.unit.bytes"),
            format!("a unit has {} bytes", unit.bytes),
            "give a power of two from 128 to 4096, or leave the unit out",
        )?;
        require(
            unit.buffered > 0,
            format!("{place}.unit.buffered"),
            "no unit is buffered",
            "give at least 1",
        )
    }
}

impl MemoryTier {
    pub(crate) fn check(&self, place: &str) -> Result<(), Inconsistency> {
        let keys = ["name", "mib", "read_ns", "write_ns", "read_mib_s", "write_mib_s"];
        check_source(place, &self.source, &self.assumed, &keys)?;
        require_ranges(place, self, &self.ranges)?;
        let latencies = [self.read_ns, self.write_ns].map(u64::from);
        let values = [self.mib, latencies[0], latencies[1], self.read_mib_s, self.write_mib_s];
        for (key, value) in keys[1..].iter().zip(values) {
            require(value > 0, format!("{place}.{key}"), "it is 0", "give at least 1")?;
        }
        self.medium.check(&format!("{place}.medium"))?;
        self.check_rates(place)
    }

    /// Numbers that contradict each other.
    fn check_rates(&self, place: &str) -> Result<(), Inconsistency> {
        let Medium { channels, banks, bank_ns, .. } = self.medium;
        for (key, mib_s, ns) in [
            ("read_mib_s", self.read_mib_s, self.read_ns),
            ("write_mib_s", self.write_mib_s, self.write_ns),
        ] {
            let alone = (LINE * 1_000_000_000 / u64::from(ns)) >> 20;
            require(
                mib_s >= alone,
                format!("{place}.{key}"),
                format!("{mib_s} MiB/s are less than one line at a time gets, {alone} MiB/s"),
                format!("one line takes {ns} ns: raise the bandwidth or the latency"),
            )?;
        }
        let unit = self.medium.unit.map_or(LINE, |unit| unit.bytes.into());
        let rows = u128::from(channels) * u128::from(banks) * u128::from(unit);
        let most = (rows * 1_000_000_000 / u128::from(bank_ns)) >> 20;
        require(
            most >= u128::from(self.read_mib_s.max(self.write_mib_s)),
            format!("{place}.medium.banks"),
            format!("{channels} channels of {banks} banks, {bank_ns} ns each, reach {most} MiB/s"),
            "give more channels or banks, or a lower bandwidth",
        )?;
        let most = self.read_mib_s + self.write_mib_s;
        require(
            self.medium.duplex_mib_s.is_none_or(|both| (1..=most).contains(&both)),
            format!("{place}.medium.duplex_mib_s"),
            format!("both directions together have at most {most} MiB/s"),
            "give what reads and writes reach together",
        )?;
        let hit = self.medium.unit.map_or(0, |unit| unit.hit_ns);
        require(
            hit <= self.read_ns,
            format!("{place}.medium.unit.hit_ns"),
            format!("a read from the buffer takes {hit} ns, one from the medium {}", self.read_ns),
            "give the shorter time for the buffer",
        )
    }
}
