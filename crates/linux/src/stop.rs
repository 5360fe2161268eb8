//! Waits for a stop signal, in commands that do not watch a target themselves.

use tierscope_core::Result;

use crate::alarm::Alarm;

/// While this exists, SIGINT, SIGTERM and SIGHUP do not terminate the thread that created it, nor
/// the threads which that one starts. They are waited for instead.
pub struct StopSignals(Alarm);

impl StopSignals {
    /// Blocks the signals.
    ///
    /// # Errors
    /// If the limit of open files is reached.
    pub fn hold() -> Result<Self> {
        Alarm::new().map(Self)
    }

    /// Waits for one of the signals.
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
        // SAFETY: raise sends to the calling thread, where the signal is blocked.
        unsafe { libc::raise(libc::SIGTERM) };
        signals.wait();
    }
}
