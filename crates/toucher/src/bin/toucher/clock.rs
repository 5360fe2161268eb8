//! CLOCK_MONOTONIC, the clock of recordings.

use rustix::time::{ClockId, clock_gettime};
use tierscope_core::Time;

/// The current time.
pub(crate) fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    Time(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
