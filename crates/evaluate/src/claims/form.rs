//! Common part of the experiments on policies: the contestants, the form of a claim, its judgement
//! and its row in a table.

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tierscope_core::units::about_size;
use tierscope_core::{Result, names};
use tierscope_sim::experiment::{Experiment, File, place as at_place, read};
use toml::Spanned;

use super::chapter::Extent;
use super::ends::{self, End};
use super::row::Row;
use super::varied;
use super::verdict::{Bounds, Comparison, Judgement, Seeds, Verdict};
use crate::contest::{self, Bound, Contestant, Outcome, contestants, place};
use crate::runner::Runner;
use crate::workload::read_workload;

/// A quantity that claims are about.
pub(super) trait Figure: Copy {
    /// Name in tables.
    fn name(self) -> &'static str;

    /// Whether it is a ratio to the same quantity of another policy.
    fn is_ratio(self) -> bool;
}

/// A claim of a paper about a policy.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Claim<F> {
    /// Place in the paper.
    pub(super) paper: String,
    /// The claim in words.
    pub(super) says: String,
    /// The policy, by its name in the experiment.
    pub(super) policy: String,
    /// The measured quantity.
    pub(super) figure: F,
    /// For a ratio, the policy in the denominator.
    pub(super) to: Option<String>,
    /// The phase of the workload that it is about; otherwise the whole run.
    pub(super) phase: Option<String>,
    /// Lower bound of the figure.
    pub(super) least: Option<f64>,
    /// Upper bound of the figure.
    pub(super) most: Option<f64>,
    /// Explanation of the outcome, if it needs one.
    pub(super) reason: Option<String>,
    /// Commands that change the suspected cause, and show that the figure follows.
    #[serde(default)]
    pub(super) decided_by: Vec<String>,
}

/// Checks that a reason, and only that, has commands that decided it.
///
/// # Errors
/// The text of an error.
pub(super) fn check_reason(reason: Option<&String>, decided_by: &[String]) -> Result<(), String> {
    match reason.is_some() == decided_by.is_empty() {
        true => Err("a reason, and only that, has a `decided-by`".into()),
        false => Ok(()),
    }
}

impl<F: Figure> Claim<F> {
    /// The common part of the claim.
    pub(super) fn common(&self) -> CommonClaim<'_> {
        CommonClaim {
            paper: &self.paper,
            says: &self.says,
            policy: &self.policy,
            case: self.phase.as_deref(),
            figure: self.figure.name(),
            is_ratio: self.figure.is_ratio(),
            to: self.to.as_deref(),
            bounds: Bounds { least: self.least, most: self.most },
            reason: self.reason.as_deref(),
            decided_by: &self.decided_by,
        }
    }
}

/// The part of a claim that all kinds of experiments share.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommonClaim<'a> {
    pub(super) paper: &'a str,
    pub(super) says: &'a str,
    pub(super) policy: &'a str,
    /// The case of the experiment, if it has several.
    pub(super) case: Option<&'a str>,
    pub(super) figure: &'static str,
    pub(super) is_ratio: bool,
    pub(super) to: Option<&'a str>,
    pub(super) bounds: Bounds,
    pub(super) reason: Option<&'a str>,
    pub(super) decided_by: &'a [String],
}

impl CommonClaim<'_> {
    /// Checks that the claim can be judged with these policies.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(super) fn check(&self, contestants: &[Contestant]) -> Result<(), String> {
        self.check_names(|named| {
            contestants.iter().any(|contestant| names::same(&contestant.text, named))
        })
    }

    /// Checks that the claim can be judged, given a test for known names.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(super) fn check_names(&self, known: impl Fn(&str) -> bool) -> Result<(), String> {
        let named = [Some(self.policy), self.to].into_iter().flatten();
        if let Some(named) = named.into_iter().find(|named| !known(named)) {
            return Err(format!("`{named}` is none of the experiment's policies"));
        }
        if self.is_ratio != self.to.is_some() {
            return Err("a ratio, and only that, has a `to`".into());
        }
        if self.bounds.least.is_none() && self.bounds.most.is_none() {
            return Err("a claim has a least or a most".into());
        }
        Ok(())
    }

    /// Judges the claim by the figures of the outcomes of each seed. It is not testable if a figure
    /// is undefined; or if a gain is claimed that neither the oracle nor any policy reaches, unless
    /// the policy loses where a gain is claimed.
    pub(super) fn judged(
        &self,
        seeds: &[Vec<Outcome>],
        figure: impl Fn(&Outcome) -> Option<f64>,
    ) -> Judgement {
        let of = |outcomes: &[Outcome], name: &str| {
            figure(outcomes.iter().find(|outcome| names::same(&outcome.policy, name))?)
        };
        let each = |policy: &str| {
            let ratio = |outcomes: &Vec<Outcome>| {
                over(of(outcomes, policy), self.to.map(|to| of(outcomes, to)))
            };
            Seeds::of(seeds.iter().map(ratio))
        };
        let judgement = self.judge_seeds(Verdict::NotTestable, each(self.policy));
        let gain = self.bounds.least.filter(|least| self.is_ratio && *least > 1.0);
        let policies = || seeds.first().into_iter().flatten();
        let Some(least) = gain.filter(|_| policies().any(|one| one.policy == Bound::Oracle.name()))
        else {
            return judgement;
        };
        let reached = policies().filter_map(|outcome| Some(each(&outcome.policy)?.mean));
        // A placement for the whole run is no bound on one phase: a policy may reach more.
        let most = reached.fold(f64::NEG_INFINITY, f64::max);
        match judgement.verdict {
            Verdict::DirectionOnly | Verdict::NoDifference if most < least => {
                Judgement { verdict: Verdict::NotTestable, ..judgement }
            }
            _ => judgement,
        }
    }

    /// Judges the claim by its figure and, for a ratio, the figure in the denominator, of a single
    /// run; the verdict is `missing` if one is undefined.
    pub(super) fn judge(
        &self,
        missing: Verdict,
        ours: Option<f64>,
        to: Option<Option<f64>>,
    ) -> Judgement {
        self.judge_seeds(missing, Seeds::of([over(ours, to)]))
    }

    fn judge_seeds(&self, missing: Verdict, ours: Option<Seeds>) -> Judgement {
        let Some(ours) = ours else { return Judgement { ours: None, verdict: missing } };
        let comparison = Comparison::of_ratio(ours, self.bounds).filter(|_| self.is_ratio);
        Judgement { ours: Some(ours), verdict: self.bounds.judge(ours, comparison) }
    }

    /// The claim's row with this verdict.
    pub(super) fn row(&self, judgement: Judgement) -> Row {
        let case = self.case.map_or(String::new(), |case| format!(", {case}"));
        let to = self.to.map_or(String::new(), |to| format!(" {to}"));
        let Judgement { ours, verdict } = judgement;
        Row {
            paper: self.paper.to_owned(),
            says: self.says.to_owned(),
            of: format!("{}{case}", self.policy),
            figure: format!("{}{to}", self.figure),
            range: self.bounds,
            ours,
            once_detected: None,
            verdict,
            reason: self.reason.map(str::to_owned),
            decided_by: self.decided_by.to_vec(),
        }
    }
}

/// Number of points in time of a table.
const POINTS: usize = 10;

/// Writes bytes over the time of a run, a row for each policy, below a heading.
pub(super) fn over_time(
    outcomes: &[Outcome],
    heading: &str,
    bytes: impl Fn(&contest::Row) -> Option<u64>,
    text: &mut String,
) {
    let Some(first) = outcomes.first() else { return };
    let step = first.rows.len().div_ceil(POINTS).max(1);
    let at: Vec<usize> = (0..first.rows.len()).skip(step - 1).step_by(step).collect();
    let time = |row: &usize| format!("{:.1} s", first.rows[*row].end_seconds).replace(".0 s", " s");
    let times: Vec<String> = at.iter().map(time).collect();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "\n{heading}\n\n| policy | {} |\n|---{}|",
        times.join(" | "),
        "|---".repeat(times.len())
    );
    for outcome in outcomes {
        let known = |row: &usize| outcome.rows.get(*row).and_then(&bytes);
        let shown: Vec<String> =
            at.iter().map(|row| known(row).map_or("–".into(), about_size)).collect();
        let _ = writeln!(text, "| {} | {} |", outcome.policy, shown.join(" | "));
    }
}

/// A figure, divided by that of the other policy if there is one.
fn over(ours: Option<f64>, to: Option<Option<f64>>) -> Option<f64> {
    let over = to.unwrap_or(Some(1.0)).filter(|over| *over > 0.0)?;
    Some(ours? / over)
}

/// An experiment that compares policies, and the claims about them.
#[derive(Clone, Debug)]
pub(super) struct Planned<F> {
    pub(super) name: &'static str,
    pub(super) experiment: Experiment,
    /// The experiment's text without what is no part of the set-up.
    pub(super) set_up: String,
    pub(super) contestants: Vec<Contestant>,
    /// The experiment whose claims this one repeats with another set-up.
    pub(super) variant_of: Option<String>,
    /// Empty if the paper poses a question without answering it.
    pub(super) claims: Vec<Claim<F>>,
    /// Number of seeds to run.
    pub(super) seeds: u16,
    /// The experiment with uncertain numbers at the ends of their ranges, to be run with one seed.
    pub(super) ends: Vec<End>,
}

/// Outcomes of a [`Planned`].
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// Of all contestants with each of the seeds.
    pub(super) seeds: Vec<Vec<Outcome>>,
    /// At each end of the uncertain numbers, with the first seed.
    pub(super) ends: Vec<Vec<Outcome>>,
}

/// TOML of an experiment with the paper's claims, as [`Planned`] is read from it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", bound(deserialize = "F: DeserializeOwned"))]
struct Text<F> {
    variant_of: Option<String>,
    experiment: File,
    #[serde(default)]
    claim: Vec<Spanned<Claim<F>>>,
}

impl<F: Figure + DeserializeOwned> Planned<F> {
    /// Parses an experiment and its claims.
    ///
    /// # Errors
    /// The experiment is invalid; or a claim names an unknown policy or cannot be judged: with its
    /// position.
    pub(super) fn parse(name: &'static str, text: &str, extent: Extent) -> Result<Self> {
        let read: Text<F> = read(name, text)?;
        let experiment = Experiment::part(name, text, &read.experiment, read_workload)?;
        let mut contestants = contestants(&experiment, &[])?;
        // The other bounds take more time than all policies, and no claim is judged by them.
        contestants.retain(|one| one.bound().is_none_or(|bound| bound == Bound::Oracle));
        for claim in &read.claim {
            let of = claim.get_ref();
            let checked = check_reason(of.reason.as_ref(), &of.decided_by);
            let checked = checked.and_then(|()| of.common().check(&contestants));
            checked.map_err(|what| at_place(name, text, claim.span().start, what))?;
        }
        let claims = read.claim.into_iter().map(Spanned::into_inner).collect();
        let (variant_of, seeds) = (read.variant_of, extent.seeds);
        let set_up = set_up(text);
        let ends = if extent.varied { ends::of(name, &experiment)? } else { Vec::new() };
        Ok(Self { name, experiment, set_up, contestants, variant_of, claims, seeds, ends })
    }

    /// Runs all contestants with each of the seeds, from the experiment's own on, and at all ends.
    ///
    /// # Errors
    /// A machine cannot be built.
    pub(super) fn ran(&self, runner: &Runner<'_>) -> Result<Ran> {
        let experiments: Vec<Experiment> =
            (0..self.seeds).map(|shift| self.experiment.reseeded(shift)).collect();
        let all = experiments.iter().chain(self.ends.iter().map(|end| &end.experiment));
        let each: Vec<_> = all.map(|experiment| (experiment, &*self.contestants)).collect();
        let mut seeds = run(&each, runner)?;
        let ends = seeds.split_off(experiments.len().min(seeds.len()));
        Ok(Ran { seeds, ends })
    }

    /// Table of the verdicts at the ends of the uncertain numbers; empty if these were not run.
    pub(super) fn at_ends(&self, ran: &Ran, rows: impl Fn(&[Vec<Outcome>]) -> Vec<Row>) -> String {
        let Some(first) = ran.seeds.first() else { return String::new() };
        let of = |outcomes: &Vec<Outcome>| rows(std::slice::from_ref(outcomes));
        let ends = self.ends.iter().zip(&ran.ends);
        let variants: Vec<varied::Variant<'_>> =
            ends.map(|(end, outcomes)| (end.label.as_str(), of(outcomes))).collect();
        varied::table(&of(first), &variants)
    }
}

/// An experiment's TOML in one form, without claims, comments and descriptions. Empty if it is
/// invalid.
fn set_up(text: &str) -> String {
    let Ok(mut table) = text.parse::<toml::Table>() else { return String::new() };
    table.retain(|key, _| key == "experiment");
    if let Some(experiment) = table.get_mut("experiment").and_then(toml::Value::as_table_mut) {
        experiment.retain(|key, _| key != "about" && key != "source");
    }
    table.to_string()
}

/// The seeds of a section as text.
pub(super) fn of_seeds(first: u64, count: usize) -> String {
    match count {
        1 => format!("seed {first}"),
        _ => format!("seeds {first} to {}, the table of seed {first}", first + count as u64 - 1),
    }
}

/// Runs all policies of all stages in parallel; returns their outcomes stage by stage. Those not
/// begun when a stop was requested are missing.
///
/// # Errors
/// A machine cannot be built.
pub(super) fn run(
    stages: &[(&Experiment, &[Contestant])],
    runner: &Runner<'_>,
) -> Result<Vec<Vec<Outcome>>> {
    let jobs: Vec<(&Experiment, &Contestant)> =
        stages.iter().flat_map(|(e, all)| all.iter().map(|who| (*e, who))).collect();
    let nanos: Vec<u64> =
        jobs.iter().map(|(e, one)| one.runs() * e.time.as_nanos() as u64).collect();
    let outcomes = runner.side_by_side(&nanos, |index: usize, reached: &AtomicU64| {
        let (experiment, contestant) = jobs[index];
        place(experiment, contestant, None, runner.stop(), reached)
    })?;
    let mut outcomes = outcomes.into_iter();
    let of = |(_, all): &(_, &[Contestant])| outcomes.by_ref().take(all.len()).flatten().collect();
    Ok(stages.iter().map(of).collect())
}
