//! Checks that the settings of many instruments share.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Level, LevelSet, Result};

/// Refuses a setting, with the cause and what to do about it.
pub(crate) fn refuse(what: &str, cause: impl std::fmt::Display, remedy: &str) -> Result<()> {
    Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
}

/// A sampling interval takes time, and a window holds at least `least` of them.
pub(crate) fn intervals(sampling: Duration, window: Duration, least: u32) -> Result<()> {
    if sampling.is_zero() {
        return refuse("sampling interval is zero", "nothing can be seen in no time", "try 5ms");
    }
    if window < least * sampling {
        let cause = format!("a window holds fewer than {least} sampling intervals");
        return refuse("window is too short", cause, "make it 40 sampling intervals");
    }
    Ok(())
}

/// At least `least` regions, and no fewer at most than at least.
pub(crate) fn region_limits(min: usize, max: usize, least: usize) -> Result<()> {
    if min < least || max < min {
        let cause = format!("{least} <= min <= max does not hold");
        return refuse("region limits", cause, "try 10 and 1000");
    }
    Ok(())
}

/// The leaves and the two levels above must tell: an instrument that looks at all three cannot work
/// without one of them, which `what` says.
pub(crate) fn require_lower_levels(proven: LevelSet, what: &str) -> Result<()> {
    match [Level::PTE, Level::PMD, Level::PUD].iter().find(|level| !proven.contains(**level)) {
        None => Ok(()),
        Some(level) => Err(Error::new(ErrorKind::Missing, what)
            .cause(format!("hardware was not seen to set ACCESSED at level {level}"))
            .remedy("use --instrument damon or scan, which look at leaves only")),
    }
}
