//! How much the predictions depend on the uncertain numbers of the machine files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tierscope_core::{ErrorKind, Result, Time};
use tierscope_hw::Machine as Hardware;

use crate::rig::{Change, Rig};
use crate::table::summary;
use crate::{Predict, parallel, results};

/// Simulated time of a measurement: a third of the usual, as there are many.
const TIME: Time = Time(300_000);

/// A row for each number, with its ranges in the machine files: mean errors of the results with the
/// number at the low end and at the high end; a dash where the machine would contradict itself.
pub(crate) fn table(wanted: &[(&'static str, Predict)]) -> Result<String> {
    let numbers = numbers()?;
    let ends = |key: &String| [false, true].map(|high| Some(Change { key: key.clone(), high }));
    let changes: Vec<Option<Change>> =
        std::iter::once(None).chain(numbers.keys().flat_map(ends)).collect();
    let jobs: Vec<(&Option<Change>, Predict)> = changes
        .iter()
        .flat_map(|change| wanted.iter().map(move |(_, predict)| (change, *predict)))
        .collect();
    let errors = parallel(&jobs, |(change, predict)| {
        let rig = Rig { time: TIME, change: (*change).clone() };
        let mean = match predict(&rig) {
            Ok(pairs) => format!("{:.0}", 100.0 * summary(&pairs).0),
            // Fewer banks than a result's bandwidth needs, for instance.
            Err(error) if error.kind() == ErrorKind::Usage => "-".to_owned(),
            Err(error) => return Err(error),
        };
        eprintln!("sensitivity: {change:?}: {mean} %");
        Ok(mean)
    })?;
    let rows: Vec<&[String]> = errors.chunks(wanted.len().max(1)).collect();
    let mut text = String::from("| number | ranges |");
    wanted.iter().for_each(|(name, _)| _ = write!(text, " `{name}` |"));
    let _ = writeln!(text, "\n|---|---|{}", "---|".repeat(wanted.len()));
    let as_in_files: Vec<String> = rows[0].iter().map(|mean| format!("{mean} %")).collect();
    let _ = writeln!(text, "| all as in the files | | {} |", as_in_files.join(" | "));
    for ((key, ranges), pair) in numbers.iter().zip(rows[1..].chunks(2)) {
        let of = pair[0].iter().zip(pair[1]).map(|(low, high)| format!("{low}, {high} %"));
        let of = of.collect::<Vec<_>>().join(" | ");
        let _ = writeln!(text, "| `{key}` | {} | {of} |", ranges.join(", "));
    }
    Ok(text)
}

/// The uncertain numbers of cores and media, and their ranges; results give their channels.
fn numbers() -> Result<BTreeMap<String, Vec<String>>> {
    let mut numbers = BTreeMap::<String, Vec<String>>::new();
    for name in results::TEMPLATES {
        let hardware = Hardware::ready_made(name)?;
        let media = hardware.tiers.iter().map(|tier| &tier.medium.ranges);
        let ranges = media.chain([&hardware.timing.ranges]).flatten();
        for (key, [low, high]) in ranges.filter(|(key, _)| *key != "channels") {
            let (ranges, range) =
                (numbers.entry(key.clone()).or_default(), format!("{low}–{high}"));
            if !ranges.contains(&range) {
                ranges.push(range);
            }
        }
    }
    Ok(numbers)
}
