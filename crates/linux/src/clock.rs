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

/// CPU time of all threads of a process, ended ones included; `None` if there is no such process.
pub(crate) fn cpu_of(pid: u32) -> Option<Duration> {
    /// CPUCLOCK_SCHED of include/linux/posix-timers_types.h.
    const RUNTIME: libc::clockid_t = 2;
    // Pids have 22 bits at most (PID_MAX_LIMIT).
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid < 1 << 22)?;
    let clock = (!pid << 3) | RUNTIME;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, exclusive timespec.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (answer == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// These clocks never show a time before their start.
fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    // Of this process, the clock is the one that it has itself.
    #[test]
    fn processes_have_clocks() {
        let before = process_cpu();
        let of_this = cpu_of(std::process::id()).unwrap();
        assert!(before <= of_this && of_this <= process_cpu());
        assert_eq!([(1 << 22) - 1, i32::MAX as u32, u32::MAX].map(cpu_of), [None; 3]);
    }
}
