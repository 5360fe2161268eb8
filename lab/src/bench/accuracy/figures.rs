//! Figures from `tierscope compare` for one instrument.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::paths;
use crate::progress::say;

/// Number of windows at the end of a run that determine the settled accuracy.
const LATE: usize = 10;

/// The part of `tierscope compare --json` that is used for rows.
#[derive(Debug, Deserialize)]
pub(super) struct Comparison {
    pub(super) detections: Vec<Detection>,
    pub(super) profiler_cpu: Option<f64>,
    pub(super) windows: Vec<Window>,
    pub(super) all: Kinds,
}

#[derive(Debug, Deserialize)]
pub(super) struct Detection {
    pub(super) from_seconds: f64,
    pub(super) seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Window {
    pub(super) end_seconds: f64,
    pub(super) changed: bool,
    pub(super) figures: Kinds,
    pub(super) oracle_share: Option<f64>,
    pub(super) touches_per_second: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Kinds {
    pub(super) region: Shares,
    pub(super) pages: Option<Shares>,
    pub(super) pages_of_ten: Option<Shares>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(super) struct Shares {
    pub(super) reported_bytes: u64,
    pub(super) true_bytes: u64,
    pub(super) both_bytes: u64,
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl Shares {
    /// Precision; 0 if nothing was reported.
    pub(super) fn precision(&self) -> f64 {
        share(self.both_bytes, self.reported_bytes)
    }

    pub(super) fn recall(&self) -> f64 {
        share(self.both_bytes, self.true_bytes)
    }

    pub(super) fn false_hot(&self) -> f64 {
        share(self.reported_bytes - self.both_bytes, self.true_bytes)
    }

    fn sum(all: impl Iterator<Item = Shares>) -> Shares {
        all.fold(Shares::default(), |sum, one| Shares {
            reported_bytes: sum.reported_bytes + one.reported_bytes,
            true_bytes: sum.true_bytes + one.true_bytes,
            both_bytes: sum.both_bytes + one.both_bytes,
        })
    }
}

impl Comparison {
    /// Sum over the last windows in which the hot set did not change.
    pub(super) fn late(&self, kind: impl Fn(&Kinds) -> Option<Shares>) -> Shares {
        let quiet = self.windows.iter().rev().filter(|window| !window.changed);
        Shares::sum(quiet.take(LATE).filter_map(|window| kind(&window.figures)))
    }

    /// Mean oracle share of the same windows as [`Comparison::late`].
    pub(super) fn late_oracle_share(&self) -> f64 {
        let quiet = self.windows.iter().rev().filter(|window| !window.changed).take(LATE);
        let shares: Vec<f64> = quiet.map(|window| window.oracle_share.unwrap_or(0.0)).collect();
        shares.iter().sum::<f64>() / shares.len().max(1) as f64
    }

    /// The slowest of the detections with at least `seconds` of time; `None` if one of them never
    /// succeeded.
    pub(super) fn slowest(&self, seconds: f64) -> Option<f64> {
        let last = self.windows.last().map_or(0.0, |window| window.end_seconds);
        let fair = |d: &&Detection| d.seconds.is_some() || d.from_seconds + seconds + 1.0 < last;
        let all: Option<Vec<f64>> =
            self.detections.iter().filter(fair).map(|d| d.seconds).collect();
        all?.into_iter().reduce(f64::max)
    }

    /// Seconds from the start of the first window to the end of the last one.
    pub(super) fn seconds(&self) -> f64 {
        self.windows.last().map_or(0.0, |window| window.end_seconds)
    }

    /// Mean rate of the workload's touches.
    pub(super) fn touches_per_second(&self) -> f64 {
        let rates: Vec<f64> =
            self.windows.iter().filter_map(|window| window.touches_per_second).collect();
        rates.iter().sum::<f64>() / rates.len().max(1) as f64
    }
}

/// Compares a recording below `dir` with the truth next to `dir`; writes JSON and chart to
/// `kept.*`.
pub(super) fn compare(dir: &Path, bar: f64, kept: &Path, pages: bool) -> Result<Comparison> {
    let truth = dir.parent().unwrap_or(dir).join("truth");
    let mut command = Command::new(tierscope());
    command.arg("compare").arg(dir.join("recording")).arg(truth);
    command.args(["--json", "--bar", &bar.to_string(), "--svg"]);
    command.arg(kept.with_extension("svg"));
    if !pages {
        command.arg("--no-pages");
    }
    let text = capture(&mut command)?;
    std::fs::write(kept.with_extension("json"), &text).at(kept.display())?;
    serde_json::from_str(&text).map_err(|e| {
        Error::new(Kind::Job, dir.display().to_string(), format!("not what was expected: {e}"))
            .remedy("are `lab` and `tierscope` built from the same tree?")
    })
}

fn tierscope() -> PathBuf {
    paths::programs().map_or_else(|| "tierscope".into(), |dir| dir.join("tierscope"))
}

/// Checks the precision and recall at the end of the first of several recordings that a scenario
/// such as `accuracy` left in `out`; those of the others are only printed.
///
/// # Errors
/// The first recording falls below the threshold.
pub fn check(out: &Path, names: &[String], bar: f64) -> Result<()> {
    let mut first = None;
    for name in names {
        let dir = out.join(name);
        let found = compare(&dir, bar, &dir.join("comparison"), false)?;
        let late = found.late(|kinds| Some(kinds.region));
        let detected = found.slowest(0.0).map_or("never".into(), |s| format!("after {s:.2} s"));
        say(format!(
            "{name}: precision {:.3}, recall {:.3} at the end; both at least {bar}: {detected}",
            late.precision(),
            late.recall()
        ));
        first.get_or_insert((name, late));
    }
    match first {
        Some((_, late)) if late.precision() >= bar && late.recall() >= bar => Ok(()),
        Some((name, _)) => {
            let cause = format!("precision or recall is below {bar} at the end");
            Err(Error::new(Kind::Job, name.clone(), cause))
        }
        None => Err(Error::new(Kind::Usage, "compared", "no recording is named")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(end_seconds: f64, both_bytes: u64, changed: bool) -> Window {
        let region = Shares { reported_bytes: 10, true_bytes: 20, both_bytes };
        let figures = Kinds { region, pages: None, pages_of_ten: None };
        Window {
            end_seconds,
            changed,
            figures,
            oracle_share: Some(0.5),
            touches_per_second: Some(2.0),
        }
    }

    fn comparison(detections: &[(f64, Option<f64>)]) -> Comparison {
        let windows: Vec<Window> =
            (1..=20).map(|i| window(f64::from(i), if i > 10 { 10 } else { 0 }, i == 15)).collect();
        Comparison {
            detections: detections
                .iter()
                .map(|(from_seconds, seconds)| Detection {
                    from_seconds: *from_seconds,
                    seconds: *seconds,
                })
                .collect(),
            profiler_cpu: None,
            all: windows[0].figures,
            windows,
        }
    }

    // The last ten windows without the fifteenth: nine with 10 / 10 / 20 bytes, and the tenth with
    // none.
    #[test]
    fn windows_with_a_change_are_left_out_of_late_windows() {
        let late = comparison(&[]).late(|kinds| Some(kinds.region));
        assert_eq!((late.precision(), late.recall(), late.false_hot()), (0.9, 0.45, 0.05));
    }

    // A run of 20 s: a change at 18.5 s that leaves too little time for detection does not count.
    #[test]
    fn the_slowest_detection_counts_and_never_is_never() {
        let slowest = |all: &[(f64, Option<f64>)]| comparison(all).slowest(1.0);
        assert_eq!(slowest(&[(0.0, Some(0.4)), (4.0, Some(0.8)), (18.5, None)]), Some(0.8));
        assert_eq!(slowest(&[(0.0, Some(0.4)), (4.0, None)]), None);
    }

    #[test]
    fn nothing_reported_is_no_precision() {
        assert_eq!(Shares { true_bytes: 5, ..Shares::default() }.precision(), 0.0);
    }
}
