//! The opened target, and its current processes.

use std::collections::HashSet;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tierscope_core::{Error, ErrorKind, Result};

use crate::name_pattern::NamePattern;
use crate::pidfd::PidFd;
use crate::proc::{Cgroup, Proc};
use crate::selection::{CGROUP_MOUNT, Selection};
use crate::spawn::{Spawned, reap};

/// An opened target: it keeps references to the processes.
pub(crate) enum Roots {
    Process {
        pid: u32,
        pidfd: PidFd,
    },
    /// A process and its descendants, also those that lost their parent since.
    Tree {
        pid: u32,
        pidfd: PidFd,
        members: Vec<u32>,
    },
    Cgroup(Cgroup),
    Name(NamePattern),
    All,
    /// The command, and the children that tierscope had before.
    Command {
        spawned: Spawned,
        earlier: Vec<u32>,
    },
    Several(Vec<Roots>),
}

impl Roots {
    /// Opens the target; a command is started with signal mask `mask`, and stopped at its first
    /// instruction.
    pub(crate) fn take(selection: &Selection, proc: &Proc, mask: &libc::sigset_t) -> Result<Self> {
        let Selection::Command(command) = selection else {
            raise_limit_of_files();
            return Self::of_processes(selection, proc);
        };
        selection.check(proc)?;
        let mut earlier = Vec::new();
        proc.children(std::process::id(), &mut earlier)?;
        let spawned = Spawned::hold(command, mask)?;
        raise_limit_of_files();
        Ok(Roots::Command { spawned, earlier })
    }

    /// Opens a target that is not a command.
    fn of_processes(selection: &Selection, proc: &Proc) -> Result<Self> {
        if let Selection::Several(targets) = selection {
            let roots = targets.iter().map(|target| Self::of_processes(target, proc));
            return Ok(Roots::Several(roots.collect::<Result<_>>()?));
        }
        selection.check(proc)?;
        Ok(match selection {
            Selection::Process { pid, children } => {
                // The process may have ended since the check.
                let pidfd = PidFd::open(*pid).map_err(|e| {
                    Error::new(ErrorKind::NoTarget, format!("cannot watch process {pid}"))
                        .cause(e)
                        .remedy(format!("check the pid with `ps -p {pid}`"))
                })?;
                match children {
                    false => Roots::Process { pid: *pid, pidfd },
                    true => Roots::Tree { pid: *pid, pidfd, members: Vec::new() },
                }
            }
            Selection::Cgroup(path) => Roots::Cgroup(Cgroup::find(path, Path::new(CGROUP_MOUNT))?),
            Selection::Name(pattern) => Roots::Name(pattern.clone()),
            Selection::All => Roots::All,
            Selection::Command(_) | Selection::Several(_) => Roots::Several(Vec::new()),
        })
    }

    /// The target's cgroup, if it is one.
    pub(crate) fn cgroup(&self) -> Option<Cgroup> {
        match self {
            Roots::Cgroup(cgroup) => Some(cgroup.clone()),
            _ => None,
        }
    }

    /// Lets a stopped command run.
    pub(crate) fn release(&mut self) {
        if let Roots::Command { spawned, .. } = self {
            spawned.release();
        }
    }

    /// Current processes of the target, ascending. `known` are its previous ones that still run: a
    /// process that lost its parent remains a member, with all its descendants. Some may be ending.
    pub(crate) fn members(&mut self, proc: &Proc, known: &[u32]) -> Result<Vec<u32>> {
        let mut members = self.each_member(proc, known)?;
        members.sort_unstable();
        members.dedup();
        members.retain(|pid| *pid != std::process::id());
        Ok(members)
    }

    fn each_member(&mut self, proc: &Proc, known: &[u32]) -> Result<Vec<u32>> {
        let mut members = Vec::new();
        match self {
            Roots::Process { pid, pidfd } => members.extend(pidfd.holds_its_pid().then_some(*pid)),
            Roots::Tree { pid, pidfd, members: before } => {
                members.extend(pidfd.holds_its_pid().then_some(*pid));
                members.extend(before.iter().filter(|pid| known.contains(pid)));
                add_descendants(proc, &mut members)?;
                before.clone_from(&members);
            }
            Roots::Cgroup(cgroup) => cgroup.processes(&mut members)?,
            Roots::Name(pattern) => members = pattern.processes(proc)?,
            Roots::All => {
                let known: HashSet<&u32> = known.iter().collect();
                for pid in proc.pids()? {
                    if known.contains(&pid) || proc.is_user_process(pid)? {
                        members.push(pid);
                    }
                }
            }
            Roots::Command { spawned, earlier } => {
                members.push(spawned.pid());
                members.extend(known);
                members.extend(adopted(proc, spawned.pid(), earlier)?);
                add_descendants(proc, &mut members)?;
            }
            Roots::Several(roots) => {
                for root in roots {
                    members.append(&mut root.each_member(proc, known)?);
                }
            }
        }
        Ok(members)
    }
}

impl Selection {
    /// The current processes of the target, ascending; none of a command, which is not started.
    ///
    /// # Errors
    /// As [`Selection::check`].
    pub fn processes(&self, proc: &Proc) -> Result<Vec<u32>> {
        Roots::of_processes(self, proc)?.members(proc, &[])
    }
}

/// Raises the soft limit to the hard one: each process that is watched needs two open files, and
/// the usual soft limit of a shell is 1024. A command is started with the limit as it was.
fn raise_limit_of_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it cannot be raised, the error at the limit names the remedy.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Orphans of the command that were reparented to tierscope; zombies among them are reaped.
fn adopted(proc: &Proc, command: u32, earlier: &[u32]) -> Result<Vec<u32>> {
    let mut ours = Vec::new();
    proc.children(std::process::id(), &mut ours)?;
    ours.retain(|pid| *pid != command && !earlier.contains(pid));
    for pid in &ours {
        if proc.stat(*pid)?.is_some_and(|stat| stat.has_ended()) {
            reap(*pid);
        }
    }
    Ok(ours)
}

/// Appends all descendants of `members`, each process once.
fn add_descendants(proc: &Proc, members: &mut Vec<u32>) -> Result<()> {
    let mut seen: HashSet<u32> = members.iter().copied().collect();
    let mut next = 0;
    let mut children = Vec::new();
    while next < members.len() {
        proc.children(members[next], &mut children)?;
        members.extend(children.drain(..).filter(|child| seen.insert(*child)));
        next += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake_root::Root;

    // Processes 2 and 3 are children of 1, 4 is a child of 2, and 8 is a child of 7, whose parent
    // has ended.
    #[test]
    fn descendants_of_known_processes_are_members() {
        let root = Root::new();
        root.process(1, "x", 'S').children("2 3 ");
        root.process(2, "x", 'S').children("4 ");
        root.process(7, "x", 'S').children("8 ");
        for pid in [3, 4, 8] {
            root.process(pid, "x", 'S');
        }
        let mut members = vec![1, 2, 7];
        add_descendants(&root.proc(), &mut members).unwrap();
        members.sort_unstable();
        assert_eq!(members, [1, 2, 3, 4, 7, 8]);
    }

    // Init, a shell with tierscope as a child, and a thread of the kernel; then another process
    // starts, and the shell ends.
    #[test]
    fn all_processes_are_members_but_tierscope() {
        let root = Root::new();
        root.process(1, "init", 'S');
        root.process(2, "kthreadd", 'S').kernel_thread();
        root.process(30, "sh", 'S');
        root.process(std::process::id(), "tierscope", 'R');
        let proc = root.proc();
        let mut all = Roots::of_processes(&Selection::All, &proc).unwrap();
        assert_eq!(all.members(&proc, &[]), Ok(vec![1, 30]));
        root.process(31, "cat", 'S');
        root.remove(30);
        assert_eq!(all.members(&proc, &[1]), Ok(vec![1, 31]));
    }

    // The parent of the test process, and what is called `cat`: of both targets, a process counts
    // once. A process of that name that starts later joins; one that takes another name leaves.
    #[test]
    fn members_of_several_targets_are_united() {
        let parent = std::os::unix::process::parent_id();
        let root = Root::new();
        root.process(parent, "cat", 'S');
        let other = parent + 1;
        root.process(other, "cat", 'S');
        let proc = root.proc();
        let called = Selection::Name("c?t".parse().unwrap());
        let by_pid = Selection::Process { pid: parent, children: false };
        let both = Selection::of(vec![by_pid, called]);
        assert_eq!(both.processes(&proc), Ok(vec![parent, other]));
        let mut roots = Roots::of_processes(&both, &proc).unwrap();
        root.process(other + 1, "cot", 'S');
        root.process(other, "dog", 'S');
        assert_eq!(roots.members(&proc, &[parent, other]), Ok(vec![parent, other + 1]));
        assert!(matches!(&roots, Roots::Several(two) if two.len() == 2));
    }
}
