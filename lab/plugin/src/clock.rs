//! Time in nanoseconds, cheap enough to read at every access: the processor's time-stamp counter,
//! calibrated against CLOCK_MONOTONIC at the start, or that clock itself if the counter is not
//! constant.

use std::time::Instant;

/// Duration of the calibration: the rate is accurate to a millionth, since clock_gettime is
/// accurate to tens of ns.
const MEASURE_NS: u64 = 50_000_000;

/// A clock with its start as origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    first: u64,
    /// Nanoseconds per 2^32 ticks; 0: the counter is not used.
    scale: u64,
}

impl Clock {
    /// Starts a clock at 0. Takes 50 ms if the counter is constant.
    #[must_use]
    pub fn start() -> Self {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let (started, first) = (Instant::now(), ticks());
        let scale = if is_constant(&text) { measure(started, first) } else { 0 };
        Self { started, first, scale }
    }

    /// Nanoseconds since the start.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> u64 {
        if self.scale == 0 {
            return self.started.elapsed().as_nanos() as u64;
        }
        nanos(ticks().wrapping_sub(self.first), self.scale)
    }

    /// Spins until `moment`.
    #[inline]
    pub fn spin_until(&self, moment: u64) {
        while self.now() < moment {
            std::hint::spin_loop();
        }
    }
}

fn measure(started: Instant, first: u64) -> u64 {
    while (started.elapsed().as_nanos() as u64) < MEASURE_NS {
        std::hint::spin_loop();
    }
    let (passed, counted) = (started.elapsed().as_nanos(), u128::from(ticks() - first));
    ((passed << 32) / counted.max(1)) as u64
}

#[inline(always)]
fn nanos(ticks: u64, scale: u64) -> u64 {
    ((u128::from(ticks) * u128::from(scale)) >> 32) as u64
}

/// Whether the counter has a constant rate and never stops (Intel SDM volume 3, section 17.17.1).
fn is_constant(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    ["constant_tsc", "nonstop_tsc"].iter().all(|flag| flags.split(' ').any(|each| each == *flag))
}

#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        // 2 GHz: half a nanosecond per tick.
        assert_eq!(nanos(2_000_000_000, 1 << 31), 1_000_000_000);
        assert_eq!(nanos(u64::MAX, 1 << 31), u64::MAX / 2, "no overflow after centuries");
    }

    #[test]
    fn both_flags_are_needed() {
        assert!(is_constant("processor : 0\nflags\t\t: fpu constant_tsc nonstop_tsc sse\n"));
        assert!(!is_constant("flags : fpu constant_tsc\n"));
        assert!(!is_constant(""));
    }

    #[test]
    fn it_runs_forward() {
        let clock = Clock::start();
        let first = clock.now();
        clock.spin_until(first + 1000);
        assert!(clock.now() >= first + 1000);
    }
}
