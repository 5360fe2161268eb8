//! Flags of how recordings are kept: limits on the age and size of a series that is recorded in the
//! background, and the group that may read.

use std::time::Duration;

use clap::Args;
use nix::unistd::Group;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_record::Access;
use tierscope_record::series::Retention;

use crate::units::{self, about_size, exact_time};

/// Smallest size limit of a series: a recording has to hold a few windows with thousands of
/// regions.
const LEAST_BYTES: u64 = 16 << 20;
/// Shortest retention, in windows.
const LEAST_WINDOWS: u32 = 24;

/// Retention of a series. With one of these flags DIR becomes a series of consecutive recordings,
/// each an hour long or shorter, of which the oldest are removed.
#[derive(Clone, Debug, Default, Args)]
pub struct RetentionArgs {
    /// Record a series, and remove recordings that ended longer ago than this
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub retention: Option<Duration>,

    /// Record a series of at most this size, and remove the oldest recordings
    #[arg(long, value_name = "SIZE", value_parser = units::address)]
    pub max_size: Option<u64>,

    /// Let this group read the recording; without it only the owner may
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
}

impl RetentionArgs {
    /// The retention of a series; `None` for a single recording without limits.
    #[must_use]
    pub fn retention(&self) -> Option<Retention> {
        let asked = self.retention.is_some() || self.max_size.is_some();
        asked.then_some(Retention { age: self.retention, bytes: self.max_size })
    }

    /// Access to the files of the recording.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if there is no such group.
    pub fn access(&self) -> Result<Access> {
        let Some(name) = &self.group else { return Ok(Access::default()) };
        let refuse = |cause: &str| {
            Error::new(ErrorKind::Usage, format!("cannot share the recording with group {name}"))
                .cause(cause)
                .remedy("choose one that `getent group` prints")
        };
        match Group::from_name(name) {
            Ok(Some(group)) => Ok(Access::shared_with(group.gid.as_raw())),
            Ok(None) => Err(refuse("there is no such group")),
            Err(error) => Err(refuse(error.desc())),
        }
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
        let keep = RetentionArgs { max_size: Some(1), ..RetentionArgs::default() };
        assert_eq!(keep.retention(), Some(Retention { age: None, bytes: Some(1) }));
    }

    #[test]
    fn a_group_is_looked_up_by_name() {
        let access = |group: Option<&str>| {
            RetentionArgs { group: group.map(Into::into), ..RetentionArgs::default() }.access()
        };
        assert_eq!(access(None).unwrap(), Access::default());
        assert_eq!(access(Some("root")).unwrap(), Access::shared_with(0));
        let error = access(Some("no such group")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert_eq!(
            error.to_string(),
            "cannot share the recording with group no such group: there is no such group; choose \
             one that `getent group` prints"
        );
    }
}
