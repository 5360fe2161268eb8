//! What software costs: time of a CPU for a probe, a fault, a page moved.

use serde::{Deserialize, Serialize};
use tierscope_core::{Error, ErrorKind, Result};

/// Costs of one operating system on one kind of server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Its name, as on the command line.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Probes and scans of ACCESSED bits.
    pub access_bits: AccessBitCosts,
    /// Sampled accesses.
    pub samples: SampleCosts,
    /// Page faults and hint faults.
    pub faults: FaultCosts,
    /// TLB shootdowns.
    pub shootdown: ShootdownCosts,
    /// Moving, splitting and collapsing pages.
    pub moves: MoveCosts,
}

/// Probes and scans of ACCESSED bits; charged to the profiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessBitCosts {
    /// Nanoseconds of a call, however much it asks.
    pub call_ns: u64,
    /// Nanoseconds of a probe in a batch.
    pub probe_ns: u64,
    /// Nanoseconds of an entry looked at in a scan.
    pub entry_ns: u64,
    /// Nanoseconds more for a young entry that a scan clears.
    pub clear_ns: u64,
    /// Where the numbers come from.
    pub source: String,
    /// Keys of this table that are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// Sampled accesses; charged to the core that is sampled, but for what reading them takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleCosts {
    /// Nanoseconds that hardware takes to write a record.
    pub record_ns: u64,
    /// Nanoseconds of the interrupt when the hardware's buffer is full.
    pub interrupt_ns: u64,
    /// Nanoseconds of the interrupt for each record in it.
    pub handle_ns: u64,
    /// Nanoseconds of the profiler for a sample that it reads.
    pub read_ns: u64,
    /// Where the numbers come from.
    pub source: String,
    /// Keys of this table that are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
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
    /// Where the numbers come from.
    pub source: String,
    /// Keys of this table that are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// TLB shootdowns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShootdownCosts {
    /// Nanoseconds of whoever asks for it, for the first core.
    pub initiator_ns: u64,
    /// Nanoseconds more for each further core.
    pub each_core_ns: u64,
    /// Nanoseconds of a core that is interrupted.
    pub responder_ns: u64,
    /// Pages from which on a whole address space is flushed instead.
    pub flush_all_pages: u64,
    /// Where the numbers come from.
    pub source: String,
    /// Keys of this table that are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// Moving, splitting and collapsing pages; charged to the mover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveCosts {
    /// Nanoseconds of a page that moves, whatever its size, apart from the copy.
    pub page_ns: u64,
    /// MiB a second that one CPU copies, if no tier is slower.
    pub copy_mib_s: u64,
    /// Pages that move between two shootdowns.
    pub batch: u64,
    /// Nanoseconds to split a page of 2 MiB.
    pub split_ns: u64,
    /// Nanoseconds to collapse into a page of 2 MiB, apart from the copy.
    pub collapse_ns: u64,
    /// Where the numbers come from.
    pub source: String,
    /// Keys of this table that are assumed.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// The ready-made costs: name and TOML text.
const READY_MADE: &[(&str, &str)] = &[("linux", include_str!("../../costs/linux.toml"))];

impl Costs {
    /// Reads a file of costs and checks it; `name` is for errors, usually the file's.
    ///
    /// # Errors
    /// Not TOML, an unknown key, an impossible value: where and why.
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
    /// There are none; the error lists those that there are.
    pub fn ready_made(name: &str) -> Result<Costs> {
        let found = READY_MADE.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| {
            let names: Vec<&str> = READY_MADE.iter().map(|(name, _)| *name).collect();
            Error::new(ErrorKind::Usage, format!("there are no ready-made costs {name}"))
                .remedy(format!("choose one of {}, or give a file", names.join(", ")))
        })?;
        Costs::parse(name, text)
    }

    fn check(&self, name: &str) -> Result<()> {
        let above_zero = [
            ("moves.copy_mib_s", self.moves.copy_mib_s),
            ("moves.batch", self.moves.batch),
            ("shootdown.flush_all_pages", self.shootdown.flush_all_pages),
        ];
        for (key, value) in above_zero {
            if value == 0 {
                return Err(Error::new(ErrorKind::Usage, format!("costs {name}, {key}"))
                    .cause("it is 0")
                    .remedy("give at least 1"));
            }
        }
        let sources = [
            ("access_bits", &self.access_bits.source),
            ("samples", &self.samples.source),
            ("faults", &self.faults.source),
            ("shootdown", &self.shootdown.source),
            ("moves", &self.moves.source),
        ];
        match sources.iter().find(|(_, source)| source.is_empty()) {
            None => Ok(()),
            Some((table, _)) => {
                Err(Error::new(ErrorKind::Usage, format!("costs {name}, {table}.source"))
                    .cause("it is empty")
                    .remedy("say where the numbers come from"))
            }
        }
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
    fn wrong_files_are_refused_by_line_and_key() {
        let text = READY_MADE[0].1;
        let error = Costs::parse("c.toml", &text.replacen("[faults]", "[faults]\nfee = 1", 1));
        let error = error.expect_err("unknown key").to_string();
        assert!(error.contains("unknown field `fee`") && error.contains("line "), "{error}");
        let error = Costs::parse("c.toml", &text.replacen("batch = 32", "batch = 0", 1));
        let error = error.expect_err("no batch").to_string();
        assert!(error.contains("moves.batch: it is 0"), "{error}");
    }
}
