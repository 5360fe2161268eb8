//! `cpu.max` of a cgroup (Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files").

use std::fmt;
use std::ops::RangeInclusive;

/// Periods that the kernel accepts, in microseconds (kernel/sched/core.c, `min_cfs_quota_period`,
/// `max_cfs_quota_period`).
const PERIODS_US: RangeInclusive<u64> = 1000..=1_000_000;
/// Minimum quota that the kernel accepts, in microseconds.
const LEAST_US: u64 = 1000;

/// A limit of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuMax {
    /// CPU time per period, in microseconds; `None` without a limit.
    quota_us: Option<u64>,
    period_us: u64,
}

impl CpuMax {
    /// Parses the first line of the file. `None` if the kernel would not write it so.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = |word: &str| {
            let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            word.parse::<u64>().ok().filter(|_| digits)
        };
        let (quota, period) = text.lines().next()?.trim_end().split_once(' ')?;
        let period_us = number(period).filter(|period| PERIODS_US.contains(period))?;
        let quota_us = match quota {
            "max" => None,
            quota => Some(number(quota).filter(|quota| *quota >= LEAST_US)?),
        };
        Some(Self { quota_us, period_us })
    }

    /// The limit in CPUs; infinite without one.
    pub(super) fn cpus(self) -> f64 {
        self.quota_us.map_or(f64::INFINITY, |quota| quota as f64 / self.period_us as f64)
    }

    /// This limit lowered to `cpus`, with the same period: in whole microseconds, and at least the
    /// kernel's minimum. Never above this limit.
    pub(super) fn lowered_to(self, cpus: f64) -> Self {
        let quota = ((cpus * self.period_us as f64) as u64).max(LEAST_US);
        match self.quota_us {
            Some(own) if own <= quota => self,
            _ => Self { quota_us: Some(quota), ..self },
        }
    }
}

/// As the kernel writes it.
impl fmt::Display for CpuMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quota_us {
            Some(quota) => write!(f, "{quota} {}", self.period_us),
            None => write!(f, "max {}", self.period_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> CpuMax {
        CpuMax::parse(text).unwrap()
    }

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        assert_eq!(of("max 100000\n").cpus(), f64::INFINITY);
        assert_eq!(of("200000 100000\n").cpus(), 2.0);
        for text in ["max 100000", "200000 100000", "1000 1000000"] {
            assert_eq!(of(text).to_string(), text);
        }
        for bad in ["", "max", "max 0", "max 999", "max 1000001", "-1 100000", "+5000 100000"] {
            assert_eq!(CpuMax::parse(bad), None, "{bad}");
        }
        for bad in ["999 100000", "max  100000", " max 100000", "1e6 100000", "max 100000 1"] {
            assert_eq!(CpuMax::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_lowered_limit_keeps_its_period() {
        assert_eq!(of("max 100000").lowered_to(0.25), of("25000 100000"));
        assert_eq!(of("max 20000").lowered_to(0.25), of("5000 20000"));
        assert_eq!(of("200000 100000").lowered_to(32.0), of("200000 100000"));
        assert_eq!(of("max 100000").lowered_to(1e-9), of("1000 100000"), "the kernel's minimum");
    }

    proptest! {
        #[test]
        fn a_limit_is_never_raised(
            quota in 1000u64..1 << 40,
            period in PERIODS_US,
            cpus in 0f64..1e9,
        ) {
            let before = CpuMax { quota_us: Some(quota), period_us: period };
            prop_assert!(before.lowered_to(cpus).cpus() <= before.cpus());
            prop_assert_eq!(CpuMax::parse(&before.to_string()), Some(before));
        }
    }
}
