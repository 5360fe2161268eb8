//! Retention flags: limits on the age and size of a series that is recorded in the background.

use std::time::Duration;

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_record::series::Retention;

use crate::units::{self, about_size, exact_time};

/// Smallest size limit of a series: a recording has to hold a few windows with thousands of
/// regions.
const LEAST_BYTES: u64 = 16 << 20;
/// Shortest retention, in windows.
const LEAST_WINDOWS: u32 = 24;

/// Retention of a series. With one of these flags DIR becomes a series of consecutive recordings,
/// each an hour long or shorter, of which the oldest are removed.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct RetentionArgs {
    /// Record a series, and remove recordings that ended longer ago than this
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub retention: Option<Duration>,

    /// Record a series of at most this size, and remove the oldest recordings
    #[arg(long, value_name = "SIZE", value_parser = units::address)]
    pub max_size: Option<u64>,
}

impl RetentionArgs {
    /// The retention of a series; `None` for a single recording without limits.
    #[must_use]
    pub fn retention(&self) -> Option<Retention> {
        let asked = self.retention.is_some() || self.max_size.is_some();
        asked.then_some(Retention { age: self.retention, bytes: self.max_size })
    }
}

/// Checks a retention against the length of a window.
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
            format!("--retention {}", exact_time(*age)),
            "that is shorter than 24 windows",
            format!("keep at least {}", exact_time(least)),
        ),
        Retention { bytes: Some(bytes), .. } if *bytes < LEAST_BYTES => refuse(
            format!("--max-size {}", about_size(*bytes)),
            "that is too small for a series",
            "allow at least 16M".into(),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_below_a_few_windows_is_refused() {
        let window = Duration::from_millis(200);
        let of = |seconds, bytes| Retention { age: Some(Duration::from_secs(seconds)), bytes };
        assert!(check(&of(5, Some(16 << 20)), window).is_ok());
        assert!(check(&of(4, None), window).unwrap_err().to_string().contains("at least 4.8s"));
        assert!(check(&of(5, Some(1 << 20)), window).unwrap_err().to_string().contains("16M"));
    }

    #[test]
    fn without_a_flag_there_is_no_series() {
        assert_eq!(RetentionArgs::default().retention(), None);
        let keep = RetentionArgs { max_size: Some(1), retention: None };
        assert_eq!(keep.retention(), Some(Retention { age: None, bytes: Some(1) }));
    }
}
