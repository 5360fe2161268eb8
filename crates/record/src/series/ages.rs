//! Ages of recordings, which a clock that jumps must not change.
//!
//! Ages of recordings of this run are exact: by the machine's clock, which never jumps. Ages of
//! older recordings follow from the wall clock, which may be years wrong, before the first
//! synchronisation or for good. Three rules keep a jump from removing them all, and from keeping
//! one for ever:
//! - The wall clock counts only if it kept pace with the machine's clock since the recording before
//!   ([`Pace`]) or, at a start, if the newest recording was written less than an hour ago.
//! - Each new recording removes at most two of them by the wall clock. What expired while nothing
//!   was recorded is gone after half the maximum age.
//! - A recording written as far in the future as the maximum age counts as expired. Whatever the
//!   wall clock says, the machine's clock alone ends everything that is older than this run once
//!   the run itself is that long.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tierscope_core::Time;

use super::directory::Member;
use super::retention::LONGEST;

/// Older recordings removed at once by the wall clock.
const AT_ONCE: usize = 2;

/// Ages by the machine's clock of a run.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// Recordings of earlier runs. Others are of this run, also before [`Ages::ended`].
    older: HashSet<PathBuf>,
    /// Start of the run's first window, and end of its last one.
    run: Option<(Time, Time)>,
    /// Ends of the recordings of this run.
    ended: HashMap<PathBuf, Time>,
}

impl Ages {
    /// The ages at the start of a run that finds `members`.
    pub(super) fn after(members: &[Member]) -> Self {
        let older = members.iter().map(|member| member.path.clone()).collect();
        Self { older, ..Self::default() }
    }

    /// Notes that a recording of this run ended.
    pub(super) fn ended(&mut self, path: &Path, first: Time, end: Time) {
        self.run = Some((self.run.map_or(first, |run| run.0), end));
        self.ended.insert(path.into(), end);
    }

    /// Forgets a removed recording.
    pub(super) fn forget(&mut self, path: &Path) {
        self.older.remove(path);
        self.ended.remove(path);
    }

    /// A test for recordings that ended longer than `age` ago; `wall` is the wall clock's time if
    /// it counts.
    pub(super) fn expired(
        &self,
        age: Option<Duration>,
        wall: Option<SystemTime>,
    ) -> impl FnMut(&Member) -> bool + '_ {
        let age = age.unwrap_or(Duration::MAX);
        let (mut left, run) = (AT_ONCE, self.run.unwrap_or_default());
        move |member| {
            let is_older = self.older.contains(&member.path);
            let end = if is_older { Some(run.0) } else { self.ended.get(&member.path).copied() };
            if end.is_some_and(|end| run.1 - end > age) {
                return true;
            }
            let old = is_older && wall.is_some_and(|now| apart(now, member.written) > age);
            old && left > 0 && {
                left -= 1;
                true
            }
        }
    }
}

/// Whether the wall clock counts at a start: it is within an hour of the newest recording.
pub(super) fn is_plausible(members: &[Member], now: SystemTime) -> bool {
    members.last().is_some_and(|newest| apart(now, newest.written) < LONGEST)
}

fn apart(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|earlier| earlier.duration())
}

/// Whether the wall clock keeps pace with the machine's.
#[derive(Debug, Default)]
pub(super) struct Pace {
    since: Option<(SystemTime, Time)>,
}

impl Pace {
    /// Compares the clocks; true if they agreed to a `span`, for a `span` at least.
    pub(super) fn kept(&mut self, wall: SystemTime, at: Time, span: Duration) -> bool {
        let Some((wall_before, before)) = self.since else {
            self.since = Some((wall, at));
            return false;
        };
        let agreed = apart(wall, wall_before + (at - before)) <= span;
        let long = at - before >= span;
        if !agreed || long {
            self.since = Some((wall, at));
        }
        agreed && long
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    const HOUR: Duration = Duration::from_secs(3600);
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

    /// The wall clock says 2001 unless it jumped.
    fn today() -> SystemTime {
        UNIX_EPOCH + 31 * YEAR
    }

    /// Recordings written so many hours ago, oldest first.
    fn members(hours: &[u32]) -> Vec<Member> {
        let member = |hours: &u32| Member {
            path: format!("{hours}").into(),
            began: today(),
            written: today() - HOUR * *hours,
            bytes: 1,
        };
        hours.iter().map(member).collect()
    }

    const KEEP: Option<Duration> = Some(Duration::from_secs(24 * 3600));

    fn expired(ages: &Ages, hours: &[u32], wall: Option<SystemTime>) -> Vec<bool> {
        members(hours).iter().map(ages.expired(KEEP, wall)).collect()
    }

    #[test]
    fn older_recordings_go_two_at_once_by_a_wall_clock_that_counts() {
        let hours = [40, 30, 25, 24, 1];
        let ages = Ages::after(&members(&hours));
        assert_eq!(expired(&ages, &hours, Some(today())), [true, true, false, false, false]);
        assert_eq!(expired(&ages, &hours[2..], Some(today())), [true, false, false]);
        assert_eq!(expired(&ages, &hours, None), [false; 5]);
        let forever = ages.expired(None, Some(today() + YEAR));
        assert_eq!(members(&hours).iter().map(forever).collect::<Vec<_>>(), [false; 5]);
    }

    // The run finds recording 23. Its own recording 3 ends 10 h after the start; 2 has no end yet.
    #[test]
    fn recordings_of_this_run_age_by_the_machines_clock() {
        let mut ages = Ages::after(&members(&[23]));
        ages.ended(Path::new("3"), Time(0), Time(0) + 10 * HOUR);
        let steps = [(24, [false, false]), (25, [true, false]), (34, [true, false])];
        for (long, gone) in steps.into_iter().chain([(35, [true, true])]) {
            ages.ended(Path::new("new"), Time(0), Time(0) + long * HOUR);
            assert_eq!(expired(&ages, &[23, 3], None), gone, "after {long} h");
        }
        let jumped = Some(today() + 10 * YEAR);
        assert_eq!(expired(&ages, &[2], jumped), [false]);
    }

    #[test]
    fn a_recording_of_a_wrong_future_expires_as_well() {
        let future = Member { written: today() + 10 * YEAR, ..members(&[0]).remove(0) };
        let ages = Ages::after(std::slice::from_ref(&future));
        assert!(ages.expired(KEEP, Some(today()))(&future));
        assert!(!ages.expired(Some(20 * YEAR), Some(today()))(&future));
    }

    #[test]
    fn a_start_believes_the_wall_clock_near_the_newest_recording() {
        let members = members(&[30, 2]);
        let plausible = |now| is_plausible(&members, now);
        assert!(plausible(today() - HOUR - HOUR / 2) && plausible(today() - 2 * HOUR - HOUR / 2));
        assert!(!plausible(today()) && !plausible(today() + YEAR) && !plausible(today() - YEAR));
        assert!(!is_plausible(&[], today()));
    }

    // Spans of an hour: each line is the wall clock's and the machine's progress.
    #[test]
    fn a_jump_is_seen_and_a_steady_clock_counts_after_a_span() {
        let mut pace = Pace::default();
        let (mut wall, mut at) = (today(), Time(0));
        let mut kept = |wall_step: Duration, step: Duration| {
            (wall, at) = (wall + wall_step, at + step);
            pace.kept(wall, at, HOUR)
        };
        assert!(!kept(HOUR, HOUR), "the first look");
        assert!(kept(HOUR, HOUR));
        assert!(!kept(HOUR / 2, HOUR / 2), "too short");
        assert!(kept(HOUR, HOUR));
        assert!(!kept(YEAR, HOUR), "a jump");
        assert!(kept(HOUR + HOUR / 2, HOUR));
        assert!(!kept(Duration::ZERO, 3 * HOUR), "the clock went back");
    }
}
