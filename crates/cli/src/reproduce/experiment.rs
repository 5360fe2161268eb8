//! Experiments on instruments, as TOML files with the claims about them.

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
        /// Names and TOML texts of the experiments.
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

/// A scenario, and a paper's claims about it.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The scenario to run.
    pub scenario: Scenario,
    /// The claims about it.
    pub claims: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    scenario: File,
    claim: Vec<Spanned<Claim>>,
}

/// A claim of a paper about an instrument.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// Place in the paper.
    pub paper: String,
    /// The claim in words.
    pub says: String,
    /// The contender that it is about.
    pub contender: String,
    /// The measured quantity.
    pub figure: Figure,
    /// For a ratio, the contender in the denominator.
    pub to: Option<String>,
    /// Lower bound of the figure.
    pub least: Option<f64>,
    /// Upper bound of the figure.
    pub most: Option<f64>,
    /// Direction of the claim: the figure is below that of this contender.
    pub below: Option<String>,
    /// Direction of the claim: the figure is above that of this contender.
    pub above: Option<String>,
    /// Explanation of the outcome, if it needs one.
    pub reason: Option<String>,
}

/// Quantities that claims are about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Share of the reported bytes that are truly hot, over windows after detections, or over all
    /// windows.
    Precision,
    /// Share of the truly hot bytes that are reported, over windows after detections, or over all
    /// windows.
    Recall,
    /// The recall of the best window.
    BestRecall,
    /// Seconds of the slowest detection.
    DetectionSeconds,
    /// CPU time of the profiler relative to the time; 1 is one CPU.
    ProfilerCpu,
    /// CPU time of the profiler relative to that of the contender `to`.
    ProfilerCpuRatio,
    /// Share of the target's time lost to the profiler.
    Stolen,
    /// Seconds until the first pass over all memory was complete.
    FirstPassSeconds,
    /// CPU share of the profiler during the first pass.
    FirstPassCpu,
}

impl Figure {
    /// Name in tables.
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

    /// Value for an outcome; for a ratio, its numerator. Infinite for an event that never happened,
    /// `None` if it is undefined.
    #[must_use]
    pub fn of(self, outcome: &Outcome) -> Option<f64> {
        let quoted = outcome.quoted();
        // A scan reports verdicts once its first pass is complete: the first window that has any
        // ends the pass.
        let passed = outcome.windows.iter().find(|row| row.looked_at > 0.0);
        match self {
            // `None` if nothing was reported: then nothing is wrong either.
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
    /// Parses TOML; `name` is for error messages.
    ///
    /// # Errors
    /// A description of the problem, with line and column.
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
        // Only contenders that occur in a claim are run.
        scenario.contenders = needed;
        let claims = read.claim.into_iter().map(Spanned::into_inner).collect();
        Ok(Experiment { scenario, claims })
    }
}

/// The experiments of these names; all if no names are given.
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
