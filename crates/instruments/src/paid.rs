//! A budget for work that comes in large pieces: a piece may begin once all before it is paid.

use std::time::Duration;

use tierscope_core::{Ports, Time};

/// CPU time spent since the first look, compared with a share of the time that passed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Paid {
    /// The first look, and CPU time until then.
    began: Option<(Time, Duration)>,
}

impl Paid {
    /// Whether `share` of one CPU has paid for all CPU time so far; always so without a share. The
    /// CPU time is the machine's figure for the profiler: in a simulation it includes what the
    /// target loses to faults, on a live machine only the profiler's own.
    pub(crate) fn is_paid(&mut self, ports: &dyn Ports, share: Option<f64>) -> bool {
        let Some(share) = share else { return true };
        let (now, spent) = (ports.now(), ports.cpu_time().profiler);
        let (began, before) = *self.began.get_or_insert((now, spent));
        (spent - before).as_secs_f64() <= share * now.since(began).as_secs_f64()
    }
}
