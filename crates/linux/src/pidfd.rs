//! Process file descriptors, which are not affected by pid reuse.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process, referred to by descriptor, which polls readable once the process has exited.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process (thread group leader) with this pid.
    ///
    /// # Errors
    /// ESRCH if there is none; EINVAL or ENOENT if it is a thread but not a leader.
    pub fn open(pid: u32) -> io::Result<Self> {
        let esrch = io::Error::from_raw_os_error(libc::ESRCH);
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return Err(esrch);
        };
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Whether the process has not been reaped yet: if signal 0 finds it, its pid has not been
    /// reused. Without CAP_KILL, as in our services, processes of other users are found and may not
    /// be signalled.
    #[must_use]
    pub fn holds_its_pid(&self) -> bool {
        match self.signal(0) {
            Ok(()) => true,
            Err(error) => error.raw_os_error() == Some(libc::EPERM),
        }
    }

    /// Sends a signal; 0 only checks that the process exists.
    ///
    /// # Errors
    /// Those of `pidfd_send_signal(2)`.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        // SAFETY: the call accesses no memory of this process: the siginfo pointer is null.
        let answer = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, std::ptr::null::<()>(), 0)
        };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Which processes have exited, reaped or not. Of an unlikely error of poll, the answer is none.
pub(crate) fn exited<'a>(processes: impl Iterator<Item = &'a PidFd>) -> Vec<bool> {
    let mut fds: Vec<_> = processes.map(|of| PollFd::new(of, PollFlags::IN)).collect();
    let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    fds.iter().map(|fd| fd.revents().contains(PollFlags::IN)).collect()
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    // A process of another user, for a thread that may not signal it.
    #[test]
    fn a_process_that_may_not_be_signalled_is_there() {
        let init = PidFd::open(1).unwrap();
        let other = std::thread::spawn(move || {
            // SAFETY: the system call changes the user of this thread only.
            unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, -1) };
            let denied = init.signal(0).map_err(|error| error.raw_os_error());
            (denied, init.holds_its_pid())
        });
        assert_eq!(other.join().unwrap(), (Err(Some(libc::EPERM)), true));
    }

    #[test]
    fn a_reaped_process_no_longer_holds_its_pid() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let fd = PidFd::open(child.id()).unwrap();
        assert!(fd.holds_its_pid());
        drop(child.stdin.take());
        let own = PidFd::open(std::process::id()).unwrap();
        assert_eq!(exited([&own].into_iter()), [false]);
        child.wait().unwrap();
        assert!(!fd.holds_its_pid());
        assert_eq!(exited([&own, &fd].into_iter()), [false, true]);
    }

    #[test]
    fn no_process_has_pid_zero() {
        assert_eq!(PidFd::open(0).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert_eq!(PidFd::open(u32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
