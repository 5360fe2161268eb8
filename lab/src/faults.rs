//! Shows that the judge of consoles notices each complaint that it looks for: kernels built here
//! commit deliberate faults (`lab/kmod/faults`, scenario `faults`).

use std::fs;

use crate::console::{Fires, MARKS, Mark, Scanner};
use crate::error::{Context, Error, Kind, Result};
use crate::fetch::Tree;
use crate::run::{self, Options};
use crate::scenario::Scenario;
use crate::suite::Count;

/// Faults of a boot that the kernel survives, in an order in which none hides another: the first
/// one that taints the kernel ends the checks of locks.
const SURVIVED: &[&str] = &[
    "lock-order",
    "sleep",
    "schedule",
    "warn",
    "shift",
    "msr",
    "rss",
    "pgtables",
    "bad-pmd",
    "leak",
    "bad-page",
    "use-after-free",
    "hung",
    "out-of-memory",
    "stall",
    "irqs-off",
    "reader",
];
/// Faults that need a boot of their own.
const FATAL: &[&str] = &["panic", "null", "freed-twice", "breakpoint", "wild", "double-map"];

/// The faults of each boot, for a kernel with this last fragment of its configuration.
fn boots(flavour: &str) -> Vec<Vec<&'static str>> {
    match flavour {
        "memory" => {
            [SURVIVED.to_vec()].into_iter().chain(FATAL.iter().map(|fault| vec![*fault])).collect()
        }
        "races" => vec![vec!["race"]],
        _ => Vec::new(),
    }
}

/// Commits all faults that a kernel is there for, and counts a check for each mark.
pub fn test(name: &str, tree: &Tree, flavour: &str, count: Count<'_>) {
    for faults in boots(flavour) {
        let console = console(name, tree, &[("faults", &faults.join(" "))], "");
        for fault in &faults {
            marks(Fires::By(fault)).for_each(|mark| {
                let fired = console.clone().and_then(|text| fired(mark, &text, fault));
                count(&check(mark), fired);
            });
        }
    }
    let at_boot = MARKS.iter().filter(|mark| matches!(mark.fires, Fires::AtBoot(_)));
    for mark in at_boot.filter(|_| flavour == "memory") {
        let Fires::AtBoot(parameters) = mark.fires else { continue };
        let found = console(name, tree, &[], parameters).and_then(|text| found(mark, &text));
        count(&check(mark), found);
    }
}

fn check(mark: &Mark) -> String {
    format!("mark \"{}\" fires", mark.text)
}

fn marks(fires: Fires) -> impl Iterator<Item = &'static Mark> {
    MARKS.iter().filter(move |mark| mark.fires == fires)
}

/// What a machine with these faults prints on its console.
fn console(name: &str, tree: &Tree, set: &[(&str, &str)], cmdline: &str) -> Result<String> {
    let mut scenario = Scenario::load("faults")?;
    set.iter().try_for_each(|(key, value)| scenario.assign(&format!("{key}={value}")))?;
    scenario.cmdline = cmdline.to_owned();
    let options = Options { quiet: true, ..Options::default() };
    let done = run::run(&scenario, name, tree, &options)?;
    let path = done.out.join("console.txt");
    fs::read_to_string(&path).at(path.display())
}

/// Whether a mark is in what the console says from this fault on until the next, and no complaint
/// is in what comes before the first fault.
fn fired(mark: &Mark, console: &str, fault: &str) -> Result<()> {
    const EACH: &str = "lab: fault ";
    let mut parts = console.split(EACH);
    let mut before = Scanner::default();
    parts.next().unwrap_or_default().lines().for_each(|line| before.line(line));
    if let Some(finding) = before.findings().first() {
        return Err(Error::new(Kind::Kernel, fault, format!("{} before any fault", finding.kind)));
    }
    let of_fault = parts.find(|part| part.lines().next().map(str::trim) == Some(fault));
    found(mark, of_fault.unwrap_or_default())
}

fn found(mark: &Mark, text: &str) -> Result<()> {
    match text.contains(mark.text) {
        true => Ok(()),
        false => Err(Error::new(Kind::Job, mark.text, "the console does not say it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;

    fn committed() -> Vec<&'static str> {
        ["memory", "races"].into_iter().flat_map(boots).flatten().collect()
    }

    #[test]
    fn every_mark_has_a_fault_that_a_boot_commits_or_a_reason() {
        for mark in MARKS {
            match mark.fires {
                Fires::By(fault) => assert!(committed().contains(&fault), "{}", mark.text),
                Fires::AtBoot(parameters) => assert!(!parameters.is_empty()),
                Fires::Not(reason) => assert!(reason.len() > 20, "{}", mark.text),
            }
        }
    }

    #[test]
    fn every_fault_is_there_and_fires_a_mark() {
        let read = |path: &str| fs::read_to_string(paths::lab().join(path)).unwrap();
        let (module, job) = (read("kmod/faults/main.c"), read("scenarios/faults.sh"));
        for fault in committed() {
            let there = module.contains(&format!("{{ \"{fault}\", "));
            assert!(there || job.contains(&format!("    {fault})")), "{fault}");
            assert!(marks(Fires::By(fault)).next().is_some(), "{fault}");
        }
        assert_eq!(module.matches("{ \"").count() + 1, committed().len(), "each is committed");
    }

    #[test]
    fn a_mark_counts_after_its_own_fault_only() {
        let mark = |text| MARKS.iter().find(|mark| mark.text == text).unwrap();
        let text = "boot\n[1] lab: fault warn\n[2] WARNING: CPU: 0\n[3] lab: fault sleep\nfine\n";
        assert!(fired(mark("WARNING: "), text, "warn").is_ok());
        assert!(fired(mark("WARNING: "), text, "sleep").is_err());
        assert!(fired(mark("WARNING: "), &text.replace("boot", "BUG: x"), "warn").is_err());
        assert!(fired(mark("WARNING: "), text, "hung").is_err());
    }
}
