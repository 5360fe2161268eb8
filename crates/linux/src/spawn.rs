//! A command as a target: started, but stopped at its first instruction until time passes.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tierscope_core::{Error, ErrorKind, Result};

use crate::pidfd::PidFd;

/// Time between SIGTERM and SIGKILL.
const GRACE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// A child process. Its orphans are reparented to tierscope, so that a program that daemonizes is
/// not lost.
pub(crate) struct Spawned {
    child: Child,
    pidfd: PidFd,
    held: bool,
    was_subreaper: bool,
}

impl Spawned {
    /// Starts `command` and returns once it has executed its program, before the first instruction.
    ///
    /// It is traced during this time only: the exec of a traced process stops it with SIGTRAP
    /// (fs/exec.c: `exec_binprm`; ptrace(2): PTRACE_TRACEME).
    pub(crate) fn hold(command: &[OsString], mask: &libc::sigset_t) -> Result<Self> {
        let (program, arguments) = command.split_first().ok_or_else(|| {
            Error::new(ErrorKind::Usage, "cannot run the command")
                .cause("it is empty")
                .remedy("give it after `--`")
        })?;
        let failed = |e: &io::Error| cannot_run(program, e);
        let was_subreaper = subreaper(true);
        let mut command = Command::new(program);
        command.args(arguments);
        let mask = *mask;
        // SAFETY: the closure only makes system calls, which are allowed between fork and exec.
        unsafe { command.pre_exec(move || set_mask(&mask).and_then(|()| trace_me())) };
        let child = command.spawn().map_err(|e| failed(&e))?;
        let pidfd = PidFd::open(child.id()).map_err(|e| failed(&e))?;
        let spawned = Self { child, pidfd, held: true, was_subreaper };
        spawned.await_exec().map_err(|e| failed(&e))?;
        Ok(spawned)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the child run. Only the first call has an effect.
    pub(crate) fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            // If the child was killed while stopped, there is nothing to resume.
            let _ = self.ptrace(libc::PTRACE_DETACH, 0);
        }
    }

    /// Terminates the child if it still runs (SIGTERM, after a grace period SIGKILL), and returns
    /// its exit status.
    pub(crate) fn finish(&mut self) -> Result<ExitStatus> {
        let failed = |e| {
            Error::new(ErrorKind::Other, "cannot wait for the command")
                .cause(e)
                .remedy("check with `ps` whether it still runs, and end it")
        };
        if let Some(status) = self.child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        let _ = self.pidfd.signal(libc::SIGTERM);
        self.release();
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        if poll(&mut fds, Some(&GRACE)) != Ok(1) {
            let _ = self.pidfd.signal(libc::SIGKILL);
        }
        self.child.wait().map_err(failed)
    }

    fn await_exec(&self) -> io::Result<()> {
        loop {
            let mut status = 0;
            // SAFETY: `status` is a valid, writable integer.
            if unsafe { libc::waitpid(self.pid() as i32, &raw mut status, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
            if !libc::WIFSTOPPED(status) {
                return Err(io::Error::other("it was killed before it began"));
            }
            match libc::WSTOPSIG(status) {
                libc::SIGTRAP => return Ok(()),
                other => self.ptrace(libc::PTRACE_CONT, other)?,
            }
        }
    }

    fn ptrace(&self, request: libc::c_uint, signal: i32) -> io::Result<()> {
        let (pid, no_address) = (self.pid() as i32, 0usize);
        // SAFETY: CONT and DETACH take a signal number and access no memory of this process.
        let answer = unsafe { libc::ptrace(request, pid, no_address, signal as usize) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Kills a child that was not finished.
impl Drop for Spawned {
    fn drop(&mut self) {
        if self.held {
            let _ = self.pidfd.signal(libc::SIGKILL);
        }
        let _ = self.finish();
        subreaper(self.was_subreaper);
    }
}

fn set_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the mask is initialised; the old mask is not written back.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn trace_me() -> io::Result<()> {
    // SAFETY: TRACEME ignores the other arguments.
    let answer = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0usize, 0usize) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets whether this process is the reaper of its orphaned descendants; returns the old setting.
fn subreaper(on: bool) -> bool {
    let mut before: libc::c_int = 0;
    // SAFETY: GET writes the given int; SET takes a number. Neither can fail on Linux >= 3.4.
    unsafe {
        libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut before);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, libc::c_ulong::from(on));
    }
    before != 0
}

/// Reaps an orphan that ended.
pub(crate) fn reap(pid: u32) {
    // SAFETY: the status pointer is null.
    unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), libc::WNOHANG) };
}

fn cannot_run(program: &OsString, error: &io::Error) -> Error {
    let what = format!("cannot run {}", program.display());
    match error.kind() {
        io::ErrorKind::NotFound => Error::new(ErrorKind::NoTarget, what)
            .cause("there is no such program")
            .remedy("check the spelling and PATH"),
        io::ErrorKind::PermissionDenied => Error::new(ErrorKind::Permission, what)
            .cause(error)
            .remedy("check that it is executable, and that ptrace is allowed"),
        _ => Error::new(ErrorKind::Other, what)
            .cause(error)
            .remedy("check that it is a program of this machine's architecture"),
    }
}
