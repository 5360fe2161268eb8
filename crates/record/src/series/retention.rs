//! Retention of a series: maximum age and size.

use std::time::Duration;

use super::directory::Member;

/// Maximum duration of a recording of a series.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);
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

    /// The `members` to remove, of which `expired` tells those beyond the maximum age. The last one
    /// stays: it is being written, and may yet grow to [`Retention::piece_bytes`], or it is the
    /// newest of an earlier run.
    pub(super) fn doomed<'m>(
        &self,
        members: &'m [Member],
        mut expired: impl FnMut(&Member) -> bool,
    ) -> Vec<&'m Member> {
        let ended = &members[..members.len().saturating_sub(1)];
        let much = self.too_much(ended);
        let goes = |(index, member): &(usize, &Member)| *index < much || expired(member);
        ended.iter().enumerate().filter(goes).map(|(_, member)| member).collect()
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

    /// Recordings of these sizes, named by their index.
    fn members(bytes: &[u64]) -> Vec<Member> {
        let member = |(index, bytes): (usize, &u64)| Member {
            path: format!("{index}").into(),
            began: UNIX_EPOCH,
            written: UNIX_EPOCH,
            bytes: *bytes,
        };
        bytes.iter().enumerate().map(member).collect()
    }

    /// Names of the doomed recordings, if those of `expired` are too old.
    fn doomed(retention: Retention, bytes: &[u64], expired: &str) -> String {
        let members = members(bytes);
        let expired = |member: &Member| expired.contains(member.path.to_str().unwrap());
        let doomed = retention.doomed(&members, expired);
        doomed.iter().map(|member| member.path.to_str().unwrap()).collect()
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

    #[test]
    fn expired_recordings_are_removed_but_the_last() {
        let by_age = Retention { age: Some(HOUR), bytes: None };
        assert_eq!(doomed(by_age, &[1; 6], ""), "");
        assert_eq!(doomed(by_age, &[1; 6], "01"), "01");
        assert_eq!(doomed(by_age, &[1; 6], "1345"), "134");
    }

    // 2400 bytes: a piece is 100, so that 2300 are left for ended recordings.
    #[test]
    fn recordings_beyond_the_size_are_removed() {
        let retention = Retention { age: None, bytes: Some(2400) };
        assert_eq!(doomed(retention, &[100, 2200, 100, 7], ""), "0");
        assert_eq!(doomed(retention, &[100, 2200, 7], ""), "");
        assert_eq!(doomed(retention, &[2301, 7], ""), "0");
        assert_eq!(doomed(retention, &[9999], ""), "", "never the last");
        assert_eq!(doomed(retention, &[], ""), "");
    }

    #[test]
    fn either_limit_removes() {
        let both = Retention { age: Some(HOUR), bytes: Some(2400) };
        assert_eq!(doomed(both, &[1000; 4], "2"), "02");
    }
}
