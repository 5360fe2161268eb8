//! Progress lines on stderr, with the time since the start.

use std::sync::OnceLock;
use std::time::Instant;

static START: OnceLock<Instant> = OnceLock::new();

/// Seconds since the first call: the clock of every progress line.
pub fn elapsed() -> f64 {
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Prints one progress line.
pub fn say(text: impl std::fmt::Display) {
    eprintln!("[{:6.1} s] {text}", elapsed());
}
