//! Outcomes of policies, stored with an experiment's figures as `NAME.jsonl`, a line for each seed
//! and policy: claims that are added or changed later are judged by them, without another run.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tierscope_core::Result;

use super::stored;
use crate::contest::Outcome;

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    /// Number of the seed, counted from the experiment's own.
    seed: usize,
    outcome: Outcome,
}

/// Outcomes by seed as they are stored: without time series, and of the settings only the interval,
/// by which claims count scans.
pub(super) fn of(seeds: &[Vec<Outcome>]) -> Vec<Vec<Outcome>> {
    let kept = |outcome: &Outcome| {
        let interval = outcome.settings.iter().filter(|(name, _)| name == "interval");
        Outcome {
            settings: interval.cloned().collect(),
            rows: Vec::new(),
            notes: Vec::new(),
            wall_seconds: 0.0,
            ..outcome.clone()
        }
    };
    seeds.iter().map(|outcomes| outcomes.iter().map(kept).collect()).collect()
}

/// Stores the outcomes of an experiment.
///
/// # Errors
/// The file cannot be written.
pub(super) fn store(path: &Path, seeds: &[Vec<Outcome>]) -> Result<()> {
    let mut text = String::new();
    for (seed, outcomes) in seeds.iter().enumerate() {
        for outcome in outcomes {
            let line = Line { seed, outcome: outcome.clone() };
            text += &serde_json::to_string(&line).map_err(|e| stored::unusable(path, e))?;
            text.push('\n');
        }
    }
    crate::save(path, &text)
}

/// The stored outcomes of an experiment by seed; none if there is no file.
///
/// # Errors
/// The file is damaged, or cannot be read.
pub(super) fn read(path: &Path) -> Result<Vec<Vec<Outcome>>> {
    let Some(text) = stored::text(path)? else { return Ok(Vec::new()) };
    let mut seeds: Vec<Vec<Outcome>> = Vec::new();
    for line in text.lines() {
        let Line { seed, outcome } =
            serde_json::from_str(line).map_err(|e| stored::unusable(path, e))?;
        if seed + 1 != seeds.len() {
            seeds.push(Vec::new());
        }
        match seeds.get_mut(seed) {
            Some(outcomes) => outcomes.push(outcome),
            None => return Err(stored::unusable(path, "seeds are missing")),
        }
    }
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::Moves;

    fn outcome(policy: &str, rate: f64) -> Outcome {
        let setting = |name: &str| (name.to_owned(), "1s".to_owned());
        Outcome {
            policy: policy.into(),
            settings: vec![setting("interval"), setting("longest")],
            operations_per_second: rate,
            moves: Moves { promoted_bytes: 4096, ..Moves::default() },
            wall_seconds: 3.0,
            ..Outcome::default()
        }
    }

    // A rate that takes 17 digits comes back as it was.
    #[test]
    fn outcomes_are_read_as_they_were_stored() {
        let of_seed = |rate| vec![outcome("static", rate), outcome("multi-clock", rate / 3.0)];
        let seeds = of(&[of_seed(0.1 + 0.2), of_seed(1e9 / 7.0)]);
        assert_eq!(seeds[0][0].settings, [("interval".to_owned(), "1s".to_owned())]);
        assert_eq!(seeds[0][0].wall_seconds, 0.0);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.jsonl");
        assert_eq!(read(&path), Ok(Vec::new()), "there is no file");
        store(&path, &seeds).expect("it can be written");
        assert_eq!(read(&path), Ok(seeds));
        std::fs::write(&path, "{\"seed\": 1}\n").expect("it can be written");
        assert!(read(&path).is_err());
    }
}
