//! CPU limits of the tenants' cgroups, by `cpu.max`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use super::Places;
use super::group::Group;
use super::journal::{Entry, Found, Journal, Journals, not_restored};
use crate::cpus::online;
use crate::maker::Maker;
use crate::proc::{Cgroup, Proc};

/// CPU limits of some cgroups, which no other program limits meanwhile. A limit is never above the
/// administrator's own. Dropping this restores all limits; [`CpuLimits::restore`] also reports
/// each limit that it could not restore.
#[derive(Debug)]
pub struct CpuLimits {
    sys: PathBuf,
    /// Online CPUs of the machine.
    online: f64,
    quotas: Vec<CpuQuota>,
    /// `None` to change no limit.
    journal: Option<Journal>,
    /// Limits "before" changed since the journal was last forced to the medium.
    fresh: bool,
}

impl CpuLimits {
    /// Reads the limits of `cgroups`, after it has restored what an ended program left, and
    /// begins a journal. Returns a warning for each journal that is damaged.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if a cgroup has no limit: the controller `cpu` is not enabled for it.
    /// [`ErrorKind::Usage`] if a running program limits it. Others if an earlier limit cannot be
    /// restored, or if no journal can be written.
    pub fn open(places: &Places, cgroups: &[Cgroup]) -> Result<(Self, Vec<Error>)> {
        let proc = Proc::at(&places.proc);
        let mut limits = Self::read(places, cgroups)?;
        let journals = Journals::lock(&places.journals)?;
        let found = journals.found(&places.cgroups, &proc)?;
        let (running, ended): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| found.runs);
        let mut warnings = Vec::new();
        for journal in ended {
            match journal.restore() {
                Err(error) if error.kind() == ErrorKind::Data => warnings.push(error),
                other => drop(other?),
            }
        }
        running.iter().try_for_each(|other| limits.check_free(other))?;
        limits.journal = Some(journals.journal(Maker::own(&proc)?)?);
        limits.look()?;
        limits.write_journal()?;
        Ok((limits, warnings))
    }

    /// Reads the limits of `cgroups`, and will change none.
    ///
    /// # Errors
    /// If a cgroup is not below that root, or has no limit.
    pub fn read(places: &Places, cgroups: &[Cgroup]) -> Result<Self> {
        let quotas = cgroups.iter().map(|cgroup| CpuQuota::of(cgroup, &places.cgroups));
        let quotas = quotas.collect::<Result<Vec<_>>>()?;
        let sys = places.sys.clone();
        let online = online(&sys).len() as f64;
        if online == 0.0 {
            return Err(Error::new(ErrorKind::Missing, "cannot count the CPUs of this machine")
                .cause(format!("no list in {}", sys.join("devices/system/cpu/online").display()))
                .remedy("mount /sys"));
        }
        let mut limits = Self { sys, online, quotas, journal: None, fresh: true };
        limits.look()?;
        Ok(limits)
    }

    /// Refuses cgroups that another running program limits.
    fn check_free(&self, other: &Found) -> Result<()> {
        let theirs = other.entries.iter().flatten().map(|entry| &entry.path);
        match theirs.into_iter().find(|path| self.quotas.iter().any(|own| own.path == **path)) {
            None => Ok(()),
            Some(path) => {
                Err(Error::new(ErrorKind::Usage, format!("cannot limit {}", path.display()))
                    .cause(format!("process {} limits it already", other.owner.pid))
                    .remedy("end that process, or leave the tenant out"))
            }
        }
    }

    /// Number of cgroups.
    pub(super) fn count(&self) -> usize {
        self.quotas.len()
    }

    /// CPUs that a cgroup may use by the administrator's limit, at most those of the machine.
    pub(super) fn entitled(&self, tenant: usize) -> f64 {
        let entry = self.quotas[tenant].entry.as_ref();
        entry.map_or(self.online, |entry| entry.before.cpus().min(self.online))
    }

    /// Counts the CPUs of the machine again.
    pub(super) fn refresh(&mut self) {
        let online = online(&self.sys).len();
        if online > 0 {
            self.online = online as f64;
        }
    }

    /// Reads all limits: a limit that is not ours is the administrator's.
    fn look(&mut self) -> Result<()> {
        for quota in &mut self.quotas {
            self.fresh |= quota.look().map_err(|cause| quota.failed(cause))?;
        }
        Ok(())
    }

    /// Limits each cgroup to a number of CPUs, or with `None` to the administrator's limit. A
    /// cgroup that is gone is left out until it returns.
    ///
    /// # Errors
    /// If the kernel refuses a limit, or the journal cannot be written.
    pub(super) fn limit(&mut self, cpus: &[Option<f64>]) -> Result<()> {
        self.look()?;
        if self.journal.is_none() {
            return Ok(());
        }
        let mut changes = false;
        for (quota, cpus) in self.quotas.iter_mut().zip(cpus) {
            changes |= quota.plan(*cpus, self.online);
        }
        if !changes {
            return Ok(());
        }
        self.write_journal()?;
        let mut write = |quota: &mut CpuQuota| quota.write().map_err(|cause| quota.failed(cause));
        self.quotas.iter_mut().try_for_each(&mut write)
    }

    fn write_journal(&mut self) -> Result<()> {
        let entries = self.quotas.iter().filter_map(|quota| quota.entry.as_ref());
        if let Some(journal) = &self.journal {
            journal.write(entries, self.fresh)?;
            self.fresh = false;
        }
        Ok(())
    }

    /// Restores the limits, except of cgroups that are gone, and except limits that the
    /// administrator has changed.
    ///
    /// # Errors
    /// Names each limit that could not be restored, with the command that does it. They stay in the
    /// journal.
    pub fn restore(&mut self) -> Result<()> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        let entries = self.quotas.iter().filter_map(|quota| quota.entry.as_ref());
        let failed = |entry| Entry::restore(entry).err().map(|cause| (entry, cause));
        let failed: Vec<_> = entries.filter_map(failed).collect();
        if failed.is_empty() {
            return journal.remove();
        }
        // The other error is reported, and the journal as it was also has these entries.
        let _ = journal.write(failed.iter().map(|(entry, _)| *entry), true);
        Err(not_restored(&failed))
    }
}

impl Drop for CpuLimits {
    fn drop(&mut self) {
        // An error has no place to go, and the journal stays.
        drop(self.restore());
    }
}

/// CPU limit of a cgroup.
#[derive(Debug)]
struct CpuQuota {
    path: PathBuf,
    /// `None` while the cgroup is gone.
    entry: Option<Entry>,
}

impl CpuQuota {
    fn of(cgroup: &Cgroup, root: &Path) -> Result<Self> {
        let missing = |cause: String| {
            let parent = cgroup.path().parent().unwrap_or(root);
            Error::new(ErrorKind::Missing, format!("cannot limit {}", cgroup.path().display()))
                .cause(cause)
                .remedy(format!("echo +cpu > {}/cgroup.subtree_control", parent.display()))
        };
        let path = fs::canonicalize(cgroup.path()).map_err(|cause| missing(cause.to_string()))?;
        let root = fs::canonicalize(root).map_err(|cause| missing(cause.to_string()))?;
        if !path.starts_with(&root) || path == root {
            return Err(missing(format!("it is not below {}", root.display())));
        }
        match Group::open(&path).and_then(|group| group.map_or(Ok(None), |group| group.read())) {
            Ok(Some(_)) => Ok(Self { path, entry: None }),
            Ok(None) => Err(missing(format!("there is no {}", path.join("cpu.max").display()))),
            Err(cause) => Err(missing(format!("{}: {cause}", path.join("cpu.max").display()))),
        }
    }

    /// Reads the limit. Returns whether the administrator's limit is a new one: the file does not
    /// say what was written last, or the cgroup is another one with the same path.
    fn look(&mut self) -> io::Result<bool> {
        let group = Group::open(&self.path)?;
        let now = match &group {
            Some(group) => group.read()?.map(|limit| (group.inode, limit)),
            None => None,
        };
        let known = self.entry.as_ref().map(|entry| (entry.inode, entry.set));
        if now == known {
            return Ok(false);
        }
        let entry = |(inode, limit)| Entry {
            path: self.path.clone(),
            inode,
            before: limit,
            set: limit,
            next: limit,
        };
        self.entry = now.map(entry);
        Ok(true)
    }

    /// Chooses the next limit; returns whether it differs from the one in force.
    fn plan(&mut self, cpus: Option<f64>, online: f64) -> bool {
        let Some(entry) = &mut self.entry else { return false };
        let lowered = |cpus: f64| entry.before.lowered_to(cpus.min(online));
        entry.next = cpus.map_or(entry.before, lowered);
        entry.next != entry.set
    }

    /// Writes the next limit if it differs from the one in force. Since the last look the cgroup
    /// may have gone, and returned, and the administrator may have limited it: all is left to the
    /// next look then. (The kernel has no write under a condition: between this read and the write
    /// some microseconds remain.)
    fn write(&mut self) -> io::Result<()> {
        let Some(entry) = self.entry.as_mut().filter(|entry| entry.next != entry.set) else {
            return Ok(());
        };
        if let Some(group) = entry.group()?
            && group.read()? == Some(entry.set)
            && group.write(entry.next)?
        {
            entry.set = entry.next;
        }
        Ok(())
    }

    fn failed(&self, cause: io::Error) -> Error {
        Error::new((&cause).into(), format!("cannot use {}", self.path.join("cpu.max").display()))
            .cause(cause)
            .remedy("run as root, or as the cgroup's owner; cpu.max.burst must be 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_the_administrator_sets_after_the_look_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("tenant");
        fs::create_dir(&group).unwrap();
        let file = group.join("cpu.max");
        fs::write(&file, "max 100000\n").unwrap();
        let mut quota = CpuQuota { path: group, entry: None };
        assert!(quota.look().unwrap());
        assert!(quota.plan(Some(0.5), 4.0));
        fs::write(&file, "75000 50000\n").unwrap();
        quota.write().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "75000 50000\n");
        assert!(quota.look().unwrap());
        assert!(quota.plan(Some(0.5), 4.0));
        quota.write().unwrap();
        assert!(fs::read_to_string(&file).unwrap().starts_with("25000 50000\n"));
    }
}
