//! What a mover keeps to. All of it may change while it works.

use std::path::PathBuf;
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result};

/// The limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes moved in any second at most.
    pub bytes_per_second: u64,
    /// Bytes that stay free on every node that pages move to, above the kernel's low watermark.
    pub keep_free: u64,
    /// Share of ten seconds in which some task waited for memory, from which on nothing moves; it goes on
    /// below half of it. 1 and more: never mind.
    pub stalled: f64,
    /// A page that moved twice within this time stays where it is. Zero: no limit.
    pub ping_pong: Duration,
    /// Share of what was given back within ten seconds that may have come back in them; above it nothing is given
    /// back for ten seconds. 1 and more: never mind.
    pub refaults: f64,
    /// Nothing moves while this file is there.
    pub kill_switch: Option<PathBuf>,
    /// Looks, and moves nothing.
    pub dry_run: bool,
}

/// Bytes that one call is about: a page of the kernel's moves whole.
pub(crate) const BATCH: u64 = 2 << 20;

/// A GiB a second is a tenth of what one channel of DDR4 carries (assumed: whoever needs more says so); a
/// tenth of the time waiting is where the kernel's own example of a pressure trigger stands (150 ms in 1 s,
/// Documentation/accounting/psi.rst); a minute is METRICS.md's ping-pong; one page
/// in twenty is assumed, as in `tierscope_policies::reclaim::goal`.
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
    /// Checks that they make sense.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming which does not.
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
