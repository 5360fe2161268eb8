//! How much of what is recorded is kept: the flags of recording in the background.

use std::time::Duration;

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_record::series::Retention;

use crate::units::{self, show_bytes, show_duration};

/// A recording of a series has to hold a few windows of thousands of regions.
const LEAST_BYTES: u64 = 16 << 20;
/// … and at least one window.
const LEAST_WINDOWS: u32 = 24;

/// How much is kept. With one of these flags DIR becomes a series of recordings that follow each
/// other, an hour long or shorter, of which the oldest are removed.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct KeepArgs {
    /// Record a series, and remove from it what ended longer ago than this
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub retention: Option<Duration>,

    /// Record a series that takes no more than this, and remove the oldest of it
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub max_size: Option<u64>,
}

impl KeepArgs {
    /// What to keep; `None` for a single recording that is kept whole.
    #[must_use]
    pub fn retention(&self) -> Option<Retention> {
        let asked = self.retention.is_some() || self.max_size.is_some();
        asked.then_some(Retention { age: self.retention, bytes: self.max_size })
    }
}

/// Whether something can be kept by `retention` with windows of that length.
///
/// # Errors
/// [`ErrorKind::Usage`] with cause and remedy.
pub fn check(retention: &Retention, window: Duration) -> Result<()> {
    let refuse = |flag: String, cause: &str, remedy: String| {
        let what = format!("cannot record with {flag}");
        Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
    };
    let least = window * LEAST_WINDOWS;
    match retention {
        Retention { age: Some(age), .. } if *age < least => refuse(
            format!("--retention {}", show_duration(*age)),
            "that is shorter than 24 windows",
            format!("keep at least {}", show_duration(least)),
        ),
        Retention { bytes: Some(bytes), .. } if *bytes < LEAST_BYTES => refuse(
            format!("--max-size {}", show_bytes(*bytes)),
            "a series has no room in that",
            "allow at least 16M".into(),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_hold_anything_is_refused() {
        let window = Duration::from_millis(200);
        let of = |seconds, bytes| Retention { age: Some(Duration::from_secs(seconds)), bytes };
        assert!(check(&of(5, Some(16 << 20)), window).is_ok());
        assert!(check(&of(4, None), window).unwrap_err().to_string().contains("at least 4.8s"));
        assert!(check(&of(5, Some(1 << 20)), window).unwrap_err().to_string().contains("16M"));
    }

    #[test]
    fn without_a_flag_there_is_no_series() {
        assert_eq!(KeepArgs::default().retention(), None);
        let keep = KeepArgs { max_size: Some(1), retention: None };
        assert_eq!(keep.retention(), Some(Retention { age: None, bytes: Some(1) }));
    }
}
