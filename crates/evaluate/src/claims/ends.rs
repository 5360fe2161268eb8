//! Experiments on policies at the ends of the ranges of uncertain numbers: all numbers of the
//! hardware, or all costs of software, at their least or at their most. A single number of those is
//! changed by `tierscope sim tier NAME --set KEY=VALUE`.

use tierscope_core::Result;
use tierscope_sim::experiment::{Change, Experiment};

use crate::experiments::{Overrides, load};

/// An experiment with a group of numbers at one end of their ranges.
#[derive(Clone, Debug)]
pub(super) struct End {
    /// As `hardware least`.
    pub(super) label: String,
    pub(super) experiment: Experiment,
}

/// A built-in experiment at all ends.
///
/// # Errors
/// The experiment is invalid with these numbers.
pub(super) fn of(name: &str, experiment: &Experiment) -> Result<Vec<End>> {
    let uncertain = experiment.uncertain();
    let mut ends = Vec::new();
    for group in ["hardware", "costs"] {
        for (end, label) in ["least", "most"].into_iter().enumerate() {
            let mine = uncertain.iter().filter(|number| number.key.starts_with(group));
            let change = |number: &tierscope_sim::experiment::Uncertain| Change {
                key: number.key.clone(),
                value: number.range[end].to_string(),
            };
            let changes: Vec<Change> = mine.map(change).collect();
            let experiment = load(name, &Overrides::default(), &changes)?;
            ends.push(End { label: format!("{group} {label}"), experiment });
        }
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The costs of a probe in costs/linux.toml lie between 52 and 390 ns.
    #[test]
    fn each_end_moves_all_numbers_of_its_group() {
        let plain = load("ycsb-a", &Overrides::default(), &[]).expect("it is built in");
        let ends = of("ycsb-a", &plain).expect("they are valid");
        let labels: Vec<&str> = ends.iter().map(|end| end.label.as_str()).collect();
        assert_eq!(labels, ["hardware least", "hardware most", "costs least", "costs most"]);
        let probe = |end: usize| ends[end].experiment.setup.costs.access_bits.probe_ns;
        let plain_probe = plain.setup.costs.access_bits.probe_ns;
        assert_eq!([probe(0), probe(2), probe(3)], [plain_probe, 52, 390]);
        for (end, side) in ends.iter().zip([0, 1, 0, 1]) {
            let group = &end.label[..5];
            for number in end.experiment.uncertain().iter().filter(|n| n.key.starts_with(group)) {
                assert_eq!(number.value, number.range[side], "{}: {}", end.label, number.key);
            }
        }
    }
}
