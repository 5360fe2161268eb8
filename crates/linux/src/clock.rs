//! Clocks of the running kernel.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use tierscope_core::Time;

/// Clock ticks per second (USER_HZ), the unit of start times in /proc/PID/stat.
const TICKS: u64 = 100;

/// CLOCK_MONOTONIC: the machine's time, as in the ground truth of a toucher.
pub(crate) fn monotonic() -> Time {
    Time(nanos(clock_gettime(ClockId::Monotonic)))
}

/// CLOCK_BOOTTIME in clock ticks.
pub(crate) fn boot_ticks() -> u64 {
    nanos(clock_gettime(ClockId::Boottime)) / (1_000_000_000 / TICKS)
}

/// CPU time of all threads of this process.
pub(crate) fn process_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)))
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}

/// These clocks never show a time before their start.
fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
