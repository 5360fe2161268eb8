//! Groups of processes: the children of a process, the processes of a cgroup.

use std::fs;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use super::{Proc, malformed, read_whole, unreadable, vanished};

impl Proc {
    /// Appends the children of all threads of `pid`; none if it is gone.
    ///
    /// The kernel may omit a child while its siblings exit (Documentation/filesystems/proc.rst,
    /// 3.7): the next refresh finds it.
    ///
    /// # Errors
    /// If they cannot be read, or if the kernel does not list them (`CONFIG_PROC_CHILDREN`).
    pub fn children(&self, pid: u32, out: &mut Vec<u32>) -> Result<()> {
        let tasks = self.path(pid, "task");
        for task in list(&tasks)? {
            let path = task.join("children");
            match read_whole(&path)? {
                Some(text) => parse_pids(&path, &text, out)?,
                None if task.is_dir() => return Err(children_unknown(&path)),
                None => {}
            }
        }
        Ok(())
    }
}

fn children_unknown(path: &Path) -> Error {
    Error::new(ErrorKind::Missing, "cannot follow the children of a process")
        .cause(format!("this kernel has no {} (CONFIG_PROC_CHILDREN)", path.display()))
        .remedy("watch a cgroup instead: --cgroup PATH")
}

/// A directory of the cgroup v2 hierarchy.
#[derive(Clone, Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Finds the cgroup at `path`, or at `path` below `mount` (usually /sys/fs/cgroup).
    ///
    /// # Errors
    /// [`ErrorKind::NoTarget`] if there is none, [`ErrorKind::Usage`] if it is not of version 2.
    pub fn find(path: &Path, mount: &Path) -> Result<Self> {
        let below = mount.join(path.strip_prefix("/").unwrap_or(path));
        let what = || format!("cannot watch cgroup {}", path.display());
        let Some(found) = [path, &below].into_iter().find(|p| p.join("cgroup.procs").is_file())
        else {
            return Err(Error::new(ErrorKind::NoTarget, what())
                .cause("there is no such cgroup")
                .remedy("list them with `systemd-cgls` or `find /sys/fs/cgroup -type d`"));
        };
        if !found.join("cgroup.controllers").is_file() {
            return Err(Error::new(ErrorKind::Usage, what())
                .cause("it is not a cgroup of version 2")
                .remedy(
                    "give a directory of the unified hierarchy, usually below /sys/fs/cgroup",
                ));
        }
        Ok(Self { path: found.to_path_buf() })
    }

    /// The cgroup's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends the processes of the cgroup and of those below it. Processes of another pid
    /// namespace, which the kernel shows as 0, are omitted.
    ///
    /// # Errors
    /// If the files cannot be read or parsed. A cgroup that vanished has no processes.
    pub fn processes(&self, out: &mut Vec<u32>) -> Result<()> {
        let mut left = vec![self.path.clone()];
        while let Some(directory) = left.pop() {
            let path = directory.join("cgroup.procs");
            if let Some(text) = read_whole(&path)? {
                parse_pids(&path, &text, out)?;
            }
            left.extend(list(&directory)?.into_iter().filter(|entry| entry.is_dir()));
        }
        out.retain(|pid| *pid != 0);
        Ok(())
    }
}

/// Paths of a directory's entries; none if it is gone.
pub(super) fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if vanished(&error) => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(directory, &error)),
    };
    Ok(entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect())
}

/// Parses process ids separated by white space.
fn parse_pids(path: &Path, text: &[u8], out: &mut Vec<u32>) -> Result<()> {
    for (number, line) in text.split(|b| *b == b'\n').enumerate() {
        for word in line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
            let pid = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
            out.push(pid.ok_or_else(|| malformed(path, number + 1, "process id", word))?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn children_of_all_threads() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "5/task/5/children", "10 11 ");
        put(root.path(), "5/task/6/children", "");
        put(root.path(), "5/task/7/children", "12 ");
        let mut children = Vec::new();
        Proc::at(root.path()).children(5, &mut children).unwrap();
        children.sort_unstable();
        assert_eq!(children, [10, 11, 12]);
    }

    #[test]
    fn a_kernel_without_children_files_is_refused() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "5/task/5/stat", "");
        let error = Proc::at(root.path()).children(5, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.to_string().contains("CONFIG_PROC_CHILDREN"));
    }

    #[test]
    fn a_cgroup_includes_the_cgroups_below_it() {
        let mount = tempfile::tempdir().unwrap();
        put(mount.path(), "app/cgroup.controllers", "");
        put(mount.path(), "app/cgroup.procs", "1\n0\n2\n");
        put(mount.path(), "app/worker/cgroup.procs", "3\n");
        let cgroup = Cgroup::find(Path::new("/app"), mount.path()).unwrap();
        let mut pids = Vec::new();
        cgroup.processes(&mut pids).unwrap();
        pids.sort_unstable();
        assert_eq!(pids, [1, 2, 3]);
    }

    #[test]
    fn a_directory_that_is_no_cgroup_is_refused() {
        let mount = tempfile::tempdir().unwrap();
        let kind = |path: &str| Cgroup::find(Path::new(path), mount.path()).unwrap_err().kind();
        assert_eq!(kind("none"), ErrorKind::NoTarget);
        put(mount.path(), "v1/cgroup.procs", "");
        assert_eq!(kind("v1"), ErrorKind::Usage);
    }

    #[test]
    fn an_error_names_its_line() {
        let error = parse_pids(Path::new("p"), b"1\n2x\n", &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("line 2: no process id in \"2x\""), "{error}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse_pids(Path::new("p"), &bytes, &mut Vec::new());
        }
    }
}
