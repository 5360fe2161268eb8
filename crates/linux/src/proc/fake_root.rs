//! A procfs of a few processes, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::Proc;

const KERNEL_THREAD: u32 = 0x20_0000;

/// The directory, removed on drop.
pub(crate) struct Root(tempfile::TempDir);

/// A process that is being added.
pub(crate) struct Added<'r> {
    root: &'r Root,
    pid: u32,
    comm: &'r str,
    state: char,
}

impl Root {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn proc(&self) -> Proc {
        Proc::at(self.0.path())
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Adds a process without children, or replaces it.
    pub(crate) fn process<'r>(&'r self, pid: u32, comm: &'r str, state: char) -> Added<'r> {
        fs::create_dir_all(self.path(&format!("{pid}/task/{pid}"))).unwrap();
        fs::write(self.path(&format!("{pid}/comm")), format!("{comm}\n")).unwrap();
        let added = Added { root: self, pid, comm, state };
        added.write_stat(0);
        added.group(pid).children("")
    }

    /// Removes a process.
    pub(crate) fn remove(&self, pid: u32) {
        fs::remove_dir_all(self.path(&pid.to_string())).unwrap();
    }
}

impl Added<'_> {
    fn write_stat(&self, flags: u32) {
        let Self { pid, comm, state, .. } = self;
        let stat =
            format!("{pid} ({comm}) {state} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 5\n");
        fs::write(self.root.path(&format!("{pid}/stat")), stat).unwrap();
    }

    /// It is a thread of the kernel.
    pub(crate) fn kernel_thread(self) -> Self {
        self.write_stat(KERNEL_THREAD);
        self
    }

    /// It is a thread of that process.
    pub(crate) fn group(self, group: u32) -> Self {
        let status = format!("Name:\t{}\nTgid:\t{group}\n", self.comm);
        fs::write(self.root.path(&format!("{}/status", self.pid)), status).unwrap();
        self
    }

    /// Its children, as the kernel prints them: `2 3 `.
    pub(crate) fn children(self, children: &str) -> Self {
        let pid = self.pid;
        fs::write(self.root.path(&format!("{pid}/task/{pid}/children")), children).unwrap();
        self
    }

    /// Path of its program.
    pub(crate) fn program(self, path: &str) -> Self {
        symlink(path, self.root.path(&format!("{}/exe", self.pid))).unwrap();
        self
    }
}
