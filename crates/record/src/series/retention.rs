//! Retention of a series: maximum age and size.

use std::time::{Duration, SystemTime};

use super::directory::Member;

/// Maximum duration of a recording of a series.
const LONGEST: Duration = Duration::from_secs(3600);
/// Minimum number of recordings that the retained data are divided into: a removal deletes a whole
/// recording.
const PIECES: u32 = 24;

/// Limits of a series; the stricter one applies if both are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Maximum age: recordings that ended earlier are removed.
    pub age: Option<Duration>,
    /// Maximum bytes of the series, including the recording being written.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Duration of a recording of the series.
    #[must_use]
    pub fn span(&self) -> Duration {
        self.age.map_or(LONGEST, |age| (age / PIECES).min(LONGEST))
    }

    /// Maximum bytes of a recording of the series; unlimited without a size limit.
    #[must_use]
    pub fn piece_bytes(&self) -> u64 {
        self.bytes.map_or(u64::MAX, |bytes| bytes / u64::from(PIECES))
    }

    /// Number of `members`, from the oldest on, to remove at the time `now`. The last member is the
    /// one being written, which may yet grow to [`Retention::piece_bytes`].
    pub(super) fn doomed(&self, members: &[Member], now: SystemTime) -> usize {
        let ended = members.len().saturating_sub(1);
        self.too_old(members, now).max(self.too_much(&members[..ended])).min(ended)
    }

    /// Number of recordings that ended before the age limit; a recording ends when the next one
    /// begins.
    fn too_old(&self, members: &[Member], now: SystemTime) -> usize {
        let Some(oldest) = self.age.and_then(|age| now.checked_sub(age)) else { return 0 };
        members.iter().skip(1).take_while(|next| next.began <= oldest).count()
    }

    fn too_much(&self, ended: &[Member]) -> usize {
        let Some(most) = self.bytes else { return 0 };
        let room = most.saturating_sub(self.piece_bytes());
        let mut kept: u64 = 0;
        let fits = |member: &&Member| {
            kept = kept.saturating_add(member.bytes);
            kept <= room
        };
        ended.len() - ended.iter().rev().take_while(fits).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Hourly recordings of these sizes; the returned time is the end of the last one.
    fn members(bytes: &[u64]) -> (Vec<Member>, SystemTime) {
        let at = |hour: usize| UNIX_EPOCH + HOUR * hour as u32;
        let member = |(hour, bytes): (usize, &u64)| Member {
            path: format!("{hour}").into(),
            began: at(hour),
            bytes: *bytes,
        };
        (bytes.iter().enumerate().map(member).collect(), at(bytes.len()))
    }

    #[test]
    fn a_recording_covers_a_24th_and_an_hour_at_most() {
        let by_age = |age| Retention { age: Some(age), bytes: None };
        assert_eq!(by_age(24 * HOUR).span(), HOUR);
        assert_eq!(by_age(HOUR).span(), HOUR / 24);
        assert_eq!(by_age(1000 * HOUR).span(), HOUR);
        let by_bytes = Retention { age: None, bytes: Some(2400) };
        assert_eq!((by_bytes.span(), by_bytes.piece_bytes()), (HOUR, 100));
    }

    // Six recordings end 5, 4, … 1, 0 hours ago.
    #[test]
    fn expired_recordings_are_removed() {
        let (members, now) = members(&[1; 6]);
        let doomed =
            |hours| Retention { age: Some(hours * HOUR), bytes: None }.doomed(&members, now);
        assert_eq!([9, 6, 5, 3, 1].map(doomed), [0, 0, 1, 3, 5]);
        assert_eq!(doomed(0), 5, "never the one being written");
    }

    // 2400 bytes: a piece is 100, so that 2300 are left for ended recordings.
    #[test]
    fn recordings_beyond_the_size_are_removed() {
        let retention = Retention { age: None, bytes: Some(2400) };
        let doomed = |bytes: &[u64]| {
            let (members, now) = members(bytes);
            retention.doomed(&members, now)
        };
        assert_eq!(doomed(&[100, 2200, 100, 7]), 1);
        assert_eq!(doomed(&[100, 2200, 7]), 0);
        assert_eq!(doomed(&[2301, 7]), 1);
        assert_eq!(doomed(&[9999]), 0, "never the one being written");
        assert_eq!(doomed(&[]), 0);
    }

    #[test]
    fn the_stricter_limit_applies() {
        let (members, now) = members(&[1000; 4]);
        let both = |age, bytes| Retention { age: Some(age * HOUR), bytes: Some(bytes) };
        assert_eq!(both(9, 2400).doomed(&members, now), 1);
        assert_eq!(both(1, 24_000).doomed(&members, now), 3);
    }
}
