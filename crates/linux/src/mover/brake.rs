//! Pauses the mover while tasks of the host stall on memory, or while it is not known whether they
//! do.

use tierscope_core::Time;

/// Time between two readings of PSI, in ns: the kernel updates the average every two seconds.
const PAUSE: u64 = 500_000_000;

/// A switch with hysteresis: on above a limit, off below half of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Brake {
    on: bool,
    looked: Option<Time>,
}

impl Brake {
    /// Time until which the mover has to pause; `None` if it may proceed. `stalled` is called at
    /// most once per `PAUSE`.
    pub(crate) fn until(
        &mut self,
        now: Time,
        limit: f64,
        stalled: impl FnOnce() -> Option<f64>,
    ) -> Option<Time> {
        if self.looked.is_none_or(|looked| now.0 >= looked.0 + PAUSE) {
            self.looked = Some(now);
            let limit_now = if self.on { limit / 2.0 } else { limit };
            self.on = limit < 1.0 && stalled().is_none_or(|share| share > limit_now);
        }
        let next = Time(self.looked.map_or(now.0, |looked| looked.0) + PAUSE);
        self.on.then_some(next)
    }

    /// Rereads PSI at the next call, after a change of the limits.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    // The brake is on above 0.1, and remains on down to 0.05.
    #[test]
    fn the_brake_is_on_above_the_limit_and_off_below_half() {
        let mut brake = Brake::default();
        assert_eq!(brake.until(at(0), 0.1, || Some(0.09)), None);
        assert_eq!(brake.until(at(100), 0.1, || panic!("read too often")), None);
        assert_eq!(brake.until(at(500), 0.1, || Some(0.11)), Some(at(1000)));
        assert_eq!(brake.until(at(1000), 0.1, || Some(0.06)), Some(at(1500)));
        assert_eq!(brake.until(at(1500), 0.1, || Some(0.04)), None);
        assert_eq!(brake.until(at(2000), 0.1, || None), Some(at(2500)), "PSI cannot be read");
        assert_eq!(brake.until(at(2500), 1.0, || Some(1.0)), None, "switched off");
        assert_eq!(brake.until(at(3000), 1.0, || None), None, "switched off, without PSI");
    }
}
