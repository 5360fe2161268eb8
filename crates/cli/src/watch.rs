//! Who watches a simulated machine: an instrument and its settings, from an experiment or by a
//! contender's name.

use std::time::Duration;

use tierscope_core::{Instrument, Result};
use tierscope_instruments::registry::{self, Common};
use tierscope_sim::config::{Period, Sampling};
use tierscope_sim::experiment::{Experiment, Settings, Watcher};

use crate::bench::contender::{ALL, Contender, unknown};
use crate::record::NEMO;

/// An instrument to be built.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// As in tables: a contender's, or one's own.
    pub name: String,
    /// The instrument's.
    pub instrument: String,
    /// Which variant of it; `None` for its first.
    pub variant: Option<String>,
    /// Its settings, but for the window and the seed: those are the experiment's.
    common: Common,
    /// Samples a second and core that the machine takes for it; 0 for none.
    pub samples: u64,
}

impl From<Contender> for Watch {
    fn from(contender: Contender) -> Self {
        let (instrument, variant, common) = contender.settings();
        Self {
            name: contender.name.into(),
            instrument: instrument.into(),
            variant: Some(variant.into()),
            common,
            samples: contender.samples,
        }
    }
}

impl Watch {
    fn own(name: &str, settings: &Settings) -> Self {
        Self {
            name: name.into(),
            instrument: settings.instrument.clone(),
            variant: settings.variant.clone(),
            common: Common {
                sampling: settings.sampling,
                update: settings.update,
                min_regions: settings.min_regions,
                max_regions: settings.max_regions,
                cpu: settings.cpu,
                flush: settings.may_flush,
                ..Common::default()
            },
            samples: settings.samples,
        }
    }

    fn of(watcher: &Watcher) -> Result<Self> {
        match &watcher.settings {
            None => Contender::named(&watcher.name).map(Self::from),
            Some(settings) => Ok(Self::own(&watcher.name, settings)),
        }
    }

    /// Time between two looks, for the recording.
    pub(crate) fn sampling_interval(&self) -> Duration {
        self.common.sampling.unwrap_or(Duration::from_millis(5))
    }

    /// Gives it this share of one CPU; an instrument without a budget is not disturbed by that.
    pub(crate) fn limit_cpu(&mut self, share: f64) {
        self.common.cpu = Some(share);
    }

    /// Builds it, for an experiment's window and seed.
    ///
    /// # Errors
    /// As [`registry::make`].
    pub(crate) fn make(&self, experiment: &Experiment) -> Result<Box<dyn Instrument>> {
        let (window, seed) = (Some(experiment.window), Some(experiment.seed));
        let common = Common { window, seed, ..self.common.clone() };
        registry::make(&self.instrument, self.variant.as_deref(), &common)
    }

    /// Whether it counts in the memory controllers.
    pub(crate) fn counts(&self) -> bool {
        self.instrument == NEMO
    }

    /// How the machine samples for it.
    pub(crate) fn sampling(&self, experiment: &Experiment) -> Option<Sampling> {
        let period = match experiment.every {
            Some(every) => Period::Every(every),
            None => Period::PerSecond(self.samples),
        };
        (self.samples > 0).then(|| Sampling { period, ..experiment.sampling.clone() })
    }
}

/// Those of the experiment; only the wanted ones if any are.
pub(crate) fn watches(experiment: &Experiment, wanted: &[String]) -> Result<Vec<Watch>> {
    let mine = experiment.watchers.iter().map(|watcher| {
        let made = Watch::of(watcher).and_then(|watch| watch.make(experiment).map(|_| watch));
        made.map_err(|error| experiment.at(watcher.offset, error))
    });
    let mine = mine.collect::<Result<Vec<Watch>>>()?;
    if wanted.is_empty() {
        return Ok(mine);
    }
    let pick = |name: &String| {
        if let Some(watch) = mine.iter().find(|watch| watch.name == *name) {
            return Ok(watch.clone());
        }
        let listed = ALL.iter().find(|contender| contender.name == *name);
        listed.map(|contender| Watch::from(*contender)).ok_or_else(|| {
            let names: Vec<&str> = mine.iter().map(|watch| watch.name.as_str()).collect();
            unknown("instrument", name, &names)
        })
    };
    let mut picked: Vec<Watch> = Vec::new();
    for name in wanted {
        let watch = pick(name)?;
        if !picked.contains(&watch) {
            picked.push(watch);
        }
    }
    Ok(picked)
}
