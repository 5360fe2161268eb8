//! Waiting for a deadline, a stop signal or the exit of a process: one epoll, no busy loop.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tierscope_core::{Error, ErrorKind, Result};

/// Signals that end a recording cleanly.
const STOPPING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

const TIMER: u64 = 0;
const SIGNAL: u64 = 1;
const EXIT: u64 = 2;
const DEVICE: u64 = 3;

/// Events that ended a wait. Several can be set; if none is, nothing was pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events {
    /// The deadline has passed.
    pub(crate) timer: bool,
    /// A stop signal is pending. Remains set.
    pub(crate) stop: bool,
    /// SIGHUP was received, and is handled separately.
    pub(crate) hangup: bool,
    /// A process exited. Remains set until its descriptor is closed.
    pub(crate) exit: bool,
    /// The watched device can be read. Remains set until it is read.
    pub(crate) device: bool,
}

pub(crate) struct Alarm {
    epoll: OwnedFd,
    /// A timerfd is not subject to the timer slack of 50 µs that sleeping calls have.
    timer: OwnedFd,
    signals: StopSignals,
    /// SIGHUP is reported as a hang-up instead of a stop signal.
    hangups_separate: bool,
}

impl Alarm {
    /// From here on the stop signals do not terminate the calling thread: waits report them
    /// instead.
    pub(crate) fn new() -> Result<Self> {
        Self::try_new().map_err(|e| {
            Error::new(ErrorKind::Other, "cannot set up timer and signals")
                .cause(e)
                .remedy("raise the limit of open files with `ulimit -n`")
        })
    }

    fn try_new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let signals = StopSignals::block()?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        epoll::add(&epoll, &signals.fd, EventData::new_u64(SIGNAL), EventFlags::IN)?;
        Ok(Self { epoll, timer, signals, hangups_separate: false })
    }

    /// From here on SIGHUP is reported as a hang-up instead of a stop signal.
    pub(crate) fn report_hangups(&mut self) {
        self.hangups_separate = true;
    }

    /// The signal mask before the stop signals were blocked, to be restored in child processes.
    pub(crate) fn mask_before(&self) -> &libc::sigset_t {
        &self.signals.before
    }

    /// Reports the exit of a process until its descriptor is closed.
    pub(crate) fn watch_exit(&self, pidfd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, pidfd, EventData::new_u64(EXIT), EventFlags::IN)?)
    }

    /// Reports that a device can be read, until it is read or its descriptor is closed.
    pub(crate) fn watch_device(&self, device: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, device, EventData::new_u64(DEVICE), EventFlags::IN)?)
    }

    /// Waits until CLOCK_MONOTONIC reaches `nanos` (`None`: no deadline) or another event occurs.
    pub(crate) fn wait_until(&self, nanos: Option<u64>) -> Events {
        // A timer set to zero is disarmed; set to any other time in the past it fires immediately.
        let value = Timespec {
            tv_sec: nanos.map_or(0, |n| (n / 1_000_000_000) as i64),
            tv_nsec: nanos.map_or(0, |n| (n % 1_000_000_000) as i64),
        };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)
            .expect("a timer of our own takes any time in range");
        self.listen(None)
    }

    /// Returns the pending events without waiting.
    pub(crate) fn poll(&self) -> Events {
        self.listen(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    fn listen(&self, timeout: Option<&Timespec>) -> Events {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; 8];
        loop {
            match epoll::wait(&self.epoll, &mut events, timeout) {
                Ok((events, _)) => return self.separate_hangups(collect(events)),
                // The process was stopped and continued from the shell.
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => unreachable!("epoll of our own: {error}"),
            }
        }
    }
}

impl Alarm {
    /// Distinguishes a stop signal, which stays pending, from SIGHUP, which is consumed.
    fn separate_hangups(&self, mut heard: Events) -> Events {
        if heard.stop && self.hangups_separate && self.signals.take_hangup() {
            (heard.stop, heard.hangup) = (false, true);
        }
        heard
    }
}

fn collect(events: &[Event]) -> Events {
    let mut heard = Events::default();
    for event in events {
        let data = event.data;
        match data.u64() {
            TIMER => heard.timer = true,
            SIGNAL => heard.stop = true,
            DEVICE => heard.device = true,
            _ => heard.exit = true,
        }
    }
    heard
}

/// The stop signals, blocked and readable from a signalfd; dropping this unblocks them.
struct StopSignals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl StopSignals {
    fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that the other calls read; pthread_sigmask
        // initialises `before`; signalfd returns a new descriptor, which has no other owner.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in STOPPING {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let fd = libc::signalfd(-1, set.as_ptr(), flags);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = OwnedFd::from_raw_fd(fd);
            match libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Self { fd, before: before.assume_init() }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Consumes one signal, and returns whether it was SIGHUP. Any other signal stays pending.
    fn take_hangup(&self) -> bool {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let bytes = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer holds `bytes` bytes; the descriptor does not block.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), bytes) };
        if read != bytes as isize {
            return false;
        }
        // SAFETY: the struct was read completely, and any bytes are valid integers.
        let signal = unsafe { info.assume_init() }.ssi_signo as i32;
        if signal != libc::SIGHUP {
            // SAFETY: the signal is blocked in this thread, so that raising it only makes it
            // pending again.
            unsafe { libc::raise(signal) };
        }
        signal == libc::SIGHUP
    }

    /// Consumes pending signals that have been handled.
    fn drain(&self) {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: the buffer has the length that is passed; the descriptor does not block.
        while unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), info.len()) } > 0 {
        }
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        self.drain();
        // SAFETY: `before` was filled in by the kernel.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pidfd::PidFd;
    use std::process::{Command, Stdio};

    #[test]
    fn a_past_deadline_ends_the_wait_at_once() {
        let alarm = Alarm::new().unwrap();
        assert_eq!(alarm.poll(), Events::default());
        assert!(alarm.wait_until(Some(1)).timer);
    }

    #[test]
    fn a_stop_signal_stays_pending() {
        let alarm = Alarm::new().unwrap();
        // SAFETY: raise sends to the calling thread, where the signal is blocked.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(alarm.wait_until(None).stop);
        assert!(alarm.poll().stop);
    }

    // SIGHUP is reported once, and a stop signal is still reported as one.
    #[test]
    fn a_hangup_can_be_separated_from_stop_signals() {
        let mut alarm = Alarm::new().unwrap();
        alarm.report_hangups();
        // SAFETY: raise sends to the calling thread, where the signals are blocked.
        unsafe { libc::raise(libc::SIGHUP) };
        let heard = alarm.wait_until(None);
        assert!(heard.hangup && !heard.stop);
        assert_eq!(alarm.poll(), Events::default());
        // SAFETY: raise sends to the calling thread, where SIGTERM is blocked.
        unsafe { libc::raise(libc::SIGTERM) };
        // SAFETY: raise sends to the calling thread, where SIGHUP is blocked.
        unsafe { libc::raise(libc::SIGHUP) };
        let mut heard = alarm.poll();
        if heard.hangup {
            heard = alarm.poll();
        }
        assert!(heard.stop && !heard.hangup && alarm.poll().stop);
    }

    #[test]
    fn an_exit_is_reported_until_the_descriptor_is_closed() {
        let alarm = Alarm::new().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        alarm.watch_exit(&pidfd).unwrap();
        assert_eq!(alarm.poll(), Events::default());
        drop(child.stdin.take());
        assert!(alarm.wait_until(None).exit);
        drop(pidfd);
        assert_eq!(alarm.poll(), Events::default());
        child.wait().unwrap();
    }
}
