//! The schedule of phases: which segment is active at which time.

use std::time::Duration;

use crate::description::{Access, Pattern, Phase, Workload};

/// A period with constant access patterns: a phase, or the part of a phase between two moves of a
/// drifting window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of complete passes through all phases before the segment.
    pub pass: u64,
    /// Index of the phase.
    pub phase: usize,
    /// Time since the phase began.
    pub into: Duration,
    /// Start of the segment, since the workload began.
    pub begin: Duration,
    /// End of the segment, since the workload began.
    pub end: Duration,
}

impl Workload {
    /// The segment that is active at `time`; phases repeat. Times beyond 2^63 ns are clamped.
    #[must_use]
    pub fn segment_at(&self, time: Duration) -> Segment {
        let time = nanos(time);
        let total = nanos(self.duration()).max(1);
        let pass = time / total;
        let mut begin = pass * total;
        let mut phase = 0;
        while phase + 1 < self.phases.len() && time >= begin + nanos(self.phases[phase].duration) {
            begin += nanos(self.phases[phase].duration);
            phase += 1;
        }
        let (into, until) = self.phases[phase].still(time - begin);
        Segment {
            pass,
            phase,
            into: Duration::from_nanos(into),
            begin: Duration::from_nanos(begin + into),
            end: Duration::from_nanos(begin + until),
        }
    }

    /// The segments of one pass, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let first = (!self.phases.is_empty()).then(|| self.segment_at(Duration::ZERO));
        std::iter::successors(first, |last| {
            Some(self.segment_at(last.end)).filter(|next| next.pass == 0)
        })
    }

    /// The phase of a segment.
    #[must_use]
    pub fn phase(&self, segment: &Segment) -> &Phase {
        &self.phases[segment.phase]
    }
}

impl Phase {
    /// The period around `into` in which no window moves.
    fn still(&self, into: u64) -> (u64, u64) {
        let whole = (0, nanos(self.duration));
        self.accesses.iter().filter_map(Access::period).fold(whole, |(from, until), every| {
            let moved = into / every * every;
            (from.max(moved), until.min(moved.saturating_add(every)))
        })
    }
}

impl Access {
    fn period(&self) -> Option<u64> {
        match self.pattern {
            Pattern::Drift { every, .. } => Some(nanos(every).max(1)),
            _ => None,
        }
    }

    /// Offset of a drifting pattern's window in its part, at time `into` of the phase; 0 for other
    /// patterns.
    #[must_use]
    pub fn drifted(&self, into: Duration) -> u64 {
        match self.pattern {
            Pattern::Drift { window, step, every } => {
                let places = (self.bytes - window) / step + 1;
                nanos(into) / nanos(every).max(1) % places * step
            }
            _ => 0,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;
    use proptest::prelude::*;

    fn secs(time: u64) -> Duration {
        Duration::from_secs(time)
    }

    //  drift: 10 bytes of 40, 15 further every 2 s, for 7 s
    //  0 s ##########------------------------------
    //  2 s ---------------##########---------------
    //  4 s ------------------------------##########
    //  6 s ##########                                 begins again, and is cut by the phase's end
    #[test]
    fn a_drifting_window_makes_segments() {
        let workload =
            generate::from_spec("drift:space=40B,window=10B,step=15B,every=2s,time=7s").unwrap();
        let seen: Vec<_> = workload
            .segments()
            .map(|s| (s.begin, s.end, workload.phase(&s).accesses[0].drifted(s.into)))
            .collect();
        assert_eq!(
            seen,
            [
                (secs(0), secs(2), 0),
                (secs(2), secs(4), 15),
                (secs(4), secs(6), 30),
                (secs(6), secs(7), 0)
            ]
        );
        let again = workload.segment_at(secs(9));
        assert_eq!((again.pass, again.begin, again.end), (1, secs(9), secs(11)));
    }

    proptest! {
        #[test]
        fn segments_cover_time_without_gaps(
            phases in prop::collection::vec(1u64..50, 1..5),
            every in 1u64..20,
            times in prop::collection::vec(0u64..500, 1..20),
        ) {
            let mut workload = generate::from_spec("drift:space=40B,window=10B,step=3B,every=1ms,time=1s").unwrap();
            let phase = workload.phases[0].clone();
            workload.phases = phases.iter().map(|ms| {
                let mut phase = phase.clone();
                phase.duration = Duration::from_millis(*ms);
                phase.accesses[0].pattern = Pattern::Drift { window: 10, step: 3, every: Duration::from_millis(every) };
                phase
            }).collect();
            let mut end = Duration::ZERO;
            for segment in workload.segments() {
                prop_assert_eq!(segment.begin, end);
                prop_assert!(segment.end > segment.begin);
                end = segment.end;
            }
            prop_assert_eq!(end, workload.duration());
            for time in times.into_iter().map(Duration::from_millis) {
                let segment = workload.segment_at(time);
                prop_assert!(segment.begin <= time && time < segment.end);
            }
        }
    }
}
