//! Flags that name the target, shared by all commands that work on running processes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use tierscope_linux::{NamePattern, Selection};

/// The processes to work on. A command that takes another kind of target excludes `children` with
/// it, because clap does not check `requires` of a flag whose requirement conflicts.
#[derive(Clone, Debug, Default, Args)]
pub struct TargetArgs {
    /// Target: the process PID. Targets of all kinds can be combined, and each given several times
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<u32>,

    /// With -p: and its descendants, including future ones
    #[arg(long, requires = "pid")]
    pub children: bool,

    /// Target: all processes of a cgroup (version 2) and of its descendants, including future ones
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,

    /// Target: all processes, including future ones, whose name or program's file name matches the
    /// shell pattern PATTERN: redis-server, 'postgres*'
    #[arg(long, value_name = "PATTERN")]
    pub name: Vec<NamePattern>,

    /// Target: all processes of this machine, including future ones, except tierscope itself and
    /// threads of the kernel
    #[arg(long, conflicts_with_all = ["pid", "children", "cgroup", "name"])]
    pub all: bool,
}

/// The flags that name a target.
pub const TARGETS: [&str; 4] = ["pid", "cgroup", "name", "all"];

impl TargetArgs {
    /// Whether a target is named.
    #[must_use]
    pub(crate) fn is_given(&self) -> bool {
        self.all || !(self.pid.is_empty() && self.cgroup.is_empty() && self.name.is_empty())
    }

    /// The selection of processes; the command `program` if no target is named.
    #[must_use]
    pub(crate) fn selection(self, program: Vec<OsString>) -> Selection {
        if !self.is_given() {
            return Selection::Command(program);
        }
        let children = self.children;
        let pids = self.pid.into_iter().map(|pid| Selection::Process { pid, children });
        let cgroups = self.cgroup.into_iter().map(Selection::Cgroup);
        let names = self.name.into_iter().map(Selection::Name);
        let all = self.all.then_some(Selection::All);
        Selection::of(pids.chain(cgroups).chain(names).chain(all).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};

    fn selection(flags: &str) -> Result<Selection, clap::Error> {
        let line = format!("tierscope record {flags} -o d");
        match parse(line.split_whitespace().map(Into::into))?.command {
            Command::Record(args) => Ok(args.target.selection(args.program)),
            _ => unreachable!("it says record"),
        }
    }

    fn process(pid: u32, children: bool) -> Selection {
        Selection::Process { pid, children }
    }

    #[test]
    fn targets_are_combined_and_each_counts_once() {
        assert_eq!(selection("-p 1 -p 1").unwrap(), process(1, false));
        let two = Selection::Several(vec![process(1, true), process(2, true)]);
        assert_eq!(selection("-p 1 -p 2 --children").unwrap(), two);
        let all_kinds = Selection::Several(vec![
            process(1, false),
            Selection::Cgroup("/a".into()),
            Selection::Cgroup("/b".into()),
            Selection::Name("redis*".parse().unwrap()),
        ]);
        let flags = "--cgroup /a --name redis* -p 1 --cgroup /b --cgroup /a";
        assert_eq!(selection(flags).unwrap(), all_kinds);
        assert_eq!(selection("--all").unwrap(), Selection::All);
    }

    #[test]
    fn contradictory_targets_are_refused() {
        for flags in [
            "--all -p 1",
            "--all --cgroup /a",
            "--all --name a",
            "--all --children",
            "--children",
            "--cgroup /a --children",
            "--name a --children",
        ] {
            assert!(selection(flags).is_err(), "{flags}");
        }
    }
}
