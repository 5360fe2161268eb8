//! Sink of `record`'s windows: a single recording, or a series of them.

use std::time::SystemTime;

use tierscope_core::Result;
use tierscope_core::drive::{Sink, Window};
use tierscope_core::session::WindowStore;
use tierscope_record::series::SeriesRecorder;
use tierscope_record::{Meta, Recorder};

use crate::plan::Plan;

/// Writer of one recording, or of a series with a retention.
pub(crate) enum Output {
    One(Box<Recorder>),
    Series(Box<SeriesRecorder>),
}

impl Output {
    pub(crate) fn create(plan: &Plan, meta: &Meta) -> Result<Self> {
        let (dir, access) = (&plan.output, plan.access);
        Ok(match plan.retention {
            None => {
                let recorder = Recorder::create_for(dir, meta, access)?.keep_synced()?;
                Output::One(Box::new(recorder))
            }
            Some(retention) => {
                let wall = SystemTime::now;
                let series = SeriesRecorder::create_for(dir, meta, retention, wall, access)?;
                Output::Series(Box::new(series))
            }
        })
    }
}

impl WindowStore for Output {
    fn finish(self) -> Result<()> {
        match self {
            Output::One(recorder) => recorder.finish(),
            Output::Series(series) => series.finish(),
        }
    }
}

impl Sink for Output {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        match self {
            Output::One(recorder) => recorder.window(window),
            Output::Series(series) => series.window(window),
        }
    }
}
