//! Names for what a process makes in the kernel and its death does not remove: CPU limits, tracing
//! instances, monitoring groups, a kdamond. The next start finds and clears what was left.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use crate::proc::Proc;

/// A process, identified beyond its life: its name is `PID-START`, with the start time in clock
/// ticks after boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maker {
    pub(crate) pid: u32,
    started: u64,
}

impl Maker {
    /// This process.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if it is not in `proc`.
    pub(crate) fn own(proc: &Proc) -> Result<Self> {
        let pid = std::process::id();
        let stat = proc.stat(pid)?.ok_or_else(|| {
            Error::new(ErrorKind::Missing, "cannot find this process in /proc")
                .cause("it shows another pid namespace, or hides processes")
                .remedy("mount the /proc of this namespace, without hidepid")
        })?;
        Ok(Self { pid, started: stat.started })
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (pid, started) = name.split_once('-')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }

    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.pid, self.started)
    }

    /// Whether the process lives.
    ///
    /// # Errors
    /// If `proc` cannot be read.
    pub(crate) fn runs(self, proc: &Proc) -> Result<bool> {
        let stat = proc.stat(self.pid)?;
        Ok(stat.is_some_and(|stat| stat.started == self.started && !stat.has_ended()))
    }
}

/// First part of the names of directories that a [`Maker`] has made among those of other programs.
pub(crate) const PREFIX: &str = "tierscope-";

/// Directories in `parent` of processes that have ended: `tierscope-PID-START`, with or without a
/// further part. Names of any other form belong to other programs.
pub(crate) fn left_in(parent: &Path, proc: &Proc) -> Vec<PathBuf> {
    let maker_of = |name: &OsStr| {
        let name = name.to_str()?.strip_prefix(PREFIX)?;
        let (pid, rest) = name.split_once('-')?;
        let started = rest.split_once('-').map_or(rest, |(started, _)| started);
        Maker::parse(&format!("{pid}-{started}"))
    };
    let has_ended = |maker: Maker| maker.runs(proc) == Ok(false);
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let left = entries.filter(|entry| maker_of(&entry.file_name()).is_some_and(has_ended));
    left.map(|entry| entry.path()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A process that has ended: no pid is as large.
    pub(crate) const ENDED: &str = "4194305-17";

    #[test]
    fn a_maker_is_found_by_its_name() {
        let proc = Proc::default();
        let own = Maker::own(&proc).unwrap();
        assert_eq!(Maker::parse(&own.name()), Some(own));
        assert_eq!(own.runs(&proc), Ok(true));
        // Another process with this pid, before.
        let before = Maker { started: own.started - 1, ..own };
        assert_eq!(before.runs(&proc), Ok(false));
        assert_eq!(Maker::parse(ENDED).unwrap().runs(&proc), Ok(false));
        assert_eq!(Maker::parse("12"), None);
        assert_eq!(Maker::parse("12-13-0"), None);
    }

    #[test]
    fn only_what_ended_processes_left_is_found() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), Proc::default());
        let own = Maker::own(&proc).unwrap().name();
        let left = [format!("tierscope-{ENDED}"), format!("tierscope-{ENDED}-3")];
        let others = [
            format!("tierscope-{own}"),
            format!("tierscope-{own}-0"),
            "tierscope-4194305".into(),
            "tierscope-mine".into(),
            "tierscope-a-b".into(),
            format!("other-{ENDED}"),
            ENDED.into(),
        ];
        for name in left.iter().chain(&others) {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut found = left_in(dir.path(), &proc);
        found.sort();
        assert_eq!(found, left.map(|name| dir.path().join(name)));
        assert_eq!(left_in(&dir.path().join("none"), &proc), [] as [PathBuf; 0]);
    }
}
