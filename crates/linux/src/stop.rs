//! Waiting for the user to say stop, for commands that watch nothing themselves.

use tierscope_core::Result;

use crate::alarm::Alarm;

/// While it lives, SIGINT, SIGTERM and SIGHUP no longer end the process: not the thread that made
/// it, and not the threads which that one starts. They are waited for instead.
pub struct StopSignals(Alarm);

impl StopSignals {
    /// From here on.
    ///
    /// # Errors
    /// If the process may open no more files.
    pub fn hold() -> Result<Self> {
        Alarm::new().map(Self)
    }

    /// Waits for one of them.
    pub fn wait(&self) {
        while !self.0.wait_until(None).stop {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_wait_and_not_the_process() {
        let signals = StopSignals::hold().unwrap();
        // SAFETY: raise goes to the calling thread, where the signal is blocked.
        unsafe { libc::raise(libc::SIGTERM) };
        signals.wait();
    }
}
