//! Experiments as data.

use serde::Deserialize;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_sim::experiment::{File, place, read};
use toml::Spanned;

use crate::bench::contender::Contender;
use crate::bench::judge::Outcome;
use crate::bench::scenario::Scenario;
use crate::watch::Watch;

macro_rules! experiments {
    ($($name:literal),* $(,)?) => {
        /// Names and TOML texts.
        const ALL: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!("../../../../experiments/telescope/", $name, ".toml")),
        )),*];
    };
}

experiments!(
    "masim-1gb",
    "masim-10gb",
    "masim-100gb",
    "masim-5tb",
    "stairs-5tb",
    "stairs-5tb-1gb",
    "stairs-5tb-100gb",
    "needle-5mb",
    "damon-1tb",
    "linear-scan-1tb",
);

/// A scenario, and what a paper says of it.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What is run.
    pub scenario: Scenario,
    /// What is claimed.
    pub claims: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    scenario: File,
    claim: Vec<Spanned<Claim>>,
}

/// A claim of a paper.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// Where it stands.
    pub paper: String,
    /// What it says.
    pub says: String,
    /// Whom it is about.
    pub contender: String,
    /// What is measured.
    pub figure: Figure,
    /// Whom the figure is held against, where it is a ratio.
    pub to: Option<String>,
    /// The figure is at least this.
    pub least: Option<f64>,
    /// The figure is at most this.
    pub most: Option<f64>,
    /// The direction of the claim: the figure is below that of this contender.
    pub below: Option<String>,
    /// The direction of the claim: the figure is above that of this contender.
    pub above: Option<String>,
    /// Why it comes out as it does, where that needs to be said.
    pub reason: Option<String>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Of the reported bytes, the share truly hot; once detected, or over all windows.
    Precision,
    /// Of the truly hot bytes, the share reported; likewise.
    Recall,
    /// The recall of the best window.
    BestRecall,
    /// Seconds to the slowest detection.
    DetectionSeconds,
    /// CPU time of the profiler over time; 1 is one CPU.
    ProfilerCpu,
    /// The same over that of the contender named by `to`.
    ProfilerCpuRatio,
    /// Share of the target's time that it lost.
    Stolen,
    /// Seconds until the first pass over all memory was done.
    FirstPassSeconds,
    /// CPU share until then.
    FirstPassCpu,
}

impl Figure {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Figure::Precision => "precision",
            Figure::Recall => "recall",
            Figure::BestRecall => "recall of the best window",
            Figure::DetectionSeconds => "detection time, s",
            Figure::ProfilerCpu => "profiler CPU",
            Figure::ProfilerCpuRatio => "profiler CPU over",
            Figure::Stolen => "share of the target's time lost",
            Figure::FirstPassSeconds => "first pass, s",
            Figure::FirstPassCpu => "CPU during the first pass",
        }
    }

    /// Its value, of a ratio what stands above; infinite for what never came, `None` for what cannot be told.
    #[must_use]
    pub fn of(self, outcome: &Outcome) -> Option<f64> {
        let quoted = outcome.quoted();
        // The second pass begins where the first one's verdicts come from.
        let passed = outcome.windows.iter().find(|row| row.looked_at > 0.0);
        match self {
            // Nothing reported: nothing wrong either, and no share.
            Figure::Precision => quoted.precision,
            Figure::Recall => quoted.recall,
            Figure::BestRecall => {
                let recall = outcome
                    .windows
                    .iter()
                    .map(|row| row.both_bytes as f64 / row.true_bytes.max(1) as f64);
                recall.reduce(f64::max)
            }
            Figure::DetectionSeconds => Some(outcome.slowest_detection().unwrap_or(f64::INFINITY)),
            Figure::ProfilerCpu | Figure::ProfilerCpuRatio => Some(outcome.profiler_cpu),
            Figure::Stolen => Some(outcome.disturbed),
            Figure::FirstPassSeconds => Some(passed.map_or(f64::INFINITY, |row| row.end_seconds)),
            Figure::FirstPassCpu => passed.map(|row| row.profiler_seconds / row.end_seconds),
        }
    }
}

impl Experiment {
    /// Reads TOML; `name` is for errors.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn parse(name: &str, text: &str) -> Result<Experiment> {
        let read: Text = read(name, text)?;
        let bad = |(offset, what): (usize, String)| place(name, text, offset, what);
        let mut scenario = Scenario::part(name, text, &read.scenario)?;
        let mut needed: Vec<Watch> = Vec::new();
        for claim in &read.claim {
            let named = [
                Some(&claim.get_ref().contender),
                claim.get_ref().below.as_ref(),
                claim.get_ref().above.as_ref(),
                claim.get_ref().to.as_ref(),
            ];
            for name in named.into_iter().flatten() {
                let contender = Contender::named(name)
                    .map_err(|error| bad((claim.span().start, error.to_string())))?;
                let watch = Watch::from(contender);
                if !needed.contains(&watch) {
                    needed.push(watch);
                }
            }
            if claim.get_ref().least.is_none() && claim.get_ref().most.is_none() {
                return Err(bad((claim.span().start, "a claim has a least or a most".into())));
            }
            if (claim.get_ref().figure == Figure::ProfilerCpuRatio) != claim.get_ref().to.is_some()
            {
                return Err(bad((claim.span().start, "a ratio, and only that, has a `to`".into())));
            }
        }
        // Whoever nobody speaks of does not run.
        scenario.contenders = needed;
        let claims = read.claim.into_iter().map(Spanned::into_inner).collect();
        Ok(Experiment { scenario, claims })
    }
}

/// The experiments of these names; all if there are none.
pub(super) fn choose(names: &[String]) -> Result<Vec<Experiment>> {
    for name in names {
        if !ALL.iter().any(|(known, _)| known == name) {
            let known: Vec<&str> = ALL
                .iter()
                .map(|(known, _)| *known)
                .chain(super::placement::names())
                .chain(super::reclaim::names())
                .collect();
            return Err(Error::new(ErrorKind::Usage, format!("no experiment is called {name}"))
                .remedy(format!("choose from {}", known.join(", "))));
        }
    }
    let chosen =
        ALL.iter().filter(|(known, _)| names.is_empty() || names.iter().any(|n| n == known));
    chosen.map(|(name, text)| Experiment::parse(name, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_whole() {
        let all = choose(&[]).unwrap_or_else(|error| panic!("{error}"));
        for (experiment, (name, _)) in all.iter().zip(ALL) {
            assert_eq!(experiment.scenario.name, *name);
            assert!(!experiment.claims.is_empty());
        }
        assert!(choose(&["alchemy".into()]).is_err());
    }

    #[test]
    fn wrong_claims_are_told_with_their_place() {
        let text = ALL[0].1.replacen("figure = \"recall\"", "figure = \"charm\"", 1);
        let error = Experiment::parse("e", &text).unwrap_err().to_string();
        assert!(error.contains("unknown variant `charm`"), "{error}");
        let text =
            ALL[0].1.replacen("figure = \"recall\"", "figure = \"recall\"\nto = \"scan\"", 1);
        let error = Experiment::parse("e", &text).unwrap_err().to_string();
        assert!(error.contains("a ratio, and only that, has a `to`"), "{error}");
    }
}
