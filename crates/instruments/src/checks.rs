//! Checks for settings that several instruments share.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Level, LevelSet, Result};

/// Returns an error for a setting, with cause and remedy.
pub(crate) fn refuse(what: &str, cause: impl std::fmt::Display, remedy: &str) -> Result<()> {
    Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
}

/// Checks that the sampling interval is not zero and that a window holds at least `least`
/// intervals.
pub(crate) fn intervals(sampling: Duration, window: Duration, least: u32) -> Result<()> {
    if sampling.is_zero() {
        return refuse("sampling interval is zero", "it must be above zero", "try 5ms");
    }
    if window < least * sampling {
        let cause = format!("a window holds fewer than {least} sampling intervals");
        return refuse("window is too short", cause, "make it 40 sampling intervals");
    }
    Ok(())
}

/// Checks `least <= min <= max` for limits on the number of regions.
pub(crate) fn region_limits(min: usize, max: usize, least: usize) -> Result<()> {
    if min < least || max < min {
        let cause = format!("{least} <= min <= max does not hold");
        return refuse("region limits", cause, "try 10 and 1000");
    }
    Ok(())
}

/// Requires ACCESSED bits at levels 1 to 3, for instruments that probe all three; `what` is the
/// error's description.
pub(crate) fn require_lower_levels(proven: LevelSet, what: &str) -> Result<()> {
    match [Level::PTE, Level::PMD, Level::PUD].iter().find(|level| !proven.contains(**level)) {
        None => Ok(()),
        Some(level) => Err(Error::new(ErrorKind::Missing, what)
            .cause(format!("hardware was not seen to set ACCESSED at level {level}"))
            .remedy("use --instrument damon or scan, which look at leaves only")),
    }
}
