//! Waiting until telemetry tells, or until a time.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A file that gives a few bytes for each interrupt to whoever reads it (lab/kmod/device), read by a thread of its own.
#[derive(Debug)]
pub struct Bell(Option<Receiver<()>>);

impl Bell {
    /// The bell at `path` (`/dev/tierscope_device`); one that never rings if there is none.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        let Ok(mut file) = File::open(path) else { return Self(None) };
        let (ring, rung) = channel();
        std::thread::spawn(move || {
            let mut words = [0; 16];
            // Ends with the program, or once nobody listens.
            while file.read_exact(&mut words).is_ok() && ring.send(()).is_ok() {}
        });
        Self(Some(rung))
    }

    /// Whether it may ever ring.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for so long at most. Returns whether it rang.
    pub fn wait(&self, time: Duration) -> bool {
        let Some(rung) = &self.0 else {
            std::thread::sleep(time);
            return false;
        };
        match rung.recv_timeout(time) {
            Ok(()) => {
                // What rang meanwhile says no more.
                while rung.try_recv().is_ok() {}
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
    fn each_record_of_the_file_rings_and_its_end_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bell");
        std::fs::write(&path, [0; 16]).unwrap();
        let bell = Bell::at(&path);
        assert!(bell.is_there() && bell.wait(Duration::from_secs(60)));
        assert!(!bell.wait(Duration::ZERO));
        assert!(!Bell::at(&dir.path().join("none")).is_there());
    }
}
