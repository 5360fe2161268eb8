//! The clock of commands that watch no target.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use tierscope_core::{Clock, Result, Time, Wake};

use crate::alarm::{Alarm, Events};
use crate::clock;

/// Bytes per interrupt that a device's file returns (lab/kmod/device).
const RECORD: usize = 16;

/// CLOCK_MONOTONIC. While this exists, SIGINT, SIGTERM and SIGHUP to the thread that opened it end
/// waits ([`Wake::Stop`]) and have no other effect, however often they are sent.
pub struct HostClock {
    alarm: Alarm,
    device: Option<File>,
    cpu_before: Duration,
}

impl HostClock {
    /// Blocks the signals.
    ///
    /// # Errors
    /// If the limit of open files is reached.
    pub fn new() -> Result<Self> {
        Ok(Self { alarm: Alarm::new()?, device: None, cpu_before: clock::process_cpu() })
    }

    /// From now on interrupts of a device end waits ([`Wake::Event`]): its file returns 16 bytes
    /// for each. A file that cannot be polled never ends a wait.
    #[must_use]
    pub fn with_device(mut self, device: File) -> Self {
        self.device = self.alarm.watch_device(&device).is_ok().then_some(device);
        self
    }

    /// CPU time of this process since the clock was opened.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        clock::process_cpu().saturating_sub(self.cpu_before)
    }

    /// Reads an interrupt. A device that fails is closed, since it would end each wait.
    fn take_interrupt(&mut self) -> bool {
        let read = self.device.as_mut().map(|device| device.read_exact(&mut [0; RECORD]));
        let taken = matches!(read, Some(Ok(())));
        if !taken {
            self.device = None;
        }
        taken
    }
}

impl Clock for HostClock {
    fn now(&self) -> Time {
        clock::monotonic()
    }

    fn wait(&mut self, until: Time) -> Wake {
        loop {
            let due = self.now() >= until;
            let heard = if due {
                // A timer of an earlier wait may have expired since.
                Events { timer: false, ..self.alarm.poll() }
            } else {
                self.alarm.wait_until((until < Time::NEVER).then_some(until.0))
            };
            if heard.stop {
                return Wake::Stop;
            }
            if heard.device && self.take_interrupt() {
                return Wake::Event;
            }
            if due {
                return Wake::Deadline;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_past_deadline_and_a_signal_end_a_wait_at_once() {
        let mut clock = HostClock::new().unwrap();
        assert_eq!(clock.wait(Time(0)), Wake::Deadline);
        // SAFETY: raise sends to the calling thread, where the signal is blocked.
        (0..2).for_each(|_| _ = unsafe { libc::raise(libc::SIGTERM) });
        assert_eq!(clock.wait(Time::NEVER), Wake::Stop);
    }

    // Two interrupts of 16 bytes, then the end of the file.
    #[test]
    fn each_interrupt_of_a_device_ends_a_wait() {
        let (device, interrupts) = rustix::pipe::pipe().unwrap();
        let mut clock = HostClock::new().unwrap().with_device(device.into());
        File::from(interrupts).write_all(&[0; 2 * RECORD]).unwrap();
        assert_eq!([0, u64::MAX].map(|until| clock.wait(Time(until))), [Wake::Event; 2]);
        assert_eq!(clock.wait(Time(0)), Wake::Deadline);
        let file = tempfile::tempfile().unwrap();
        let mut clock = HostClock::new().unwrap().with_device(file);
        assert_eq!(clock.wait(Time(0)), Wake::Deadline, "a plain file cannot be polled");
    }
}
