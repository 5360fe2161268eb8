//! The options file, which enables parts of the plugin: TOML, written by the lab or by hand.
//!
//! ```toml
//! run = "/dev/shm/tierscope-1"   # directory of the shared files
//! machine = "qemu-two-tiers"     # caches and TLBs of a ready-made machine, or a file
//! parts = ["llc", "tiers", "counters"]
//! nodes = [{ path = "/dev/shm/tierscope-1/ram-0", bytes = 1073741824 }]
//! ```

use std::num::NonZeroU32;

use serde::Deserialize;
use tierscope_hw::Machine;
use tierscope_hw::config::MemoryTier;

use crate::controllers::Controllers;
use crate::memory::NodeFile;

/// A part of the plugin that can be enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A last-level cache for each vCPU.
    Llc,
    /// Latency and bandwidth of nodes, applied to misses of the last-level cache.
    Tiers,
    /// The telemetry device: registers, doorbell, interrupts.
    Device,
    /// Counters of the telemetry device, fed with cache misses.
    Counters,
    /// A model of TLBs for each vCPU, and a ring of their misses.
    Tlb,
    /// A ring of all accesses.
    Raw,
    /// Numbers of touches of each page by each address space.
    Touched,
    /// Periodic flushes of the emulated TLBs, so that ACCESSED bits are set again.
    Flush,
}

impl Part {
    /// Name of the part in the options file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Llc => "llc",
            Part::Tiers => "tiers",
            Part::Device => "device",
            Part::Counters => "counters",
            Part::Tlb => "tlb",
            Part::Raw => "raw",
            Part::Touched => "touched",
            Part::Flush => "flush",
        }
    }

    /// Other parts that this part depends on.
    fn needs(self) -> &'static [Part] {
        match self {
            Part::Tiers => &[Part::Llc],
            Part::Counters => &[Part::Llc, Part::Device],
            _ => &[],
        }
    }

    /// Whether the part is available in user emulation, without a guest kernel.
    fn in_user_mode(self) -> bool {
        matches!(self, Part::Llc | Part::Raw | Part::Touched)
    }
}

/// Handling of records whose ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// The vCPU waits for space as long as a reader is attached.
    #[default]
    Wait,
    /// The record is dropped and counted as lost.
    Count,
}

/// Latency and bandwidth of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Nanoseconds added to each miss.
    #[serde(default)]
    pub spin_ns: u32,
    /// Bandwidth in MiB/s, for reads and writes together; 0 for no limit.
    #[serde(default)]
    pub mib_s: u32,
}

/// Contents of the options file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Directory of the shared files.
    pub run: String,
    /// Name of a ready-made machine, or path of a file: its LLC, TLBs and tiers are modelled.
    #[serde(default = "default_machine")]
    pub machine: String,
    /// Enabled parts.
    pub parts: Vec<Part>,
    /// Files with the memory of the guest's nodes; empty in user emulation.
    #[serde(default)]
    pub nodes: Vec<NodeFile>,
    /// Latency and bandwidth of the nodes, in order; further nodes are not slowed. None: as the
    /// machine's tiers.
    pub tiers: Option<Vec<Node>>,
    /// Size of each ring in bytes.
    #[serde(default = "default_ring_bytes")]
    pub ring_bytes: u64,
    /// Handling of records whose ring is full.
    #[serde(default)]
    pub when_full: WhenFull,
    /// The rings of TLB misses are in the device's memory, and the guest reads them.
    #[serde(default)]
    pub guest_rings: bool,
    /// Programmable memory controllers behind the device, one per node.
    pub controllers: Option<Controllers>,
    /// Microseconds between two flushes of the emulated TLBs.
    #[serde(default = "default_flush_us")]
    pub flush_us: u32,
    /// Capacity of each vCPU's table of touched pages, in 2 MiB ranges.
    #[serde(default = "default_slots")]
    pub touched_slots: u64,
    /// Microseconds in which the touches of a page by a vCPU count as one; without it, each counts.
    pub touched_us: Option<NonZeroU32>,
    /// Maximum number of vCPUs, or of threads of a program.
    #[serde(default = "default_cpus")]
    pub cpus: u32,
    /// The plugin is inactive until the lab wakes it, so that the guest boots at full speed.
    #[serde(default)]
    pub asleep: bool,
    /// Functions and heap allocations are recorded among a program's raw records.
    #[serde(default)]
    pub names: bool,
    /// Names of additional allocation wrappers: allocations are attributed to their callers.
    #[serde(default)]
    pub wrappers: Vec<String>,
    /// Accesses of the kernel are excluded from rings, counts and the TLB model.
    #[serde(default)]
    pub programs_only: bool,
}

fn default_machine() -> String {
    "qemu-two-tiers".into()
}

fn default_ring_bytes() -> u64 {
    64 << 20
}

fn default_flush_us() -> u32 {
    5000
}

fn default_slots() -> u64 {
    1 << 13
}

fn default_cpus() -> u32 {
    2
}

/// Bandwidth in MiB/s that no emulated processor reaches: a higher limit would only cost time.
const EMULATED_MIB_S: u64 = 8192;

/// Maximum number of vCPUs that the plugin supports.
pub const MOST_CPUS: u32 = 64;

impl Options {
    /// Parses the contents of an options file.
    ///
    /// # Errors
    /// An unknown key or part, or an invalid combination of parts.
    pub fn parse(text: &str) -> Result<Self, String> {
        let options: Options =
            toml::from_str(text).map_err(|error| error.to_string().replace('\n', " "))?;
        options.check()?;
        Ok(options)
    }

    /// Whether a part is enabled.
    #[must_use]
    pub fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    fn check(&self) -> Result<(), String> {
        for part in &self.parts {
            if let Some(missing) = part.needs().iter().find(|need| !self.has(**need)) {
                return Err(format!("part {} needs part {}", part.name(), missing.name()));
            }
        }
        if self.guest_rings && !(self.has(Part::Device) && self.has(Part::Tlb)) {
            return Err("guest_rings needs parts device and tlb".into());
        }
        if self.controllers.is_some() && !self.has(Part::Counters) {
            return Err("controllers need part counters".into());
        }
        if self.guest_rings && self.when_full == WhenFull::Wait {
            // The reader may be a program that needs the waiting vCPU.
            return Err(
                "guest_rings needs when_full = \"count\": a vCPU cannot wait for itself".into()
            );
        }
        if self.cpus == 0 || self.cpus > MOST_CPUS {
            return Err(format!("cpus = {} is not in 1..={MOST_CPUS}", self.cpus));
        }
        if !self.touched_slots.is_power_of_two() {
            return Err(format!("touched_slots = {} is no power of two", self.touched_slots));
        }
        if self.flush_us == 0 {
            return Err("flush_us = 0 would flush without end".into());
        }
        if self.names && !self.has(Part::Raw) {
            return Err("names are among raw records: they need part raw".into());
        }
        let tiers = self.tiers.as_ref().map_or(0, Vec::len);
        match tiers > self.nodes.len() {
            true => Err(format!("{tiers} tiers for {} nodes", self.nodes.len())),
            false => Ok(()),
        }
    }

    /// Checks that all enabled parts are available in user emulation.
    ///
    /// # Errors
    /// The first part that is not available.
    pub fn check_user_mode(&self) -> Result<(), String> {
        match self.parts.iter().find(|part| !part.in_user_mode()) {
            Some(part) => Err(format!("part {} needs a machine, not a program", part.name())),
            None => Ok(()),
        }
    }

    /// Latency and bandwidth of each node: as configured, or the difference of the machine's tiers
    /// to its first tier.
    #[must_use]
    pub fn tiers_of(&self, machine: &Machine) -> Vec<Node> {
        let first = machine.tiers.first().map_or(0, |tier| tier.read_ns);
        let node = |tier: &MemoryTier| Node {
            spin_ns: tier.read_ns.saturating_sub(first),
            mib_s: if tier.read_mib_s < EMULATED_MIB_S { tier.read_mib_s as u32 } else { 0 },
        };
        let described = || machine.tiers.iter().map(node).take(self.nodes.len()).collect();
        self.tiers.clone().unwrap_or_else(described)
    }

    /// The machine whose caches, TLBs and tiers are modelled.
    ///
    /// # Errors
    /// There is no machine of that name, or its file is invalid.
    pub fn machine(&self) -> Result<Machine, String> {
        let machine = if self.machine.contains('/') || self.machine.ends_with(".toml") {
            let text = std::fs::read_to_string(&self.machine)
                .map_err(|e| format!("{}: {e}", self.machine))?;
            Machine::parse(&self.machine, &text)
        } else {
            Machine::ready_made(&self.machine)
        };
        machine.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Options::parse(text).unwrap_err()
    }

    #[test]
    fn omitted_options_have_sane_defaults() {
        let options = Options::parse("run = '/r'\nparts = ['llc', 'raw']").unwrap();
        assert!(options.has(Part::Llc) && options.has(Part::Raw) && !options.has(Part::Tlb));
        assert_eq!((options.flush_us, options.cpus, options.when_full), (5000, 2, WhenFull::Wait));
        assert_eq!(options.machine().unwrap().name, "qemu-two-tiers");
    }

    #[test]
    fn conflicting_options_are_refused_by_name() {
        assert!(error("run = '/r'\nparts = ['tiers']").contains("tiers needs part llc"));
        assert!(error("run = '/r'\nparts = ['llc', 'counters']").contains("needs part device"));
        assert!(
            error("run = '/r'\nparts = ['tlb']\nguest_rings = true").contains("needs parts device")
        );
        let rings = "run = '/r'\nparts = ['device', 'tlb']\nguest_rings = true";
        assert!(error(rings).contains("cannot wait"));
        assert!(Options::parse(&format!("{rings}\nwhen_full = 'count'")).is_ok());
        assert!(error("run = '/r'\nparts = ['turbo']").contains("turbo"));
        assert!(error("run = '/r'\nparts = []\nspeed = 3").contains("speed"));
        assert!(error("run = '/r'\nparts = []\ncpus = 65").contains("65"));
        assert!(
            error("run = '/r'\nparts = []\ntiers = [{ spin_ns = 3 }]")
                .contains("1 tiers for 0 nodes")
        );
        assert!(error("run = '/r'\nparts = []\ntouched_slots = 3").contains("power of two"));
        assert!(error("run = '/r'\nparts = []\nflush_us = 0").contains("flush_us"));
        assert!(error("run = '/r'\nparts = ['llc']\nnames = true").contains("part raw"));
    }

    // 250 ns against 80 ns: 170 ns more. 20 and 96 GiB/s are beyond emulation.
    #[test]
    fn tiers_are_the_machine_s_by_default() {
        let nodes = "nodes = [{ path = '/0', bytes = 1 }, { path = '/1', bytes = 1 }]";
        let of = |more: &str| {
            let text = format!("run = '/r'\nparts = ['llc', 'tiers']\n{nodes}\n{more}");
            let options = Options::parse(&text).unwrap();
            options.tiers_of(&options.machine().unwrap())
        };
        let slow = Node { spin_ns: 170, mib_s: 0 };
        assert_eq!(of(""), [Node::default(), slow]);
        assert_eq!(of("tiers = [{}, {}]"), [Node::default(); 2]);
        assert_eq!(of("tiers = []"), []);
    }

    #[test]
    fn programs_have_no_kernel_to_flush() {
        let options = Options::parse("run = '/r'\nparts = ['raw', 'flush']").unwrap();
        assert!(options.check_user_mode().unwrap_err().contains("flush"));
        let options = Options::parse("run = '/r'\nparts = ['raw', 'touched']").unwrap();
        assert!(options.check_user_mode().is_ok());
    }

    #[test]
    fn every_part_is_known_by_its_name() {
        use Part::{Counters, Device, Flush, Llc, Raw, Tiers, Tlb, Touched};
        for part in [Llc, Tiers, Device, Counters, Tlb, Raw, Touched, Flush] {
            let text = format!("run = '/r'\nparts = ['llc', 'device', '{}']", part.name());
            assert!(Options::parse(&text).unwrap().has(part), "{}", part.name());
        }
    }
}
