//! The checks that need a kernel, run and counted.

use crate::error::{Error, Kind, Result};
use crate::fetch::Tree;
use crate::kbuild;
use crate::progress::say;

use super::{Case, Suite, shared};

/// Counts checks and prints their results, in lines that scripts can parse.
#[derive(Debug, Default)]
pub struct Tally {
    passed: u32,
    failed: u32,
}

impl Tally {
    /// Counts and prints the result of one check.
    pub fn count(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("PASS {name}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAIL {name}: {error}");
            }
        }
    }

    /// Overall result.
    ///
    /// # Errors
    /// At least one check failed.
    pub fn verdict(&self) -> Result<()> {
        say(format!("{} checks passed, {} failed", self.passed, self.failed));
        match self.failed {
            0 => Ok(()),
            n => Err(Error::new(Kind::Job, "checks", format!("{n} of {} failed", self.passed + n))),
        }
    }
}

/// Runs the checks of `make test` that need a kernel on each of these; of the cases, those whose
/// name contains `only`.
///
/// # Errors
/// A check failed.
pub fn run_all(kernels: &[(String, Tree)], only: &str) -> Result<()> {
    let mut tally = Tally::default();
    let suite = Suite::load()?;
    for (name, tree) in kernels {
        let mut count = |check: &str, result| tally.count(&format!("{check} on {name}"), result);
        if only.is_empty() {
            build_modules(tree, &mut count);
        }
        run_cases(&suite, name, tree, only, &mut count);
    }
    tally.verdict()
}

/// Takes the name of a check and its result.
pub type Count<'a> = &'a mut dyn FnMut(&str, Result<()>);

/// Builds our modules for a kernel.
pub fn build_modules(tree: &Tree, count: Count<'_>) {
    for module in kbuild::names() {
        let built = kbuild::build(module, tree, true).map(drop);
        count(&format!("module {module} builds without warnings"), built);
    }
}

/// Runs the cases of a suite whose name contains `only` on a kernel.
pub fn run_cases(suite: &Suite, name: &str, tree: &Tree, only: &str, count: Count<'_>) {
    let wanted = |case: &&Case| case.runs_on(name) && case.name.contains(only);
    for cases in shared::boots(suite.cases.iter().filter(wanted)) {
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        say(format!("{} on {name}", names.join("; ")));
        let results = once_more_if_emulator(|| shared::run(&cases, name, tree));
        names.into_iter().zip(results).for_each(|(case, result)| count(case, result));
    }
}

/// Repeats the cases of a machine once if one failed because of a bug of the emulated processor;
/// the second results count.
fn once_more_if_emulator(mut run: impl FnMut() -> Vec<Result<()>>) -> Vec<Result<()>> {
    let results = run();
    let emulator = |result: &Result<()>| matches!(result, Err(e) if e.kind == Kind::Emulator);
    match results.iter().find(|result| emulator(result)) {
        Some(Err(error)) => {
            say(format!("{error}: a fault that QEMU has before 8.1; once more"));
            run()
        }
        _ => results,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_all() {
        let mut tally = Tally::default();
        tally.count("a", Ok(()));
        assert!(tally.verdict().is_ok());
        tally.count("b", Err(Error::new(Kind::Job, "b", "broke")));
        assert_eq!(tally.verdict().unwrap_err().to_string(), "checks: 1 of 2 failed");
    }

    #[test]
    fn only_the_emulators_fault_is_tried_again_and_only_once() {
        let runs = |kinds: &[Option<Kind>]| {
            let mut left = kinds.iter();
            let results = once_more_if_emulator(|| match left.next().unwrap() {
                Some(kind) => vec![Ok(()), Err(Error::new(*kind, "x", "broke"))],
                None => vec![Ok(()), Ok(())],
            });
            (results.iter().all(Result::is_ok), kinds.len() - left.len())
        };
        assert_eq!(runs(&[None]), (true, 1));
        assert_eq!(runs(&[Some(Kind::Kernel), None]), (false, 1));
        assert_eq!(runs(&[Some(Kind::Emulator), None]), (true, 2));
        assert_eq!(runs(&[Some(Kind::Emulator), Some(Kind::Emulator), None]), (false, 2));
    }
}
