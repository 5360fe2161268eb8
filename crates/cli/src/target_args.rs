//! Flags that name the target, shared by all commands that work on running processes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use tierscope_linux::Selection;

/// The processes to work on. A command that takes another kind of target excludes `children` with
/// it, because clap does not check `requires` of a flag whose requirement conflicts.
#[derive(Clone, Debug, Default, Args)]
pub struct TargetArgs {
    /// Target: the process PID
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,

    /// With -p: and its descendants, including future ones
    #[arg(long, requires = "pid", conflicts_with = "cgroup")]
    pub children: bool,

    /// Target: all processes of a cgroup (version 2) and of its descendants
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
}

impl TargetArgs {
    /// Whether a process or a cgroup is named.
    #[must_use]
    pub(crate) fn is_given(&self) -> bool {
        self.pid.is_some() || self.cgroup.is_some()
    }

    /// The selection of processes; the command `program` if neither a process nor a cgroup is
    /// named.
    #[must_use]
    pub(crate) fn selection(self, program: Vec<OsString>) -> Selection {
        match (self.pid, self.cgroup) {
            (Some(pid), _) => Selection::Process { pid, children: self.children },
            (None, Some(path)) => Selection::Cgroup(path),
            (None, None) => Selection::Command(program),
        }
    }
}
