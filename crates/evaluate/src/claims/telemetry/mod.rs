//! The papers' experiments on instruments: contenders judged by the ranges that workloads declare
//! hot, and claims about them, with the sensitivity of each verdict to assumed parameters.

mod experiment;
mod judged;
mod section;
mod sensitivity;

use tierscope_core::Result;

use super::chapter::{Chapter, Extent, Frame, Planned};
use super::row::{Row, Section};
use super::varied;
use crate::accuracy::{Job, JudgeSettings, Outcome, Scenario, race, seeded};
use crate::catalogue::{self, Kind};
use crate::runner::Runner;

use experiment::Experiment;
use section::{rows, section};
use sensitivity::{Variant, Varied};

/// Precision and recall from which a hot set counts as detected.
const BAR: f64 = 0.9;

const HEAD: &str = "
Measured by `tierscope reproduce telemetry -o .`. Everything here is *simulated*, by densities
(`crates/sim/src/density`): no instrument and no parameter was fitted to a claim. A figure is the mean over the seeds, with its extremes. Precision
and recall are over all windows after attach, and once detected: after precision and recall were 0.9 for four windows, until the hot set moves. CPU is
of one CPU, at the costs of `crates/sim/costs/linux.toml`.

";

const RANGES: &str = "What is assumed, and the values at which every verdict is repeated, one changed at a time \
(`experiments/sensitivity.toml`):\n\n";

/// Experiments on instruments.
pub(super) struct Telemetry;

impl Chapter for Telemetry {
    fn name(&self) -> &'static str {
        "telemetry"
    }

    fn title(&self) -> &'static str {
        "Telescope: claims about instruments"
    }

    fn page(&self) -> &'static str {
        "experiments/telescope/REPRODUCTION.md"
    }

    fn experiments(&self) -> Vec<&'static str> {
        catalogue::of(Kind::Telemetry).map(|entry| entry.name).collect()
    }

    fn plan(&self, name: &'static str, extent: Extent) -> Result<Box<dyn Planned>> {
        let experiment = Experiment::parse(name, catalogue::text(Kind::Telemetry, name)?)?;
        Ok(Box::new(WithVariants::new(experiment, extent)?))
    }

    fn part(&self, sections: &str) -> Result<String> {
        Ok(format!("{}{sections}", head(sections.contains(varied::HEADER))?))
    }

    fn frame(&self, extent: Extent) -> Result<Frame> {
        let before = format!("# {}\n{}", self.title(), head(extent.varied)?);
        Ok(Frame { before, between: "\n", after: String::new() })
    }
}

/// Text before the sections; with the ranges of parameters if these were `varied`.
fn head(varied: bool) -> Result<String> {
    let ranges = match varied {
        true => format!("{RANGES}{}\n", sensitivity::legend()?),
        false => String::new(),
    };
    Ok(format!("{HEAD}{ranges}"))
}

/// Results of an experiment.
#[derive(Debug)]
struct Ran<'a> {
    experiment: &'a Experiment,
    /// Outcomes of each seed, unordered.
    seeds: Vec<Vec<Outcome>>,
    /// Outcomes of the first seed with one parameter changed at a time; empty if these runs were
    /// skipped.
    varied: Vec<Varied>,
}

/// An experiment, and its variants with changed parameters.
struct WithVariants {
    experiment: Experiment,
    /// The scenario with each of the seeds.
    seeds: Vec<Scenario>,
    variants: Vec<Variant>,
}

impl WithVariants {
    fn new(experiment: Experiment, extent: Extent) -> Result<Self> {
        let variants = match extent.varied {
            true => sensitivity::variants(&experiment.scenario)?,
            false => Vec::new(),
        };
        Ok(Self { seeds: seeded(&experiment.scenario, extent.seeds), experiment, variants })
    }

    /// One run for each contender with each seed, then of each variant.
    fn jobs(&self) -> impl Iterator<Item = Job<'_>> {
        let varied = self.variants.iter().map(|variant| &variant.scenario);
        self.seeds.iter().chain(varied).flat_map(|scenario| {
            let watches = scenario.contenders.iter().cloned();
            watches.map(move |watch| Job {
                experiment: scenario,
                watch,
                asked: JudgeSettings::bar(BAR),
            })
        })
    }

    /// Sorts the outcomes, which are in the order of the jobs.
    fn finish(&self, outcomes: Vec<Outcome>) -> Ran<'_> {
        let mut all = outcomes.into_iter();
        let mut next = |scenario: &Scenario| -> Vec<Outcome> {
            all.by_ref().take(scenario.contenders.len()).collect()
        };
        let seeds: Vec<Vec<Outcome>> = self.seeds.iter().map(&mut next).collect();
        let varied = self.variants.iter().map(|variant| {
            let mut changed = next(&variant.scenario);
            for plain in &seeds[0] {
                if changed.iter().all(|outcome| outcome.contender != plain.contender) {
                    changed.push(plain.clone());
                }
            }
            Varied { label: variant.label.clone(), outcomes: changed }
        });
        let varied = varied.collect();
        Ran { varied, seeds, experiment: &self.experiment }
    }
}

impl Planned for WithVariants {
    fn section(&self, runner: &Runner<'_>) -> Result<Option<Section>> {
        let jobs: Vec<Job<'_>> = self.jobs().collect();
        let outcomes = race(&jobs, runner)?;
        if runner.is_stopped() {
            return Ok(None);
        }
        let ran = self.finish(outcomes.into_iter().flatten().collect());
        Ok(Some(section(&ran)))
    }

    fn judged(&self, _: &[Vec<crate::contest::Outcome>]) -> Vec<Row> {
        rows(&self.experiment.claims, &[])
    }
}
