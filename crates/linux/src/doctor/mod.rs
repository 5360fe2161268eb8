//! Checks which features this machine supports, why others are missing, and how to enable them.
//!
//! A check is a row of a table: a name and a function. It reads the machine through a [`Scene`]:
//! files below a root directory, and the few facts that only a system call reveals. Tests create
//! their own roots, so that every verdict is tested on any machine. New features add rows.
//!
//! Invariant: a check changes nothing.

mod bits;
mod cgroup;
mod control;
mod damon;
mod kernel;
mod module;
mod placement;
mod process;
mod reclaim;
mod sampling;
mod scene;

use tierscope_core::names::plain;
use tierscope_core::{Error, Missing};

pub use kernel::TESTED;
pub use scene::{Live, ModuleFacts, Scene, System};

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The feature is available.
    Present,
    /// The feature is available with a limitation.
    Limited,
    /// The feature is missing.
    Missing,
    /// The feature is available, but this user lacks the permission.
    Forbidden,
    /// The feature's state cannot be determined.
    Unknown,
}

impl Verdict {
    /// One word for users and scripts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Present => "present",
            Verdict::Limited => "limited",
            Verdict::Missing => "missing",
            Verdict::Forbidden => "forbidden",
            Verdict::Unknown => "unknown",
        }
    }
}

/// A verdict with its reason and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// Details of the feature, or why it is missing.
    pub found: String,
    /// Remedy; empty if none is needed or possible.
    pub remedy: String,
}

impl Finding {
    /// A finding of [plain] text: names of processes, files and cgroups may be in it.
    fn new(verdict: Verdict, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let [found, remedy] = [found.into(), remedy.into()].map(|text| plain(&text).into_owned());
        Self { verdict, found, remedy }
    }

    fn present(found: impl Into<String>) -> Self {
        Self::new(Verdict::Present, found, "")
    }

    fn limited(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Verdict::Limited, found, remedy)
    }

    fn missing(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Verdict::Missing, found, remedy)
    }

    fn forbidden(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Verdict::Forbidden, found, remedy)
    }

    /// A finding from an error, whose text has the form `what: cause; remedy`.
    fn of(verdict: Verdict, error: &Error) -> Self {
        let text = error.to_string();
        let (found, remedy) = text.rsplit_once("; ").unwrap_or((&text, ""));
        Self::new(verdict, found, remedy)
    }

    fn unknown(found: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, found, "")
    }

    /// Whether the feature can be used.
    #[must_use]
    pub fn usable(&self) -> bool {
        !matches!(self.verdict, Verdict::Missing | Verdict::Forbidden)
    }
}

/// Reports a missing port as a missing feature.
impl From<Missing> for Finding {
    fn from(missing: Missing) -> Self {
        Finding::missing(missing.cause, missing.remedy)
    }
}

/// A row of the table: one feature to check.
pub struct Check<S: ?Sized> {
    /// Name for scripts.
    pub id: &'static str,
    /// Group of checks that it is shown in.
    pub group: &'static str,
    /// Title for users.
    pub title: &'static str,
    look: fn(&Scene, &S) -> Finding,
}

/// A check's names and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Name for scripts, as in [`Check`].
    pub id: &'static str,
    /// Group, as in [`Check`].
    pub group: &'static str,
    /// Title for users, as in [`Check`].
    pub title: &'static str,
    /// The result.
    pub finding: Finding,
}

fn ask<S: ?Sized>(
    checks: impl IntoIterator<Item = Check<S>>,
    scene: &Scene,
    of: &S,
) -> Vec<Answer> {
    let answer = |check: Check<S>| {
        let Check { id, group, title, look } = check;
        Answer { id, group, title, finding: look(scene, of) }
    };
    checks.into_iter().map(answer).collect()
}

/// Runs all checks of the machine.
#[must_use]
pub fn machine(scene: &Scene) -> Vec<Answer> {
    let checks = module::checks()
        .into_iter()
        .chain(damon::checks())
        .chain(bits::checks())
        .chain(sampling::checks())
        .chain(kernel::checks())
        .chain(placement::checks())
        .chain(reclaim::checks())
        .chain(control::checks());
    ask(checks, scene, &())
}

/// Runs all checks of one process.
#[must_use]
pub fn process(scene: &Scene, pid: u32) -> Vec<Answer> {
    ask(process::checks(), scene, &pid)
}

/// Runs all checks of the cgroup with this directory.
#[must_use]
pub fn cgroup(scene: &Scene, directory: &str) -> Vec<Answer> {
    ask(cgroup::checks(), scene, directory)
}

/// A recording method and the checks that it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Title for users.
    pub title: &'static str,
    /// Ids of the checks that have to pass.
    pub needs: &'static [&'static str],
}

/// All recording methods.
pub const WAYS: [Way; 2] = [
    Way {
        title: "kernel module (instruments telescope, damon, scan)",
        needs: &["module", "module-levels", "capabilities"],
    },
    Way {
        title: "the kernel's DAMON (instrument kernel-damon)",
        needs: &["damon-sysfs", "damon-vaddr", "damon-tracepoint", "capabilities"],
    },
];

impl Way {
    /// The first required check that did not pass.
    #[must_use]
    pub fn lacks<'a>(&self, answers: &'a [Answer]) -> Option<&'a Answer> {
        let unmet =
            |id: &&str| answers.iter().find(|answer| answer.id == *id && !answer.finding.usable());
        self.needs.iter().find_map(unmet)
    }
}

#[cfg(test)]
mod tests {
    use super::scene::tests::Tree;
    use super::*;

    #[test]
    fn ids_are_unique_and_ways_name_existing_checks() {
        let tree = Tree::new(&[]);
        let mut answers = machine(&tree.scene());
        answers.extend(process(&tree.scene(), 1));
        answers.extend(cgroup(&tree.scene(), "/sys/fs/cgroup/app"));
        let mut ids: Vec<_> = answers.iter().map(|answer| answer.id).collect();
        for id in WAYS.iter().flat_map(|way| way.needs) {
            assert!(ids.contains(id), "{id}");
        }
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }

    // An empty root is a machine without any feature: no check panics, and each gives a reason.
    #[test]
    fn a_bare_machine_gets_a_cause_and_remedy_for_each_check() {
        let tree = Tree::new(&[]);
        for answer in machine(&tree.scene()) {
            assert!(!answer.finding.found.is_empty(), "{}", answer.id);
            let is_missing = answer.finding.verdict == Verdict::Missing;
            assert!(!is_missing || !answer.finding.remedy.is_empty(), "{}: no remedy", answer.id);
        }
    }

    #[test]
    fn a_way_lacks_the_first_need_that_is_not_met() {
        let answer = |id, finding| Answer { id, group: "", title: "", finding };
        let answers = [
            answer("a", Finding::limited("", "")),
            answer("b", Finding::missing("", "x")),
            answer("c", Finding::forbidden("", "y")),
        ];
        let lacks = |needs| Way { title: "", needs }.lacks(&answers).map(|answer| answer.id);
        assert_eq!(lacks(&["a"]), None);
        assert_eq!(lacks(&["a", "c", "b"]), Some("c"));
    }
}
