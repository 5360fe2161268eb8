//! The lifecycle of a session, on a live machine, a simulated one or a replayed trace: open a
//! store, drive, finish the store; the first error wins.

use crate::drive::{Course, Ended, Sink, Window, profile, tier};
use crate::{Budget, Instrument, Mover, Policy, Ports, Result};

/// A sink that has to be finished: a recording, or a series of them.
pub trait WindowStore: Sink {
    /// Writes what is still pending. Called once, whether the drive loop failed or not.
    ///
    /// # Errors
    /// If the windows cannot be stored.
    fn finish(self) -> Result<()>
    where
        Self: Sized;
}

/// Stores nothing.
impl WindowStore for () {
    fn finish(self) -> Result<()> {
        Ok(())
    }
}

/// `None` stores nothing.
impl<S: Sink> Sink for Option<S> {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        self.as_mut().map_or(Ok(()), |sink| sink.window(window))
    }
}

impl<S: WindowStore> WindowStore for Option<S> {
    fn finish(self) -> Result<()> {
        self.map_or(Ok(()), WindowStore::finish)
    }
}

/// A policy, and the mover that carries out its actions.
pub struct Placing<'a> {
    /// The policy.
    pub policy: &'a mut dyn Policy,
    /// The mover.
    pub mover: &'a mut dyn Mover,
    /// Limit on the moves.
    pub budget: Budget,
}

/// A machine, the instrument that watches it, and optionally a policy that moves its memory.
pub struct Session<'a> {
    /// The machine.
    pub ports: &'a mut dyn Ports,
    /// The instrument.
    pub instrument: &'a mut dyn Instrument,
    /// The policy and its mover; `None` to watch only.
    pub placing: Option<Placing<'a>>,
    /// When to end.
    pub course: Course,
}

impl<'a> Session<'a> {
    /// Opens the store of the session.
    ///
    /// # Errors
    /// The error of `open`.
    pub fn open<S: WindowStore>(
        self,
        open: impl FnOnce(&mut dyn Ports, &dyn Instrument) -> Result<S>,
    ) -> Result<Open<'a, S>> {
        let store = open(self.ports, self.instrument)?;
        Ok(Open { session: self, store })
    }
}

/// A session whose store is open.
pub struct Open<'a, S> {
    session: Session<'a>,
    store: S,
}

impl<S: WindowStore> Open<'_, S> {
    /// Drives the session to its end, and finishes the store. Each window goes to the store first,
    /// and to `after` once it is committed there.
    ///
    /// # Errors
    /// The first error of the drive loop, the store and `after`. The store is finished in any case,
    /// and keeps the windows committed before.
    pub fn run(self, after: &mut dyn Sink) -> Result<Ended> {
        let Open { session: Session { ports, instrument, placing, course }, mut store } = self;
        let mut sink = Then { store: &mut store, after };
        let ended = match placing {
            None => profile(ports, instrument, &course, &mut sink),
            Some(Placing { policy, mover, budget }) => {
                tier(ports, instrument, policy, mover, budget, &course, &mut sink)
            }
        };
        // A store that failed fails here again: the error of the drive loop is the cause.
        let finished = store.finish();
        let ended = ended?;
        finished?;
        Ok(ended)
    }
}

/// Passes a window to the store, and then on.
struct Then<'a> {
    store: &'a mut dyn Sink,
    after: &'a mut dyn Sink,
}

impl Sink for Then<'_> {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        self.store.window(window)?;
        self.after.window(window)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::{
        Clock, CpuTime, Error, ErrorKind, Mappings, Setting, Snapshot, Step, Target, Time, Wake,
    };

    /// A machine on which only time passes.
    #[derive(Default)]
    struct Toy(Time);

    impl Clock for Toy {
        fn now(&self) -> Time {
            self.0
        }

        fn wait(&mut self, until: Time) -> Wake {
            self.0 = until;
            Wake::Deadline
        }
    }

    impl Target for Toy {
        fn mappings(&mut self, _: Duration) -> Result<Arc<Mappings>> {
            Ok(Arc::new(Mappings::default()))
        }

        fn cpu_time(&self) -> CpuTime {
            CpuTime::default()
        }
    }

    impl Ports for Toy {}

    /// Ends a window every 10 ns; fails at the given time.
    struct Metronome(Option<Time>);

    impl Instrument for Metronome {
        fn name(&self) -> &'static str {
            "metronome"
        }

        fn settings(&self) -> Vec<Setting> {
            Vec::new()
        }

        fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
            let now = ports.now();
            if self.0 == Some(now) {
                return Err(error("instrument"));
            }
            let snapshot = Snapshot { end: now, ..Default::default() };
            Ok(Step { wake: now + Duration::from_nanos(10), snapshot: Some(snapshot) })
        }
    }

    fn error(what: &str) -> Error {
        Error::new(ErrorKind::Other, what.to_owned())
    }

    /// Logs its calls under a name; fails where asked.
    struct Logged<'a> {
        log: &'a RefCell<Vec<String>>,
        name: &'static str,
        fails: &'static [&'static str],
    }

    impl Logged<'_> {
        fn log(&self, call: &'static str) -> Result<()> {
            self.log.borrow_mut().push(format!("{} {call}", self.name));
            if self.fails.contains(&call) { Err(error(call)) } else { Ok(()) }
        }
    }

    impl Sink for Logged<'_> {
        fn window(&mut self, _: &Window<'_>) -> Result<()> {
            self.log("window")
        }
    }

    impl WindowStore for Logged<'_> {
        fn finish(self) -> Result<()> {
            self.log("finish")
        }
    }

    /// Runs for 15 ns, two windows, with an instrument that fails at `at` and a store that fails in
    /// the given calls; returns the result and the log.
    fn run(at: Option<Time>, fails: &'static [&'static str]) -> (Result<Ended>, Vec<String>) {
        let log = RefCell::new(Vec::new());
        let mut after = Logged { log: &log, name: "after", fails: &[] };
        let session = Session {
            ports: &mut Toy::default(),
            instrument: &mut Metronome(at),
            placing: None,
            course: Course::until(Time(15)),
        };
        let open = |_: &mut dyn Ports, _: &dyn Instrument| {
            let store = Logged { log: &log, name: "store", fails };
            store.log("open").map(|()| store)
        };
        let ended = session.open(open).and_then(|session| session.run(&mut after));
        (ended, log.into_inner())
    }

    #[test]
    fn a_window_is_stored_before_it_is_passed_on() {
        let (ended, log) = run(None, &[]);
        assert_eq!(ended, Ok(Ended::Deadline));
        let window = ["store window", "after window"];
        assert_eq!(log, [&["store open"][..], &window, &window, &["store finish"]].concat());
    }

    #[test]
    fn a_store_that_cannot_be_opened_is_neither_driven_nor_finished() {
        let (ended, log) = run(None, &["open"]);
        assert_eq!(ended, Err(error("open")));
        assert_eq!(log, ["store open"]);
    }

    #[test]
    fn the_first_error_wins_and_the_store_is_finished() {
        for (at, fails, first) in [
            (Some(Time(10)), &["finish"][..], "instrument"),
            (None, &["window", "finish"], "window"),
            (None, &["finish"], "finish"),
        ] {
            let (ended, log) = run(at, fails);
            assert_eq!(ended, Err(error(first)));
            assert_eq!(log.last().map(String::as_str), Some("store finish"));
        }
    }
}
