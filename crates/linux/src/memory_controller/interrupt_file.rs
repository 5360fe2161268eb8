//! Waits for an interrupt of the telemetry device, with a timeout.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A file that returns a few bytes per interrupt (lab/kmod/device), read by a separate thread.
#[derive(Debug)]
pub struct InterruptFile(Option<Receiver<()>>);

impl InterruptFile {
    /// Opens the interrupt file at `path` (`/dev/tierscope_device`); without it, no interrupt ever
    /// arrives.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        let Ok(mut file) = File::open(path) else { return Self(None) };
        let (sender, interrupts) = channel();
        std::thread::spawn(move || {
            let mut words = [0; 16];
            // The thread ends with the program, or when the receiver has been dropped.
            while file.read_exact(&mut words).is_ok() && sender.send(()).is_ok() {}
        });
        Self(Some(interrupts))
    }

    /// Whether interrupts can arrive.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for an interrupt, at most for `time`. Returns whether one arrived.
    pub fn wait(&self, time: Duration) -> bool {
        let Some(interrupts) = &self.0 else {
            std::thread::sleep(time);
            return false;
        };
        match interrupts.recv_timeout(time) {
            Ok(()) => {
                // Further pending interrupts carry no information.
                while interrupts.try_recv().is_ok() {}
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(time);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_of_the_file_is_an_interrupt() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        std::fs::write(&path, [0; 16]).unwrap();
        let interrupts = InterruptFile::at(&path);
        assert!(interrupts.is_there() && interrupts.wait(Duration::from_secs(60)));
        assert!(!interrupts.wait(Duration::ZERO));
        assert!(!InterruptFile::at(&dir.path().join("none")).is_there());
    }
}
