//! Cases that share a machine: it boots once, and runs their jobs one after another.

use std::fs;
use std::path::Path;

use crate::error::{Error, Kind, Result};
use crate::fetch::Tree;
use crate::progress::say;
use crate::run::{self, Done};
use crate::scenario::Scenario;

use super::Case;

/// The cases of each machine, in order: those of one `boot` together, the others alone.
pub(super) fn boots<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Vec<Vec<&'a Case>> {
    let mut boots: Vec<Vec<&Case>> = Vec::new();
    for case in cases {
        let same = |boot: &&mut Vec<&Case>| case.boot.is_some() && boot[0].boot == case.boot;
        match boots.iter_mut().find(same) {
            Some(boot) => boot.push(case),
            None => boots.push(vec![case]),
        }
    }
    boots
}

/// The scenario of a machine: that of its only case, or those of all in one.
///
/// # Errors
/// They want different machines.
pub(super) fn joined(cases: &[&Case]) -> Result<Scenario> {
    let scenarios = cases.iter().map(|case| case.scenario()).collect::<Result<Vec<_>>>()?;
    let [first, others @ ..] = cases else {
        return Err(Error::new(Kind::Usage, "lab/suite.toml", "a machine without cases"));
    };
    let name = first.boot.as_ref().unwrap_or(&first.name);
    if others.iter().any(|case| (case.la57, case.pti) != (first.la57, first.pti)) {
        return Err(Error::new(Kind::Usage, format!("boot {name}"), "la57 and pti differ"));
    }
    match others {
        [] => Ok(scenarios[0].clone()),
        _ => Scenario::joined(name, scenarios),
    }
}

/// Runs the cases of a machine on a kernel; returns the result of each.
pub(super) fn run(cases: &[&Case], kernel_name: &str, kernel: &Tree) -> Vec<Result<()>> {
    let results = match cases {
        [case] => Ok(vec![case.run(kernel_name, kernel)]),
        _ => run_together(cases, kernel_name, kernel),
    };
    results.unwrap_or_else(|error| cases.iter().map(|_| Err(error.clone())).collect())
}

fn run_together(cases: &[&Case], kernel_name: &str, kernel: &Tree) -> Result<Vec<Result<()>>> {
    let scenario = joined(cases)?;
    let options = cases[0].options(&scenario.name, kernel_name);
    let done = run::run(&scenario, kernel_name, kernel, &options)?;
    let verdict = run::judge(&scenario.name, &done);
    let blamed = verdict.err().map(|error| (blamed(&done, cases.len()), error));
    let result = |(number, case): (usize, &&Case)| {
        if let Some((_, error)) = blamed.as_ref().filter(|(blamed, _)| *blamed == number) {
            return Err(error.clone());
        }
        let job = Scenario::job_name(number);
        ended(&case.name, &done.out, &job)?;
        case.check(&done.out.join(job), &case.scenario()?)
    };
    Ok(cases.iter().enumerate().map(result).collect())
}

/// The job that a machine's failure is put down to: the one in which the kernel complained, or the
/// first that did not end.
fn blamed(done: &Done, jobs: usize) -> usize {
    let ended = |job: &usize| status(&done.out, &Scenario::job_name(*job)).is_some();
    let complained = done.ending.console.marked("lab: job ").and_then(|name| name.parse().ok());
    complained.unwrap_or_else(|| (0..jobs).find(|job| !ended(job)).unwrap_or(jobs - 1))
}

/// Exit status and seconds of a job.
fn status(out: &Path, job: &str) -> Option<(i32, f64)> {
    let text = fs::read_to_string(out.join(format!("{job}.status"))).ok()?;
    let (status, seconds) = text.trim().split_once(' ')?;
    Some((status.parse().ok()?, seconds.parse().ok()?))
}

fn ended(name: &str, out: &Path, job: &str) -> Result<()> {
    let fail = |cause: String| Err(Error::new(Kind::Job, name, cause));
    match status(out, job) {
        None => fail("not run: the machine ended in a job before".to_owned()),
        Some((0, seconds)) => {
            say(format!("{name}: ended after {seconds:.1} s"));
            Ok(())
        }
        Some((99, _)) => fail("a module could not be unloaded after the job".to_owned()),
        Some((status, _)) => fail(format!("the job ended with exit status {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, boot: Option<&str>) -> Case {
        let scenario = "smoke".to_owned();
        Case { name: name.into(), scenario, boot: boot.map(Into::into), ..Case::default() }
    }

    #[test]
    fn cases_of_one_boot_are_together_the_others_alone() {
        let cases = [case("a", Some("x")), case("b", None), case("c", Some("x")), case("d", None)];
        let names: Vec<Vec<&str>> = boots(&cases)
            .iter()
            .map(|boot| boot.iter().map(|case| case.name.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["a", "c"], vec!["b"], vec!["d"]]);
    }

    #[test]
    fn a_boot_of_different_machines_is_refused() {
        let (plain, other) = (case("a", Some("x")), case("b", Some("x")));
        assert_eq!(joined(&[&plain, &other]).unwrap().name, "x");
        let la57 = Case { la57: true, ..other.clone() };
        assert!(joined(&[&plain, &la57]).unwrap_err().to_string().contains("la57"));
        let tiers = Case { topology: Some("two-tiers".into()), ..other };
        assert!(joined(&[&plain, &tiers]).unwrap_err().to_string().contains("topology"));
    }

    #[test]
    fn a_job_without_status_was_not_run() {
        let out = tempfile::tempdir().unwrap();
        let cause = |job: &str| ended("x", out.path(), job).unwrap_err().to_string();
        fs::write(out.path().join("00.status"), "0 3.25\n").unwrap();
        fs::write(out.path().join("01.status"), "7 1\n").unwrap();
        fs::write(out.path().join("02.status"), "99 1\n").unwrap();
        assert!(ended("x", out.path(), "00").is_ok());
        assert_eq!(cause("01"), "x: the job ended with exit status 7");
        assert!(cause("02").contains("unloaded"));
        assert!(cause("03").contains("not run"));
    }
}
