//! Experiments on instruments, as TOML files with the claims about them.

use serde::Deserialize;
use tierscope_core::Result;
use tierscope_sim::experiment::{File, place, read};
use toml::Spanned;

use super::super::form::check_reason;
use crate::accuracy::{Outcome, Scenario};
use crate::contender::Contender;
use crate::watch::Watch;

/// A scenario, and a paper's claims about it.
#[derive(Clone, Debug)]
pub(super) struct Experiment {
    /// The scenario to run.
    pub(super) scenario: Scenario,
    /// The claims about it.
    pub(super) claims: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    scenario: File,
    claim: Vec<Spanned<Claim>>,
}

/// A claim of a paper about an instrument. Without bounds it cannot be tested by itself: the paper
/// gives a number of unknown unit or time, which claims across experiments compare.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Claim {
    /// Place in the paper.
    pub(super) paper: String,
    /// The claim in words.
    pub(super) says: String,
    /// The contender that it is about.
    pub(super) contender: String,
    /// The measured quantity.
    pub(super) figure: Figure,
    /// The contender in the denominator, if the claim is about a ratio of the figure.
    pub(super) to: Option<String>,
    /// Lower bound of the figure.
    pub(super) least: Option<f64>,
    /// Upper bound of the figure.
    pub(super) most: Option<f64>,
    /// Direction of the claim: the figure is below that of this contender.
    pub(super) below: Option<String>,
    /// Direction of the claim: the figure is above that of this contender.
    pub(super) above: Option<String>,
    /// Explanation of the outcome, if it needs one.
    pub(super) reason: Option<String>,
    /// Commands that change the suspected cause, and show that the figure follows.
    #[serde(default)]
    pub(super) decided_by: Vec<String>,
}

/// Quantities that claims are about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Figure {
    /// Share of the reported bytes that are truly hot, over all windows.
    Precision,
    /// Share of the truly hot bytes that are reported, over all windows.
    Recall,
    /// The recall of the best window.
    BestRecall,
    /// Seconds of the slowest detection.
    DetectionSeconds,
    /// CPU time of the profiler relative to the time; 1 is one CPU.
    ProfilerCpu,
    /// Probes of page-table entries in a second.
    Looks,
    /// Share of the target's time lost to the profiler.
    Stolen,
    /// Seconds that the first pass over all memory takes with half a CPU: twice its CPU time. Its
    /// own duration would be the pace that the instrument was given.
    FirstPassAtHalf,
}

impl Figure {
    /// Name in tables.
    #[must_use]
    pub(super) fn name(self) -> &'static str {
        match self {
            Figure::Precision => "precision",
            Figure::Recall => "recall",
            Figure::BestRecall => "recall of the best window",
            Figure::DetectionSeconds => "detection time, s",
            Figure::ProfilerCpu => "profiler CPU",
            Figure::Looks => "looks a second",
            Figure::Stolen => "share of the target's time lost",
            Figure::FirstPassAtHalf => "first pass at half a CPU, s",
        }
    }

    /// Value for an outcome. Infinite for an event that never happened,
    /// `None` if it is undefined.
    #[must_use]
    pub(super) fn of(self, outcome: &Outcome) -> Option<f64> {
        // A scan reports verdicts once its first pass is complete: the first window that has any
        // ends the pass.
        let passed = outcome.windows.iter().find(|row| row.looked_at > 0.0);
        match self {
            // `None` if nothing was reported: then nothing is wrong either.
            Figure::Precision => outcome.all.precision,
            Figure::Recall => outcome.all.recall,
            Figure::BestRecall => {
                let recall = outcome
                    .windows
                    .iter()
                    .map(|row| row.both_bytes as f64 / row.true_bytes.max(1) as f64);
                recall.reduce(f64::max)
            }
            Figure::DetectionSeconds => Some(outcome.slowest_detection().unwrap_or(f64::INFINITY)),
            Figure::ProfilerCpu => Some(outcome.profiler_cpu),
            Figure::Looks => Some(outcome.looks),
            Figure::Stolen => Some(outcome.disturbed),
            Figure::FirstPassAtHalf => passed.map(|row| 2.0 * row.profiler_seconds),
        }
    }
}

impl Figure {
    /// Value over the windows after each detection, for a figure that a claim may mean so.
    pub(super) fn once_detected(self, outcome: &Outcome) -> Option<f64> {
        match self {
            Figure::Precision => outcome.settled?.precision,
            Figure::Recall => outcome.settled?.recall,
            _ => None,
        }
    }
}

impl Experiment {
    /// Parses TOML; `name` is for error messages.
    ///
    /// # Errors
    /// A description of the problem, with line and column.
    pub(super) fn parse(name: &str, text: &str) -> Result<Experiment> {
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
            if claim.get_ref().below.is_some() && claim.get_ref().above.is_some() {
                let what = "a claim is below a contender or above one, not both";
                return Err(bad((claim.span().start, what.into())));
            }
            let (reason, commands) = (&claim.get_ref().reason, &claim.get_ref().decided_by);
            check_reason(reason.as_ref(), commands)
                .map_err(|what| bad((claim.span().start, what)))?;
            let directed = claim.get_ref().below.is_some() || claim.get_ref().above.is_some();
            if directed && claim.get_ref().to.is_some() {
                let what = "a ratio has its direction from its bounds";
                return Err(bad((claim.span().start, what.into())));
            }
        }
        // Only contenders that occur in a claim are run.
        scenario.contenders = needed;
        let claims = read.claim.into_iter().map(Spanned::into_inner).collect();
        Ok(Experiment { scenario, claims })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{self, Kind};

    #[test]
    fn every_experiment_is_whole() {
        for entry in catalogue::of(Kind::Telemetry) {
            let experiment = Experiment::parse(entry.name, entry.text);
            let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(experiment.scenario.name, entry.name);
            assert!(!experiment.claims.is_empty());
        }
    }

    #[test]
    fn wrong_claims_are_reported_with_their_place() {
        let plain = catalogue::of(Kind::Telemetry).next().expect("there is one").text;
        let text = plain.replacen("figure = \"recall\"", "figure = \"charm\"", 1);
        let error = Experiment::parse("e", &text).unwrap_err().to_string();
        assert!(error.contains("unknown variant `charm`"), "{error}");
        let twice = "figure = \"recall\"\nto = \"scan\"\nbelow = \"scan\"";
        let text = plain.replacen("figure = \"recall\"", twice, 1);
        let error = Experiment::parse("e", &text).unwrap_err().to_string();
        assert!(error.contains("a ratio has its direction"), "{error}");
    }
}
