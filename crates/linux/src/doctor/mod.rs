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
use tierscope_core::{Error, ErrorKind, Missing, Result};

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

fn checks() -> impl Iterator<Item = Check<()>> {
    module::checks()
        .into_iter()
        .chain(damon::checks())
        .chain(bits::checks())
        .chain(sampling::checks())
        .chain(kernel::checks())
        .chain(placement::checks())
        .chain(reclaim::checks())
        .chain(control::checks())
}

/// Runs all checks of the machine.
#[must_use]
pub fn machine(scene: &Scene) -> Vec<Answer> {
    ask(checks(), scene, &())
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
    /// The instrument that takes it by default.
    pub instrument: &'static str,
    /// Title for users.
    pub title: &'static str,
    /// Ids of the checks that have to pass.
    pub needs: &'static [&'static str],
    /// What it misses that the first way sees; empty for the first.
    pub misses: &'static str,
}

/// All recording methods, the best one first.
pub const WAYS: [Way; 3] = [
    Way {
        instrument: "rates",
        title: "kernel module (instruments rates, telescope, damon, scan)",
        needs: &["module", "module-levels", "capabilities"],
        misses: "",
    },
    Way {
        instrument: "pebs",
        title: "samples of the processor (instrument pebs)",
        needs: &["precise-samples", "perf-access"],
        misses: "memory that is accessed seldom has no samples and looks cold",
    },
    Way {
        instrument: "kernel-damon",
        title: "the kernel's DAMON (instrument kernel-damon)",
        needs: &["damon-sysfs", "damon-vaddr", "damon-tracepoint", "capabilities"],
        misses: "it reports regions, of which it looks at one page each, and misses small hot areas \
                 in large memory",
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

/// Way to record that a machine offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Best {
    /// The best one that is open.
    pub way: Way,
    /// Variant of its instrument, if that is not the first one: the samples of two minutes, since
    /// those of a second are too few for large memory; intervals that the kernel tunes.
    pub variant: Option<&'static str>,
    /// Why a better one is not: the check that does not pass; `None` for the first way.
    pub instead: Option<Answer>,
}

/// The best way to record.
///
/// # Errors
/// [`ErrorKind::Missing`] or [`ErrorKind::Permission`] if none is open, with the obstacle of each.
pub fn best(scene: &Scene, answers: &[Answer]) -> Result<Best> {
    let obstacles: Vec<Option<&Answer>> = WAYS.iter().map(|way| way.lacks(answers)).collect();
    if let Some(open) = obstacles.iter().position(Option::is_none) {
        let first = obstacles[0].filter(|_| open > 0);
        let variant = match WAYS[open].instrument {
            "pebs" => Some("patient"),
            "kernel-damon" if kernel::damon_tunes(scene) => Some("tuned"),
            _ => None,
        };
        return Ok(Best { way: WAYS[open], variant, instead: first.cloned() });
    }
    let obstacles: Vec<&Answer> = obstacles.into_iter().flatten().collect();
    let forbidden = obstacles.iter().any(|answer| answer.finding.verdict == Verdict::Forbidden);
    let kind = if forbidden { ErrorKind::Permission } else { ErrorKind::Missing };
    let cause = |answer: &&Answer| format!("{}: {}", answer.title, answer.finding.found);
    let causes: Vec<String> = obstacles.iter().map(cause).collect();
    Err(Error::new(kind, "recording cannot work here")
        .cause(causes.join(" | "))
        .remedy(obstacles[0].finding.remedy.clone()))
}

/// The best way to record on this machine: runs the checks that the ways depend on.
///
/// # Errors
/// As [`best`].
pub fn best_way(scene: &Scene) -> Result<Best> {
    let checks = checks().filter(|check| WAYS.iter().any(|way| way.needs.contains(&check.id)));
    best(scene, &ask(checks, scene, &()))
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
    fn the_best_way_that_is_open_is_taken() {
        let answer = |id, is_open: bool| {
            let missing = || Finding::missing(format!("no {id}"), format!("get {id}"));
            let finding = if is_open { Finding::present("") } else { missing() };
            Answer { id, group: "", title: id, finding }
        };
        let best_with = |open: &[usize]| {
            let of_way = |(at, way): (usize, &Way)| {
                let is_open = open.contains(&at);
                way.needs[..1].iter().map(move |id| answer(*id, is_open)).collect::<Vec<_>>()
            };
            let release = ("/proc/sys/kernel/osrelease", "6.15.1\n");
            let tree = Tree::new(&[release]);
            best(&tree.scene(), &WAYS.iter().enumerate().flat_map(of_way).collect::<Vec<_>>())
        };
        let taken = |open| {
            let best = best_with(open).unwrap();
            (best.way.instrument, best.variant, best.instead.map(|answer| answer.id))
        };
        assert_eq!(taken(&[0, 1, 2]), ("rates", None, None));
        assert_eq!(taken(&[1, 2]), ("pebs", Some("patient"), Some("module")));
        assert_eq!(taken(&[2]), ("kernel-damon", Some("tuned"), Some("module")));
        assert_eq!(
            best_with(&[]).unwrap_err().to_string(),
            "recording cannot work here: module: no module | precise-samples: no precise-samples \
             | damon-sysfs: no damon-sysfs; get module"
        );
    }

    #[test]
    fn a_way_lacks_the_first_need_that_is_not_met() {
        let answer = |id, finding| Answer { id, group: "", title: "", finding };
        let answers = [
            answer("a", Finding::limited("", "")),
            answer("b", Finding::missing("", "x")),
            answer("c", Finding::forbidden("", "y")),
        ];
        let lacks = |needs| Way { needs, ..WAYS[0] }.lacks(&answers).map(|answer| answer.id);
        assert_eq!(lacks(&["a"]), None);
        assert_eq!(lacks(&["a", "c", "b"]), Some("c"));
    }
}
