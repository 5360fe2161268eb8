//! Limits of a mover. All of them can be changed while it works.

use std::path::PathBuf;
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result};

/// Limits of a mover.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Maximum bytes moved in any second.
    pub bytes_per_second: u64,
    /// Bytes that remain free on each destination node, above the kernel's low watermark.
    pub keep_free: u64,
    /// PSI threshold: share of ten seconds in which some task stalled on memory, above which moving
    /// pauses; it resumes below half of it. 1 and more: no limit.
    pub stalled: f64,
    /// A page that moved twice within this time is not moved again until it has passed. Zero: no
    /// limit.
    pub ping_pong: Duration,
    /// Maximum share of the pages reclaimed in the last ten seconds that may refault within them;
    /// above it reclaim pauses for ten seconds. 1 and more: no limit.
    pub refaults: f64,
    /// The kill switch: nothing moves while this file exists.
    pub kill_switch: Option<PathBuf>,
    /// Dry run: queries page locations, and moves nothing.
    pub dry_run: bool,
}

/// Largest range of one call, in bytes: the kernel moves a huge page as a whole.
pub(crate) const BATCH: u64 = 2 << 20;

/// Defaults. 1 GiB/s, an assumption, is 1/18 of the bandwidth of the slowest common DDR4 channel
/// (DDR4-2400: 19.2 GB/s); a tenth of the time stalled is the threshold in the kernel's own example
/// of a pressure trigger (150 ms in 1 s, Documentation/accounting/psi.rst); one minute is
/// METRICS.md's ping-pong; one page in twenty is assumed, as in
/// `tierscope_policies::reclaim::goal`.
impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_per_second: 1 << 30,
            keep_free: 0,
            stalled: 0.1,
            ping_pong: Duration::from_secs(60),
            refaults: 0.05,
            kill_switch: None,
            dry_run: false,
        }
    }
}

impl Limits {
    /// Checks that the limits are consistent.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the invalid limit.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str, cause: &str, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, format!("cannot move pages with {what}"))
                .cause(cause)
                .remedy(remedy))
        };
        if self.bytes_per_second < BATCH {
            return refuse(
                &format!("a limit of {} bytes a second", self.bytes_per_second),
                "a huge page of 2 MiB moves whole",
                "allow 2MiB a second at least, or choose --dry-run",
            );
        }
        if !self.stalled.is_finite() || self.stalled <= 0.0 {
            return refuse("that pressure limit", "it is a share of time above 0", "try 0.1");
        }
        if !self.refaults.is_finite() || self.refaults < 0.0 {
            return refuse("that limit of refaults", "it is a share from 0 on", "try 0.05");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_would_never_move_anything_are_refused() {
        assert_eq!(Limits::default().check(), Ok(()));
        let slow = Limits { bytes_per_second: 4096, ..Limits::default() };
        assert!(slow.check().unwrap_err().to_string().contains("2MiB a second at least"));
        let never = Limits { stalled: 0.0, ..Limits::default() };
        assert_eq!(never.check().unwrap_err().kind(), ErrorKind::Usage);
        let unknown = Limits { stalled: f64::NAN, ..Limits::default() };
        assert!(unknown.check().is_err());
    }
}
