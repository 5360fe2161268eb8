//! The processes of a machine: their pids and names.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use tierscope_core::Result;

use super::{Proc, read_whole, tree::list};

/// What the kernel appends to the path of a program that was removed (fs/d_path.c: `d_path`).
const REMOVED: &[u8] = b" (deleted)";

impl Proc {
    /// Pids of all processes, threads of the kernel included, ascending.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub(crate) fn pids(&self) -> Result<Vec<u32>> {
        let entries = list(&self.root)?;
        let pid = |path: &std::path::PathBuf| path.file_name()?.to_str()?.parse().ok();
        let mut pids: Vec<u32> = entries.iter().filter_map(pid).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// Whether a process has memory of its own: it is neither a thread of the kernel nor ended.
    ///
    /// # Errors
    /// As [`Proc::stat`].
    pub(crate) fn is_user_process(&self, pid: u32) -> Result<bool> {
        Ok(self.stat(pid)?.is_some_and(|stat| !stat.kernel_thread && !stat.has_ended()))
    }

    /// The name of a process that the kernel shows; `None` if it is gone.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn comm(&self, pid: u32) -> Result<Option<OsString>> {
        let Some(mut name) = read_whole(&self.path(pid, "comm"))? else { return Ok(None) };
        name.pop_if(|last| *last == b'\n');
        Ok(Some(OsString::from_vec(name)))
    }

    /// The last component of the path of a process's program; `None` if it is gone, has none, as
    /// threads of the kernel, or if the path is not permitted to be read.
    pub(crate) fn program(&self, pid: u32) -> Option<OsString> {
        let path = fs::read_link(self.path(pid, "exe")).ok()?;
        let name = path.file_name()?.as_bytes();
        Some(OsStr::from_bytes(name.strip_suffix(REMOVED).unwrap_or(name)).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_root::Root;
    use super::*;

    #[test]
    fn processes_have_pids_and_names() {
        let root = Root::new();
        root.process(12, "postgres", 'S').program("/usr/bin/postgres (deleted)");
        root.process(3, "kswapd0", 'S').kernel_thread();
        fs::create_dir(root.path("sys")).unwrap();
        let proc = root.proc();
        assert_eq!(proc.pids(), Ok(vec![3, 12]));
        assert_eq!([3, 12, 9].map(|pid| proc.is_user_process(pid)), [false, true, false].map(Ok));
        assert_eq!(proc.comm(12), Ok(Some("postgres".into())));
        assert_eq!((proc.program(12), proc.program(3)), (Some("postgres".into()), None));
        assert_eq!((proc.comm(9), proc.program(9)), (Ok(None), None));
    }
}
