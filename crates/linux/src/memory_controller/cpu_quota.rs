//! CPU quota of a cgroup: `cpu.max` (Documentation/admin-guide/cgroup-v2.rst, "CPU Interface
//! Files").

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result};

use crate::proc::Cgroup;

/// Period in microseconds: the kernel's default.
const PERIOD_US: u64 = 100_000;
/// Minimum quota that the kernel accepts (kernel/sched/core.c, `min_cfs_quota_period`).
const LEAST_US: u64 = 1000;

/// A cgroup's CPU limit. Dropping this restores the previous limit.
#[derive(Debug)]
pub struct CpuQuota {
    path: PathBuf,
    before: String,
    set: Option<u128>,
}

impl CpuQuota {
    /// The period that a quota refers to.
    pub const PERIOD: Duration = Duration::from_micros(PERIOD_US);

    /// CPU time of `cpus` CPUs in a period: in whole microseconds, and at least the kernel's
    /// minimum.
    #[must_use]
    pub fn of_period(cpus: f64) -> Duration {
        Duration::from_micros(((cpus * PERIOD_US as f64) as u64).max(LEAST_US))
    }

    /// Reads the current limit of a cgroup.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if the cgroup has none: the controller `cpu` is not enabled for it.
    pub fn of(cgroup: &Cgroup) -> Result<Self> {
        let path = cgroup.path().join("cpu.max");
        let before = fs::read_to_string(&path).map_err(|cause| {
            let parent = cgroup.path().parent().unwrap_or(Path::new("/sys/fs/cgroup"));
            Error::new(ErrorKind::Missing, format!("cannot limit {}", cgroup.path().display()))
                .cause(format!("{}: {cause}", path.display()))
                .remedy(format!("echo +cpu > {}/cgroup.subtree_control", parent.display()))
        })?;
        Ok(Self { path, before, set: None })
    }

    /// Limits the cgroup to `cpus` CPUs. Setting the same limit again costs nothing.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set(&mut self, cpus: f64) -> Result<()> {
        let quota = Self::of_period(cpus).as_micros();
        if self.set == Some(quota) {
            return Ok(());
        }
        self.write(&format!("{quota} {PERIOD_US}"))?;
        self.set = Some(quota);
        Ok(())
    }

    fn write(&self, text: &str) -> Result<()> {
        fs::write(&self.path, text).map_err(|cause| {
            let kind = match cause.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::Permission,
                _ => ErrorKind::Io,
            };
            let what = format!("cannot write to {}", self.path.display());
            Error::new(kind, what).cause(cause).remedy("run as root, or as the cgroup's owner")
        })
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        if self.set.is_some() {
            // The cgroup may have been removed by now.
            let _ = self.write(self.before.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(cpu_max: Option<&str>) -> (tempfile::TempDir, Cgroup) {
        let root = tempfile::tempdir().unwrap();
        for file in ["cgroup.procs", "cgroup.controllers"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        cpu_max.inspect(|text| fs::write(root.path().join("cpu.max"), text).unwrap());
        let cgroup = Cgroup::find(root.path(), root.path()).unwrap();
        (root, cgroup)
    }

    #[test]
    fn a_limit_is_set_and_the_old_one_restored() {
        let (root, cgroup) = group(Some("max 100000\n"));
        let read = || fs::read_to_string(root.path().join("cpu.max")).unwrap();
        let mut quota = CpuQuota::of(&cgroup).unwrap();
        assert_eq!(read(), "max 100000\n", "opening changes nothing");
        quota.set(0.25).unwrap();
        assert_eq!(read(), "25000 100000");
        quota.set(1e-9).unwrap();
        assert_eq!(read(), "1000 100000", "the kernel's minimum");
        drop(quota);
        assert_eq!(read(), "max 100000");
    }

    #[test]
    fn a_cgroup_without_the_controller_is_refused_with_a_remedy() {
        let (_root, cgroup) = group(None);
        let error = CpuQuota::of(&cgroup).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Missing && error.to_string().contains("+cpu"),
            "{error}"
        );
    }
}
