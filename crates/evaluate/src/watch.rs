//! Instruments that watch a simulated machine: settings from an experiment, or from a contender of
//! that name.

use std::time::Duration;

use tierscope_core::{Instrument, Need, Result, names};
use tierscope_instruments::registry::{self, Common, CostClass};
use tierscope_sim::config::{Costs, Period, Sampling};
use tierscope_sim::experiment::{Experiment, Settings, Watcher};

use crate::contender::{ALL, Contender, unknown};
use crate::devices::Devices;

/// An instrument to be built, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// Name in tables: a contender's, or the experiment's own.
    pub name: String,
    /// Name of the instrument in the registry.
    pub instrument: String,
    /// Variant of the instrument; `None` for its first.
    pub variant: Option<String>,
    /// Settings of the instrument except window and seed, which are the experiment's.
    common: Common,
    /// Hardware samples per second and core that the machine takes for the instrument; 0 for none.
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

    /// Sampling interval, for the recording.
    pub(crate) fn sampling_interval(&self) -> Duration {
        self.common.sampling.unwrap_or(Duration::from_millis(5))
    }

    /// Limits the instrument to this share of one CPU; instruments without a budget ignore it.
    pub fn limit_cpu(&mut self, share: f64) {
        self.common.cpu = Some(share);
    }

    /// Builds the instrument with an experiment's window and seed.
    ///
    /// # Errors
    /// As [`registry::make`].
    pub(crate) fn make(&self, experiment: &Experiment) -> Result<Box<dyn Instrument>> {
        let (window, seed) = (Some(experiment.window), Some(experiment.seed));
        let cpu = self.common.cpu.or(Devices::of(experiment)?.cpu);
        let common = Common { window, seed, cpu, ..self.common.clone() };
        registry::make(&self.instrument, self.variant.as_deref(), &common)
    }

    /// The evidence that the instrument works on; none for an unknown instrument.
    pub(crate) fn needs(&self) -> &'static [Need] {
        registry::by_name(&self.instrument).map_or(&[], |entry| entry.needs)
    }

    /// Whether the instrument reads whole tables of ACCESSED bits, instead of single entries.
    pub(crate) fn scans(&self) -> bool {
        registry::by_name(&self.instrument).is_ok_and(|entry| {
            let first = entry.variants[0].name;
            let name = self.variant.as_deref().unwrap_or(first);
            let variant = entry.variant(name);
            let walks = variant.is_some_and(|variant| variant.cost != CostClass::Bounded);
            walks && entry.needs(Need::AccessBits)
        })
    }

    /// Samples a second, core and event: within the experiment's budget, if it has one.
    fn samples_of(&self, experiment: &Experiment) -> u64 {
        let sampling = &experiment.sampling;
        let Some(share) = Devices::of(experiment).ok().and_then(|devices| devices.cpu) else {
            return self.samples;
        };
        let all = affordable(share, sampling, &experiment.setup.costs);
        (all / (u64::from(experiment.config.cores) * sampling.events.len() as u64).max(1)).max(1)
    }

    /// The machine's sampling configuration for the instrument, if it needs samples.
    pub(crate) fn sampling(&self, experiment: &Experiment) -> Option<Sampling> {
        let period = match experiment.every {
            Some(every) => Period::Every(every),
            None => Period::PerSecond(self.samples_of(experiment)),
        };
        (self.samples > 0).then(|| Sampling { period, ..experiment.sampling.clone() })
    }
}

/// Samples a second whose processing takes `share` of a CPU at cited costs; at least one.
pub(crate) fn affordable(share: f64, sampling: &Sampling, costs: &Costs) -> u64 {
    let costs = &costs.samples;
    let interrupt = costs.interrupt_ns / u64::from(sampling.hardware_buffer.max(1));
    let each = costs.record_ns + interrupt + costs.handle_ns + costs.read_ns;
    ((share * 1e9 / each.max(1) as f64) as u64).max(1)
}

/// The instruments of an experiment; if any are `wanted`, only these, and contenders by name.
///
/// # Errors
/// One is unknown, or its settings are invalid.
pub fn watches(experiment: &Experiment, wanted: &[String]) -> Result<Vec<Watch>> {
    let mine = experiment.watchers.iter().map(|watcher| {
        let made = Watch::of(watcher).and_then(|watch| watch.make(experiment).map(|_| watch));
        made.map_err(|error| experiment.at(watcher.offset, error))
    });
    let mine = mine.collect::<Result<Vec<Watch>>>()?;
    if wanted.is_empty() {
        return Ok(mine);
    }
    let pick = |name: &String| {
        if let Some(watch) = mine.iter().find(|watch| names::same(&watch.name, name)) {
            return Ok(watch.clone());
        }
        let listed = ALL.iter().find(|contender| names::same(contender.name, name));
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
