//! A process that is watched as a space.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::names::plain;
use tierscope_core::{Error, ErrorKind, Result, SpaceId};

use crate::clock;
use crate::pidfd::PidFd;
use crate::proc::{Proc, ProcessMaps, Stat};
use crate::space_owners::Owner;

pub(crate) struct Process {
    pub(crate) space: SpaceId,
    pub(crate) pid: u32,
    /// Pid of the parent when watching began.
    pub(crate) parent: u32,
    /// Name for users: `redis-server[4711]`.
    pub(crate) name: Arc<str>,
    pub(crate) pidfd: PidFd,
    /// Start time; distinguishes a reused pid.
    pub(crate) started: u64,
    /// Pages that it mapped when its mappings were read last.
    pub(crate) mapped: Option<u64>,
    /// Its mappings when they were read last, if there are other processes.
    pub(crate) maps: Option<ProcessMaps>,
    /// CPU time that the process had used when watching began.
    before: Duration,
    /// CPU time at the last reading.
    latest: Cell<Duration>,
}

impl Process {
    /// Opens a process; `None` if it is gone, ending, or a kernel thread.
    ///
    /// If `from_start` holds, all of its CPU time counts, else only the time used from now on.
    pub(crate) fn look_up(
        proc: &Proc,
        pid: u32,
        space: SpaceId,
        from_start: impl Fn(&Stat) -> bool,
    ) -> Result<Option<Self>> {
        let pidfd = match PidFd::open(pid) {
            Ok(pidfd) => pidfd,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(error) => return Err(cannot_watch(pid, &error)),
        };
        let Some(stat) = proc.stat(pid)? else { return Ok(None) };
        if stat.has_ended() || stat.kernel_thread {
            return Ok(None);
        }
        let used = clock::cpu_of(pid).unwrap_or_default();
        let before = if from_start(&stat) { Duration::ZERO } else { used };
        let latest = Cell::new(used);
        let name = name(&stat, pid);
        Ok(Some(Self {
            space,
            pid,
            parent: stat.parent,
            name,
            pidfd,
            started: stat.started,
            mapped: None,
            maps: None,
            before,
            latest,
        }))
    }

    /// This process as the owner of its space.
    pub(crate) fn owner(&self) -> Owner {
        Owner { space: self.space, pid: self.pid, started: self.started }
    }

    /// Whether the process exists and has not ended.
    pub(crate) fn lives(&self, proc: &Proc) -> Result<bool> {
        let stat = proc.stat(self.pid)?.filter(|stat| stat.started == self.started);
        Ok(stat.is_some_and(|stat| !stat.has_ended()))
    }

    /// CPU time while watched; of an ended process, as of the last reading.
    pub(crate) fn cpu_time(&self) -> Duration {
        // Not from stat: of hundreds of processes, that would take a hundredth of a CPU.
        if let Some(used) = clock::cpu_of(self.pid).filter(|_| self.pidfd.holds_its_pid()) {
            self.latest.set(used.max(self.latest.get()));
        }
        self.latest.get().saturating_sub(self.before)
    }
}

fn cannot_watch(pid: u32, error: &io::Error) -> Error {
    let kind = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => ErrorKind::Permission,
        _ => ErrorKind::Other,
    };
    Error::new(kind, format!("cannot watch process {pid}"))
        .cause(error)
        .remedy("each process watched needs two files: raise the limit with `ulimit -n`")
}

/// Display name of a process.
fn name(stat: &Stat, pid: u32) -> Arc<str> {
    format!("{}[{pid}]", plain(&stat.comm)).into()
}

/// Whether two processes share one address space (vfork, CLONE_VM). `false` if the kernel lacks
/// kcmp (no CONFIG_KCMP).
pub(crate) fn share_memory(one: u32, other: u32) -> bool {
    const KCMP_VM: i32 = 1; // from include/uapi/linux/kcmp.h
    // SAFETY: kcmp takes numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one as i32, other as i32, KCMP_VM, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::parse_stat;

    #[test]
    fn control_characters_in_a_name_are_written_out() {
        let text = b"7 (a\nb) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1";
        assert_eq!(&*name(&parse_stat(text).unwrap(), 7), "a\\u{a}b[7]");
    }

    #[test]
    fn a_process_shares_memory_with_itself_alone() {
        let me = std::process::id();
        assert!(share_memory(me, me) && !share_memory(me, 1));
    }
}
