//! The target as selected by the user.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tierscope_core::names::plain;
use tierscope_core::{Error, ErrorKind, Result, Space};

use crate::name_pattern::NamePattern;
use crate::proc::{Cgroup, Proc, Stat};

/// Usual mount point of the cgroup v2 hierarchy.
pub(crate) const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

/// The target as selected by the user. Tierscope itself is never a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// A process, by pid.
    Process {
        /// Pid of the process.
        pid: u32,
        /// Whether its descendants, including future ones, are watched, too.
        children: bool,
    },
    /// All processes of a cgroup (version 2) and of the cgroups below it, including future ones.
    Cgroup(PathBuf),
    /// All user processes whose name matches, including future ones.
    Name(NamePattern),
    /// All user processes of the machine, including future ones.
    All,
    /// A command to be started, and all its descendants.
    Command(Vec<OsString>),
    /// Several targets; a process that is in two of them counts once.
    Several(Vec<Selection>),
}

impl Selection {
    /// Combines targets: one is that target, of equal ones the first remains.
    #[must_use]
    pub fn of(targets: Vec<Selection>) -> Self {
        let mut several = Vec::with_capacity(targets.len());
        for target in targets {
            if !several.contains(&target) {
                several.push(target);
            }
        }
        match several.len() {
            1 => several.remove(0),
            _ => Selection::Several(several),
        }
    }

    /// Checks that the target can be watched; starts nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NoTarget`] if there is no such process or cgroup, or if a cgroup or pattern has
    /// no process; [`ErrorKind::Usage`] for a thread, a kernel thread, or tierscope itself.
    pub fn check(&self, proc: &Proc) -> Result<()> {
        match self {
            Selection::Process { pid, .. } => check_process(proc, *pid).map(drop),
            Selection::Cgroup(path) => check_cgroup(path),
            Selection::Name(pattern) => check_name(proc, pattern),
            Selection::All => check_all(proc),
            Selection::Command(command) if command.is_empty() => Err(no_command()),
            Selection::Command(_) => Ok(()),
            Selection::Several(targets) => targets.iter().try_for_each(|of| of.check(proc)),
        }
    }

    /// Whether the target is a command that tierscope starts.
    #[must_use]
    pub fn is_command(&self) -> bool {
        matches!(self, Selection::Command(_))
    }

    /// The target's name for users, of which `spaces` are the spaces: `redis-server[4711]`, `cgroup
    /// PATH`; of several targets the first ones: `postgres, redis-server and 3 more`.
    #[must_use]
    pub fn name(&self, spaces: &[Space]) -> String {
        match self {
            Selection::Process { .. } | Selection::Command(_) => {
                spaces.first().map_or(String::new(), |space| space.name.to_string())
            }
            Selection::Cgroup(path) => plain(&format!("cgroup {}", path.display())).into(),
            Selection::Name(pattern) => plain(&format!("processes called {pattern}")).into(),
            Selection::All => "all processes".into(),
            Selection::Several(targets) => {
                limited(targets.iter().map(|target| target.short_name(spaces)))
            }
        }
    }

    /// The name next to those of other targets: processes without their pids.
    fn short_name(&self, spaces: &[Space]) -> String {
        match self {
            Selection::Process { pid, .. } => {
                let suffix = format!("[{pid}]");
                let program = spaces.iter().find_map(|space| space.name.strip_suffix(&suffix));
                program.map_or_else(|| format!("process {pid}"), str::to_owned)
            }
            Selection::Name(pattern) => plain(&pattern.to_string()).into(),
            other => other.name(spaces),
        }
    }
}

/// Largest number of names in the name of several targets.
const SHOWN: usize = 3;

/// The distinct names, if they are few; else the first ones, and the number of the others.
fn limited(names: impl Iterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    if distinct.len() <= SHOWN {
        return distinct.join(", ");
    }
    let others = distinct.split_off(SHOWN - 1).len();
    format!("{} and {others} more", distinct.join(", "))
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

fn check_name(proc: &Proc, pattern: &NamePattern) -> Result<()> {
    if pattern.processes(proc)?.iter().any(|pid| *pid != std::process::id()) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NoTarget, format!("cannot watch processes called {pattern}"))
        .cause("no process has such a name")
        .remedy("list the names with `ps -A -o comm`, or start one first"))
}

fn check_all(proc: &Proc) -> Result<()> {
    for pid in proc.pids()? {
        if pid != std::process::id() && proc.is_user_process(pid)? {
            return Ok(());
        }
    }
    Err(Error::new(ErrorKind::NoTarget, "cannot watch all processes")
        .cause("only tierscope and threads of the kernel run here")
        .remedy("start a process first, or give its command after `--`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake_root::Root;
    use tierscope_core::SpaceId;

    fn refused(proc: &Proc, selection: &Selection) -> (ErrorKind, String) {
        let error = selection.check(proc).unwrap_err();
        (error.kind(), error.to_string())
    }

    fn process(pid: u32) -> Selection {
        Selection::Process { pid, children: false }
    }

    fn called(pattern: &str) -> Selection {
        Selection::Name(pattern.parse().unwrap())
    }

    #[test]
    fn targets_that_are_no_process_are_refused() {
        let root = Root::new();
        root.process(4, "x", 'I').kernel_thread();
        root.process(21, "x", 'S').group(20);
        root.process(30, "x", 'Z');
        let proc = root.proc();
        let (kind, text) = refused(&proc, &process(9));
        assert_eq!(kind, ErrorKind::NoTarget);
        assert!(text.ends_with("there is no such process; check the pid with `ps -p 9`"), "{text}");
        let (kind, text) = refused(&proc, &process(4));
        assert!(kind == ErrorKind::Usage && text.contains("thread of the kernel"), "{text}");
        let (kind, text) = refused(&proc, &process(21));
        assert!(kind == ErrorKind::Usage && text.ends_with("-p 20"), "{text}");
        let (kind, text) = refused(&proc, &process(30));
        assert!(kind == ErrorKind::NoTarget && text.contains("zombie"), "{text}");
        let (kind, text) = refused(&proc, &process(std::process::id()));
        assert!(kind == ErrorKind::Usage && text.contains("tierscope itself"), "{text}");
        assert_eq!(refused(&proc, &Selection::Command(vec![])).0, ErrorKind::Usage);
    }

    // Tierscope itself, a thread of the kernel and a zombie are no target.
    #[test]
    fn patterns_and_machines_without_processes_are_refused() {
        let root = Root::new();
        root.process(2, "kthreadd", 'S').kernel_thread();
        root.process(30, "redis-server", 'Z');
        root.process(std::process::id(), "tierscope", 'R');
        let (kind, text) = refused(&root.proc(), &called("tier*"));
        let said = "cannot watch processes called tier*: no process has such a name; list the names \
                    with `ps -A -o comm`, or start one first";
        assert_eq!((kind, text.as_str()), (ErrorKind::NoTarget, said));
        assert_eq!(refused(&root.proc(), &called("k*")).0, ErrorKind::NoTarget);
        let (kind, text) = refused(&root.proc(), &Selection::All);
        assert!(kind == ErrorKind::NoTarget && text.contains("only tierscope"), "{text}");
        root.process(31, "redis-server", 'S');
        assert_eq!(Selection::All.check(&root.proc()), Ok(()));
        let both = Selection::of(vec![called("redis*"), process(31)]);
        assert_eq!(both.check(&root.proc()), Ok(()));
        let (kind, text) = refused(&root.proc(), &Selection::of(vec![process(31), process(9)]));
        assert!(kind == ErrorKind::NoTarget && text.contains("process 9"), "{text}");
    }

    #[test]
    fn equal_targets_are_one() {
        assert_eq!(Selection::of(vec![process(1), process(1)]), process(1));
        let two = Selection::of(vec![process(1), called("a"), process(1)]);
        assert_eq!(two, Selection::Several(vec![process(1), called("a")]));
    }

    #[test]
    fn the_name_of_several_targets_is_limited() {
        let spaces = ["postgres[1]", "postgres[2]", "redis-server[30]"];
        let space = |(id, name): (u32, &&str)| Space { id: SpaceId(id), name: (*name).into() };
        let spaces: Vec<Space> = (0..).zip(&spaces).map(space).collect();
        let name = |targets: &[Selection]| Selection::of(targets.to_vec()).name(&spaces);
        assert_eq!(name(&[process(1)]), "postgres[1]");
        assert_eq!(name(&[called("redis*")]), "processes called redis*");
        assert_eq!(name(&[Selection::All]), "all processes");
        assert_eq!(name(&[process(1), process(2), process(30)]), "postgres, redis-server");
        let (web, cache) = (Selection::Cgroup("/web".into()), Selection::Cgroup("/cache".into()));
        let three = [process(30), web.clone(), called("ng*")];
        assert_eq!(name(&three), "redis-server, cgroup /web, ng*");
        let five = [process(1), process(30), process(9), web, cache];
        assert_eq!(name(&five), "postgres, redis-server and 3 more");
    }
}
