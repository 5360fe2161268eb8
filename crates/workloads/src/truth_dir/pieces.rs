//! Pieces: time cut at grain boundaries and where segments change.

use std::time::Duration;

use crate::description::Workload;
use crate::schedule::Segment;

/// A piece of time within one segment; times are relative to the start of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Start of the piece.
    pub begin: Duration,
    /// End of the piece.
    pub end: Duration,
    /// The segment that the piece lies in.
    pub segment: Segment,
    /// Number of segments before that segment.
    pub number: usize,
}

/// The consecutive pieces of a workload until `limit`; phases repeat.
pub struct Pieces<'a> {
    workload: &'a Workload,
    grain: Duration,
    limit: Duration,
    at: Duration,
    last: Option<(Segment, usize)>,
}

impl<'a> Pieces<'a> {
    /// Cuts time at every multiple of `grain`, at every end of a segment, and at `limit`.
    ///
    /// # Panics
    /// If `grain` is zero.
    #[must_use]
    pub fn new(workload: &'a Workload, grain: Duration, limit: Duration) -> Self {
        assert!(!grain.is_zero(), "time cannot be cut into nothing");
        Self { workload, grain, limit, at: Duration::ZERO, last: None }
    }

    fn next_multiple(&self) -> Duration {
        let grain = self.grain.as_nanos();
        let next = (self.at.as_nanos() / grain + 1) * grain;
        Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX))
    }
}

impl Iterator for Pieces<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        if self.at >= self.limit {
            return None;
        }
        let segment = self.workload.segment_at(self.at);
        let number = match self.last {
            Some((last, number)) => number + usize::from(last != segment),
            None => 0,
        };
        self.last = Some((segment, number));
        let begin = self.at;
        self.at = self.next_multiple().min(segment.end).min(self.limit);
        Some(Span { begin, end: self.at, segment, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::from_spec;

    //  phases  |-------5-------|-------5-------|
    //  grains  |--2--|--2--|--2--|--2--|--2--|
    #[test]
    fn cut_at_grains_and_at_segments() {
        let workload = from_spec("stairs:space=1GiB,steps=2,every=5ms").unwrap();
        let ms = Duration::from_millis;
        let cuts: Vec<_> =
            Pieces::new(&workload, ms(2), ms(13)).map(|s| (s.end.as_millis(), s.number)).collect();
        assert_eq!(cuts, [(2, 0), (4, 0), (5, 0), (6, 1), (8, 1), (10, 1), (12, 2), (13, 2)]);
    }
}
