//! Agreement between a recording's hot regions and the true locations of the workload's hot values.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use tierscope_core::metrics::Accuracy;
use tierscope_core::{Range, RangeSet, SpaceId};
use tierscope_toucher::server_truth::Truth;

use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::paths;
use crate::progress::say;

/// The part of `tierscope report regions --json` that is used here: hot ranges, by default by the
/// mean of the last 5 s.
#[derive(Debug, Deserialize)]
struct Regions {
    hot: Vec<(u64, u64)>,
    regions: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    start: u64,
    end: u64,
    unknown: bool,
}

/// Precision and recall by bytes (METRICS.md).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Share of the reported bytes that are truly hot; 0 if none were reported.
    pub precision: f64,
    /// Share of the truly hot bytes that were reported.
    pub recall: f64,
    /// Share of the truly hot bytes that were reported as unknown.
    pub unknown: f64,
    /// Bytes reported hot.
    pub reported_bytes: u64,
    /// Bytes truly hot.
    pub true_bytes: u64,
    /// Bytes of cold values reported hot. The truth does not contain the server's other hot memory,
    /// such as its code and reply buffers; precision counts that as false positives nevertheless.
    pub cold_reported_bytes: u64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        write!(
            f,
            "recall {:.3} of {:.1} MB of hot values, {:.3} unknown; reported {:.1} MB, precision {:.3}, cold values in it {:.1} MB",
            self.recall,
            megabytes(self.true_bytes),
            self.unknown,
            megabytes(self.reported_bytes),
            self.precision,
            megabytes(self.cold_reported_bytes),
        )
    }
}

/// Compares the recording `redis` in `out` with the truth `truth.json`, and writes the figures to
/// `accuracy.json`.
///
/// # Errors
/// The recording or the truth is missing, or the report fails.
pub fn measure(out: &Path) -> Result<Figures> {
    let truth_path = out.join("truth.json");
    let truth = fs::read(&truth_path).at(truth_path.display())?;
    let truth: Truth = serde_json::from_slice(&truth).map_err(|e| foreign(&truth_path, e))?;
    let regions = regions(&out.join("redis"))?;
    let unknown = regions.regions.iter().filter(|row| row.unknown);
    let unknown: Vec<_> = unknown.map(|row| (row.start, row.end)).collect();
    let figures = compare(&ranges(&regions.hot), &ranges(&unknown), &truth);
    let path = out.join("accuracy.json");
    fs::write(&path, serde_json::to_string(&figures).unwrap_or_default()).at(path.display())?;
    Ok(figures)
}

/// Runs [`measure`] and compares the figures with a threshold.
///
/// # Errors
/// Recall is too low, or too many cold values are reported hot.
pub fn check(out: &Path, bar: f64) -> Result<()> {
    let figures = measure(out)?;
    say(figures);
    match falls_short(&figures, bar) {
        None => Ok(()),
        Some(why) => Err(Error::new(Kind::Job, "accuracy", why)),
    }
}

/// Why figures fall short of a threshold. A value may be unknown at the end of a run: a share of
/// the hot ones that reaches `bar` is found or unknown, and half of that is found. Of cold values
/// less is reported hot than there are bytes of hot ones.
fn falls_short(figures: &Figures, bar: f64) -> Option<String> {
    let known = figures.recall + figures.unknown;
    if known < bar || figures.recall < bar / 2.0 {
        let half = bar / 2.0;
        let recall = figures.recall;
        let why = format!(
            "recall {recall:.3} is below {half}, or {known:.3} found or unknown below {bar}"
        );
        return Some(why);
    }
    let cold = figures.cold_reported_bytes;
    (cold > figures.true_bytes).then(|| format!("{cold} bytes of cold values are reported hot"))
}

/// Ranges that a recording reports as hot, by the mean of its last 5 s.
///
/// # Errors
/// There is no recording, or the report fails.
pub(crate) fn reported(recording: &Path) -> Result<RangeSet> {
    Ok(ranges(&regions(recording)?.hot))
}

fn regions(recording: &Path) -> Result<Regions> {
    let tierscope =
        paths::programs().map_or_else(|| "tierscope".into(), |dir| dir.join("tierscope"));
    let text =
        capture(Command::new(tierscope).args(["report", "regions", "--json"]).arg(recording))?;
    serde_json::from_str(&text).map_err(|e| foreign(recording, e))
}

fn ranges(all: &[(u64, u64)]) -> RangeSet {
    all.iter().map(|(start, end)| Range::new(SpaceId(0), *start, *end)).collect()
}

fn compare(reported: &RangeSet, unknown: &RangeSet, truth: &Truth) -> Figures {
    let set = |pairs: &[[u64; 2]]| ranges(&pairs.iter().map(|[a, b]| (*a, *b)).collect::<Vec<_>>());
    let hot = set(&truth.hot);
    let accuracy = Accuracy::of(reported, &hot);
    Figures {
        precision: accuracy.precision().unwrap_or(0.0),
        recall: accuracy.recall().unwrap_or(0.0),
        unknown: unknown.intersect(&hot).bytes() as f64 / hot.bytes().max(1) as f64,
        reported_bytes: accuracy.reported,
        true_bytes: accuracy.truth,
        cold_reported_bytes: reported.intersect(&set(&truth.cold)).bytes(),
    }
}

fn foreign(path: &Path, error: serde_json::Error) -> Error {
    Error::new(Kind::Job, path.display().to_string(), format!("not what was expected: {error}"))
        .remedy("are `lab` and `tierscope` built from the same tree?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_values_cost_precision_and_missing_values_recall() {
        let truth = Truth {
            pid: 1,
            keys: 4,
            value_bytes: 90,
            hot: vec![[100, 190], [250, 340]],
            hot_bytes: 180,
            cold: vec![[0, 90], [230, 250], [300, 390]],
            cold_bytes: 200,
            thp: String::new(),
            thp_kib: 0,
        };
        // 100..300 contains 90 + 50 of 180 truly hot bytes and 20 cold ones; it has 200 bytes.
        let reported = [Range::new(SpaceId(0), 100, 300)].into_iter().collect();
        // 300..340 is unknown: 40 of the hot bytes.
        let unknown = [Range::new(SpaceId(0), 300, 345)].into_iter().collect();
        let figures = compare(&reported, &unknown, &truth);
        assert!((figures.recall - 140.0 / 180.0).abs() < 1e-12);
        assert!((figures.unknown - 40.0 / 180.0).abs() < 1e-12);
        assert!((figures.precision - 140.0 / 200.0).abs() < 1e-12);
        assert_eq!(figures.cold_reported_bytes, 20);
        assert_eq!(compare(&RangeSet::default(), &unknown, &truth).precision, 0.0);
    }

    #[test]
    fn neither_too_little_nor_too_much_may_be_hot() {
        let of = |recall, unknown, cold_reported_bytes| {
            let figures = Figures {
                precision: 0.5,
                recall,
                unknown,
                reported_bytes: 200,
                true_bytes: 100,
                cold_reported_bytes,
            };
            falls_short(&figures, 0.9).is_none()
        };
        assert!(of(0.9, 0.0, 0) && of(0.5, 0.4, 100));
        assert!(!of(0.8, 0.0, 0) && !of(0.4, 0.6, 0), "too little is found");
        assert!(!of(1.0, 0.0, 101), "all memory is called hot");
    }
}
