//! Assembles events into complete windows.
//!
//! At the end of a window the kernel emits each target's regions in order of address, target by
//! target (`kdamond_reset_aggregated` in mm/damon/core.c), each with the target's number of
//! regions. The kdamond may migrate to another CPU in between, so that events arrive in several
//! buffers: they are sorted by time, and a window is returned once it is complete.

use super::event::Event;

/// Events of incomplete windows.
#[derive(Debug)]
pub(crate) struct Windows {
    targets: u64,
    /// How long to wait for the rest of a window, in ns.
    patience: u64,
    pending: Vec<Event>,
    lost: u64,
}

impl Windows {
    pub(crate) fn new(targets: usize, patience: u64) -> Self {
        Self { targets: targets as u64, patience, pending: Vec::new(), lost: 0 }
    }

    /// Expects windows of this number of targets from now on.
    pub(crate) fn expect(&mut self, targets: usize) {
        self.targets = targets as u64;
    }

    /// Number of windows that were dropped as incomplete.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Adds events; those of one CPU are in order.
    pub(crate) fn add(&mut self, events: &mut Vec<Event>) {
        self.pending.append(events);
        self.pending.sort_by_key(|event| event.time);
    }

    /// Removes and returns the first window if it is complete.
    pub(crate) fn take(&mut self, now: u64) -> Option<Vec<Event>> {
        loop {
            match self.first() {
                First::Whole(length) => return Some(self.pending.drain(..length).collect()),
                First::Partial { since, .. } if now.saturating_sub(since) <= self.patience => {
                    return None;
                }
                First::Partial { length, .. } => {
                    self.pending.drain(..length);
                    self.lost += 1;
                }
                First::None => return None,
            }
        }
    }

    fn first(&self) -> First {
        let (mut at, mut last) = (0, None);
        while let Some(event) = self.pending.get(at) {
            if last.is_some_and(|last| event.target <= last) {
                return First::Whole(at);
            }
            let run = run_length(&self.pending[at..]);
            if run as u64 != event.regions {
                return First::Partial { length: at + run, since: event.time };
            }
            (at, last) = (at + run, Some(event.target));
        }
        match last {
            Some(last) if last + 1 >= self.targets => First::Whole(at),
            // A target that is gone emits nothing: events of the next window end this one.
            Some(_) => First::Partial { length: 0, since: u64::MAX },
            None => First::None,
        }
    }
}

/// State of the window at the front.
enum First {
    None,
    Whole(usize),
    Partial { length: usize, since: u64 },
}

/// Number of events at the front that can belong to one target and window, at least 1.
fn run_length(events: &[Event]) -> usize {
    let first = &events[0];
    let goes_on = |pair: &[Event]| {
        let (before, next) = (&pair[0], &pair[1]);
        (next.target, next.regions) == (first.target, first.regions) && before.end <= next.start
    };
    let run = 1 + events.windows(2).take_while(|pair| goes_on(pair)).count();
    run.min(usize::try_from(first.regions).unwrap_or(usize::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Events of a window of one target, with `regions` regions of one page each.
    fn window(time: u64, target: u64, regions: u64) -> Vec<Event> {
        let event = |i| Event {
            time: time + i,
            target,
            regions,
            start: i * 4096,
            end: (i + 1) * 4096,
            accesses: i,
            age: 0,
        };
        (0..regions).map(event).collect()
    }

    fn taken(windows: &mut Windows, now: u64) -> Vec<usize> {
        std::iter::from_fn(|| windows.take(now).map(|window| window.len())).collect()
    }

    #[test]
    fn a_window_with_all_regions_is_complete() {
        let mut windows = Windows::new(1, 100);
        let mut events = window(0, 0, 3);
        let mut last = events.split_off(2);
        windows.add(&mut events);
        assert_eq!(windows.take(50), None);
        windows.add(&mut last);
        assert_eq!(taken(&mut windows, 50), [3]);
        assert_eq!(windows.take(50), None);
    }

    #[test]
    fn a_window_may_come_from_the_buffers_of_two_cpus() {
        let mut windows = Windows::new(1, 100);
        let mut events = [window(0, 0, 4), window(10, 0, 2)].concat();
        // The second CPU's buffer first: the middle of the first window and all of the second.
        windows.add(&mut vec![events[1], events[2], events[4], events[5]]);
        assert_eq!(windows.take(20), None);
        windows.add(&mut vec![events.remove(0), events.remove(2)]);
        assert_eq!(taken(&mut windows, 20), [4, 2]);
        assert_eq!(windows.lost(), 0);
    }

    #[test]
    fn an_incomplete_window_is_dropped_after_a_while() {
        let mut windows = Windows::new(1, 100);
        let mut events = [window(0, 0, 3), window(200, 0, 2)].concat();
        events.remove(1);
        windows.add(&mut events);
        assert_eq!(windows.take(100), None, "it may still come");
        assert_eq!(taken(&mut windows, 101), [2]);
        assert_eq!(windows.lost(), 1);
    }

    #[test]
    fn a_window_holds_all_remaining_targets() {
        let mut windows = Windows::new(2, 100);
        windows.add(&mut [window(0, 0, 2), window(2, 1, 1)].concat());
        assert_eq!(taken(&mut windows, 10), [3]);
        windows.add(&mut window(200, 0, 2));
        assert_eq!(windows.take(1000), None, "target 1 may follow");
        windows.add(&mut window(400, 0, 2));
        assert_eq!(taken(&mut windows, 1000), [2]);
        assert_eq!(windows.lost(), 0);
    }

    proptest! {
        /// Windows are complete no matter how their events are split between two CPUs and into
        /// reads.
        #[test]
        fn nothing_is_lost_by_order_of_arrival(
            sizes in prop::collection::vec(1u64..6, 1..8),
            cpus in prop::collection::vec(any::<bool>(), 48),
        ) {
            let mut all = Vec::new();
            for (i, size) in sizes.iter().enumerate() {
                all.extend(window(i as u64 * 10, 0, *size));
            }
            let mut windows = Windows::new(1, 1000);
            for cpu in [true, false] {
                let mut events: Vec<Event> =
                    all.iter().zip(&cpus).filter(|(_, on)| **on == cpu).map(|(e, _)| *e).collect();
                windows.add(&mut events);
            }
            let expected: Vec<usize> = sizes.iter().map(|size| *size as usize).collect();
            prop_assert_eq!(taken(&mut windows, 100), expected);
        }

        #[test]
        fn arbitrary_events_do_not_panic(
            events in prop::collection::vec((0u64..99, 0u64..3, 0u64..4, 0u64..4), 0..40)
        ) {
            let mut windows = Windows::new(2, 10);
            let mut events: Vec<Event> = events.into_iter().map(|(time, target, regions, at)| Event {
                time, target, regions, start: at, end: at + 1, accesses: 0, age: 0,
            }).collect();
            windows.add(&mut events);
            prop_assert!(taken(&mut windows, 200).iter().all(|length| *length > 0));
        }
    }
}
