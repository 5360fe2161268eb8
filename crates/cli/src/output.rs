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
        let dir = &plan.output;
        Ok(match plan.retention {
            None => Output::One(Box::new(Recorder::create(dir, meta)?)),
            Some(retention) => {
                let series = SeriesRecorder::create(dir, meta, retention, SystemTime::now)?;
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
