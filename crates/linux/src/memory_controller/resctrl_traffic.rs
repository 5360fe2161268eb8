//! The processor's memory bandwidth monitoring, through resctrl
//! (Documentation/arch/x86/resctrl.rst).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use super::Traffic;
use crate::maker::{self, Maker};
use crate::proc::{Cgroup, Proc};

/// Monitoring groups, one per tenant. They are removed when this is dropped, or by the next start
/// if the process is killed: processors have few of them.
#[derive(Debug)]
pub struct ResctrlTraffic {
    groups: Vec<PathBuf>,
    tenants: Vec<Cgroup>,
    /// Last counter reading of each group, summed over all domains.
    last: Vec<u64>,
}

impl ResctrlTraffic {
    /// Creates a group for each tenant below `root` (`/sys/fs/resctrl`).
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if the processor does not monitor bandwidth, or if resctrl is not
    /// mounted.
    pub fn open(root: &Path, tenants: Vec<Cgroup>) -> Result<Self> {
        let missing = |cause: String| {
            Error::new(ErrorKind::Missing, "there is no memory bandwidth monitoring")
                .cause(cause)
                .remedy("mount it with `mount -t resctrl resctrl /sys/fs/resctrl`; the processor needs cqm_mbm_total")
        };
        let features = root.join("info/L3_MON/mon_features");
        let text = fs::read_to_string(&features)
            .map_err(|e| missing(format!("{}: {e}", features.display())))?;
        if !text.lines().any(|feature| feature == "mbm_total_bytes") {
            return Err(missing(format!("{} has no mbm_total_bytes", features.display())));
        }
        let (groups, proc) = (root.join("mon_groups"), Proc::default());
        for left in maker::left_in(&groups, &proc) {
            // If it cannot be removed, so that none is free, the next directory cannot be created.
            let _ = fs::remove_dir(left);
        }
        let prefix = format!("{}{}", maker::PREFIX, Maker::own(&proc)?.name());
        let mut made = Self { groups: Vec::new(), last: vec![0; tenants.len()], tenants };
        for number in 0..made.tenants.len() {
            let group = groups.join(format!("{prefix}-{number}"));
            match fs::create_dir(&group) {
                // This process has made it before.
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
                result => result.map_err(|cause| failed(&group, &cause))?,
            }
            made.groups.push(group);
        }
        made.refresh()?;
        made.last = made.groups.iter().map(|group| total(group)).collect::<Result<_>>()?;
        Ok(made)
    }
}

fn failed(path: &Path, cause: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot use {}", path.display())).cause(cause).remedy(
        "run as root; remove unused monitoring groups: info/L3_MON/num_rmids is their maximum",
    )
}

/// Bytes that a group has moved, summed over all cache domains.
fn total(group: &Path) -> Result<u64> {
    let data = group.join("mon_data");
    let domains = fs::read_dir(&data).map_err(|cause| failed(&data, &cause))?;
    let mut sum = 0u64;
    for domain in domains.flatten() {
        let path = domain.path().join("mbm_total_bytes");
        let text = fs::read_to_string(&path).map_err(|cause| failed(&path, &cause))?;
        let bytes: u64 = text.trim().parse().map_err(|_| {
            Error::new(ErrorKind::Missing, format!("cannot read traffic from {}", path.display()))
                .cause(format!("it says {}", text.trim()))
                .remedy("wait until the group's counters are assigned")
        })?;
        sum = sum.wrapping_add(bytes);
    }
    Ok(sum)
}

impl Traffic for ResctrlTraffic {
    fn refresh(&mut self) -> Result<()> {
        for (group, tenant) in self.groups.iter().zip(&self.tenants) {
            let mut pids = Vec::new();
            tenant.processes(&mut pids)?;
            for pid in pids {
                // The process may have ended; threads that it creates later join its group.
                let _ = fs::write(group.join("tasks"), pid.to_string());
            }
        }
        Ok(())
    }

    fn take(&mut self, out: &mut [u64]) -> Result<()> {
        for ((group, last), out) in self.groups.iter().zip(&mut self.last).zip(out) {
            let now = total(group)?;
            *out = now.wrapping_sub(std::mem::replace(last, now));
        }
        Ok(())
    }

    fn peek(&mut self, _: &mut [u64]) -> Result<bool> {
        Ok(false)
    }

    /// resctrl has no notifications.
    fn listen(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Drop for ResctrlTraffic {
    fn drop(&mut self) {
        self.groups.iter().for_each(|group| drop(fs::remove_dir(group)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn traffic_is_the_difference_over_all_domains() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("g");
        for domain in ["mon_L3_00", "mon_L3_01"] {
            put(&group.join("mon_data").join(domain).join("mbm_total_bytes"), "100\n");
        }
        let (groups, last) = (vec![group.clone()], vec![total(&group).unwrap()]);
        let mut monitoring = ResctrlTraffic { groups, tenants: Vec::new(), last };
        put(&group.join("mon_data/mon_L3_01/mbm_total_bytes"), "164\n");
        let mut out = [0];
        monitoring.take(&mut out).unwrap();
        assert_eq!(out, [64]);
        monitoring.take(&mut out).unwrap();
        assert_eq!(out, [0]);
        put(&group.join("mon_data/mon_L3_00/mbm_total_bytes"), "Unavailable\n");
        let error = monitoring.take(&mut out).unwrap_err();
        assert!(error.to_string().contains("Unavailable"), "{error}");
    }

    #[test]
    fn groups_of_ended_processes_are_removed() {
        let root = tempfile::tempdir().unwrap();
        put(&root.path().join("info/L3_MON/mon_features"), "mbm_total_bytes\n");
        let left = root.path().join(format!("mon_groups/tierscope-{}-1", maker::tests::ENDED));
        let other = root.path().join("mon_groups/of_another_program");
        [&left, &other].into_iter().for_each(|group| fs::create_dir_all(group).unwrap());
        let own = Maker::own(&Proc::default()).unwrap().name();
        let group = format!("mon_groups/tierscope-{own}-0");
        let bytes = root.path().join(group).join("mon_data/mon_L3_00/mbm_total_bytes");
        put(&bytes, "100\n");
        for file in ["a/cgroup.procs", "a/cgroup.controllers"] {
            put(&root.path().join(file), "");
        }
        let tenant = Cgroup::find(Path::new("a"), root.path()).unwrap();
        let mut monitoring = ResctrlTraffic::open(root.path(), vec![tenant]).unwrap();
        put(&bytes, "140\n");
        let mut out = [0];
        monitoring.take(&mut out).unwrap();
        assert_eq!(out, [40]);
        assert!(!left.exists() && other.exists());
    }

    #[test]
    fn a_processor_without_monitoring_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let error = ResctrlTraffic::open(root.path(), Vec::new()).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Missing && error.to_string().contains("mount"),
            "{error}"
        );
        put(&root.path().join("info/L3_MON/mon_features"), "llc_occupancy\n");
        let error = ResctrlTraffic::open(root.path(), Vec::new()).unwrap_err();
        assert!(error.to_string().contains("mbm_total_bytes"), "{error}");
    }
}
