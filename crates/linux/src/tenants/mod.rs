//! Tenants: cgroups whose CPU time a policy limits by their memory traffic.
//!
//! [`LiveTenants`] is the port, [`CpuLimits`] the limits, with a journal for the case that this
//! program is killed: [`restore`]. Two programs never limit the same cgroup.
//!
//! Between reading and writing `cpu.max` lie some microseconds in which a change by the
//! administrator is lost: the kernel has no way to compare and write in one step.

mod cpu_max;
mod group;
mod journal;
mod limits;
mod machine;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use tierscope_core::{Error, Result};

use self::journal::Journals;
use crate::proc::Proc;
pub use limits::CpuLimits;
pub use machine::LiveTenants;

/// Directories of the machine.
#[derive(Clone, Debug)]
pub struct Places {
    /// Mount of the cgroup hierarchy: only cgroups below it are limited or restored.
    pub cgroups: PathBuf,
    /// Journals of limits.
    pub journals: PathBuf,
    /// Mount of sysfs.
    pub sys: PathBuf,
    /// Mount of procfs.
    pub proc: PathBuf,
}

impl Places {
    /// The usual directories below `root`, except /proc, where running processes are looked up.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self {
            cgroups: root.join("sys/fs/cgroup"),
            journals: root.join("run/tierscope/qos"),
            sys: root.join("sys"),
            proc: "/proc".into(),
        }
    }
}

/// Limits that were left.
#[derive(Debug, Default)]
pub struct Restored {
    /// Cgroups whose limit was restored.
    pub restored: Vec<PathBuf>,
    /// Processes that still run, whose journals were left alone.
    pub running: Vec<u32>,
    /// Journals that are damaged, and limits that could not be restored.
    pub failed: Vec<Error>,
}

/// Restores the limits that ended programs left.
///
/// # Errors
/// If the directory of journals cannot be used. The failure of one journal is not an error: the
/// others are restored.
pub fn restore(places: &Places) -> Result<Restored> {
    let mut all = Restored::default();
    if !places.journals.exists() {
        return Ok(all);
    }
    let journals = Journals::lock(&places.journals)?;
    for found in journals.found(&places.cgroups, &Proc::at(&places.proc))? {
        if found.runs {
            all.running.push(found.owner.pid);
            continue;
        }
        match found.restore() {
            Ok(restored) => all.restored.extend(restored),
            Err(error) => all.failed.push(error),
        }
    }
    Ok(all)
}
