//! The target as selected by the user, and its current processes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use crate::pidfd::PidFd;
use crate::proc::{Cgroup, Proc, Stat};
use crate::spawn::{Spawned, reap};

/// Usual mount point of the cgroup v2 hierarchy.
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

/// The target as selected by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// A process, by pid.
    Process {
        /// Pid of the process.
        pid: u32,
        /// Whether its descendants, including future ones, are watched, too.
        children: bool,
    },
    /// All processes of a cgroup (version 2) and of the cgroups below it, except tierscope itself.
    Cgroup(PathBuf),
    /// A command to be started, and all its descendants.
    Command(Vec<OsString>),
}

impl Selection {
    /// Checks that the target can be watched; starts nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NoTarget`] if there is no such process or cgroup, or if the cgroup is empty;
    /// [`ErrorKind::Usage`] for a thread, a kernel thread, or tierscope itself.
    pub fn check(&self, proc: &Proc) -> Result<()> {
        match self {
            Selection::Process { pid, .. } => check_process(proc, *pid).map(drop),
            Selection::Cgroup(path) => check_cgroup(path),
            Selection::Command(command) if command.is_empty() => Err(no_command()),
            Selection::Command(_) => Ok(()),
        }
    }

    /// Whether the target is a command that tierscope starts.
    #[must_use]
    pub fn is_command(&self) -> bool {
        matches!(self, Selection::Command(_))
    }
}

fn no_command() -> Error {
    Error::new(ErrorKind::Usage, "cannot run the command")
        .cause("it is empty")
        .remedy("give it after `--`")
}

fn check_process(proc: &Proc, pid: u32) -> Result<Stat> {
    let error = |kind| Error::new(kind, format!("cannot watch process {pid}"));
    let no_such = || {
        error(ErrorKind::NoTarget)
            .cause("there is no such process")
            .remedy(format!("check the pid with `ps -p {pid}`"))
    };
    if pid == std::process::id() {
        return Err(error(ErrorKind::Usage)
            .cause("that is tierscope itself")
            .remedy("give the pid of another process"));
    }
    let stat = proc.stat(pid)?.ok_or_else(no_such)?;
    if stat.kernel_thread {
        return Err(error(ErrorKind::Usage)
            .cause(format!("{} is a thread of the kernel, without memory of its own", stat.comm))
            .remedy("give the pid of a process"));
    }
    match proc.thread_group(pid)?.ok_or_else(no_such)? {
        group if group == pid => {}
        group => {
            return Err(error(ErrorKind::Usage)
                .cause(format!("it is a thread of process {group}"))
                .remedy(format!("give the process: -p {group}")));
        }
    }
    if stat.has_ended() {
        return Err(error(ErrorKind::NoTarget)
            .cause("it has ended already and waits for its parent (zombie)")
            .remedy("give the pid of a running process"));
    }
    Ok(stat)
}

fn check_cgroup(path: &Path) -> Result<()> {
    let mut pids = Vec::new();
    Cgroup::find(path, Path::new(CGROUP_MOUNT))?.processes(&mut pids)?;
    if pids.iter().any(|pid| *pid != std::process::id()) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NoTarget, format!("cannot watch cgroup {}", path.display()))
        .cause("no process is in it")
        .remedy("start one there first"))
}

/// An opened target: it keeps references to the processes.
pub(crate) enum Roots {
    Process {
        pid: u32,
        pidfd: PidFd,
        children: bool,
    },
    Cgroup(Cgroup),
    /// The command, and the children that tierscope had before.
    Command {
        spawned: Spawned,
        earlier: Vec<u32>,
    },
}

impl Roots {
    /// Opens the target; a command is started with signal mask `mask`, and stopped at its first
    /// instruction.
    pub(crate) fn take(selection: &Selection, proc: &Proc, mask: &libc::sigset_t) -> Result<Self> {
        selection.check(proc)?;
        Ok(match selection {
            Selection::Process { pid, children } => {
                // The process may have ended since the check.
                let pidfd = PidFd::open(*pid).map_err(|e| {
                    Error::new(ErrorKind::NoTarget, format!("cannot watch process {pid}"))
                        .cause(e)
                        .remedy(format!("check the pid with `ps -p {pid}`"))
                })?;
                Roots::Process { pid: *pid, pidfd, children: *children }
            }
            Selection::Cgroup(path) => Roots::Cgroup(Cgroup::find(path, Path::new(CGROUP_MOUNT))?),
            Selection::Command(command) => {
                let mut earlier = Vec::new();
                proc.children(std::process::id(), &mut earlier)?;
                Roots::Command { spawned: Spawned::hold(command, mask)?, earlier }
            }
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

    /// Current processes of the target. `known` are its previous ones: a process that lost its
    /// parent remains a member, with all its descendants. Some may be ending.
    pub(crate) fn members(&self, proc: &Proc, known: &[u32]) -> Result<Vec<u32>> {
        let mut members = Vec::new();
        match self {
            Roots::Process { pid, pidfd, children } => {
                members.extend(pidfd.holds_its_pid().then_some(*pid));
                if *children {
                    members.extend(known);
                    add_descendants(proc, &mut members)?;
                }
            }
            Roots::Cgroup(cgroup) => cgroup.processes(&mut members)?,
            Roots::Command { spawned, earlier } => {
                members.push(spawned.pid());
                members.extend(known);
                members.extend(adopted(proc, spawned.pid(), earlier)?);
                add_descendants(proc, &mut members)?;
            }
        }
        members.sort_unstable();
        members.dedup();
        members.retain(|pid| *pid != std::process::id());
        Ok(members)
    }
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
    let mut seen: std::collections::HashSet<u32> = members.iter().copied().collect();
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
    use std::fs;

    /// A procfs with processes `(pid, tgid, flags, state, children)`.
    fn root(processes: &[(u32, u32, u32, char, &str)]) -> (tempfile::TempDir, Proc) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, tgid, flags, state, children) in processes {
            let task = dir.path().join(format!("{pid}/task/{pid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("children"), children).unwrap();
            let stat = format!("{pid} (x) {state} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 5\n");
            fs::write(dir.path().join(format!("{pid}/stat")), stat).unwrap();
            let status = format!("Name:\tx\nTgid:\t{tgid}\n");
            fs::write(dir.path().join(format!("{pid}/status")), status).unwrap();
        }
        let proc = Proc::at(dir.path());
        (dir, proc)
    }

    fn refusal(proc: &Proc, pid: u32) -> (ErrorKind, String) {
        let error = Selection::Process { pid, children: false }.check(proc).unwrap_err();
        (error.kind(), error.to_string())
    }

    const KTHREAD: u32 = 0x20_0000;

    #[test]
    fn targets_that_are_no_process_are_refused() {
        let (_dir, proc) =
            root(&[(4, 4, KTHREAD, 'I', ""), (21, 20, 0, 'S', ""), (30, 30, 0, 'Z', "")]);
        let (kind, text) = refusal(&proc, 9);
        assert_eq!(kind, ErrorKind::NoTarget);
        assert!(text.ends_with("there is no such process; check the pid with `ps -p 9`"), "{text}");
        let (kind, text) = refusal(&proc, 4);
        assert!(kind == ErrorKind::Usage && text.contains("thread of the kernel"), "{text}");
        let (kind, text) = refusal(&proc, 21);
        assert!(kind == ErrorKind::Usage && text.ends_with("-p 20"), "{text}");
        let (kind, text) = refusal(&proc, 30);
        assert!(kind == ErrorKind::NoTarget && text.contains("zombie"), "{text}");
        let (kind, text) = refusal(&proc, std::process::id());
        assert!(kind == ErrorKind::Usage && text.contains("tierscope itself"), "{text}");
        assert_eq!(Selection::Command(vec![]).check(&proc).unwrap_err().kind(), ErrorKind::Usage);
    }

    // Processes 2 and 3 are children of 1, 4 is a child of 2, and 8 is a child of 7, whose parent
    // has ended.
    #[test]
    fn descendants_of_known_processes_are_members() {
        let (_dir, proc) = root(&[
            (1, 1, 0, 'S', "2 3 "),
            (2, 2, 0, 'S', "4 "),
            (3, 3, 0, 'S', ""),
            (4, 4, 0, 'S', ""),
            (7, 7, 0, 'S', "8 "),
            (8, 8, 0, 'S', ""),
        ]);
        let mut members = vec![1, 2, 7];
        add_descendants(&proc, &mut members).unwrap();
        members.sort_unstable();
        assert_eq!(members, [1, 2, 3, 4, 7, 8]);
    }
}
