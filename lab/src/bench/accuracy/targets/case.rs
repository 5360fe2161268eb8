//! The cases: ordinary targets that instruments may misjudge, each with its bars.

/// What a case's recording must say.
#[derive(Debug, Clone, Copy)]
pub(super) enum Check {
    /// Hot bytes within this factor of the true ones.
    Within(f64),
    /// Hot bytes at most this factor above the true ones; the rest may be unknown.
    AtMost(f64),
    /// Most hot bytes of a target without hot memory of its own, in MiB.
    Little(f64),
    /// Least share of the hot bytes that are found or unknown.
    NotMissed(f64),
    /// Least share of the windows that keep bounds of this kind.
    Steady(f64),
    /// Cold bytes within this share of the resident bytes that are not hot.
    Idle(f64),
    /// Resident bytes within this share of the kernel's count.
    Resident(f64),
    /// Least share of the resident bytes that is in regions.
    Covered(f64),
    /// A series, its description, its true value, and the tolerance in MiB.
    Series(&'static str, &'static str, u64, f64),
    /// Each process with hot memory has a space with its process id.
    Named,
    /// Most rows of processes in the summary.
    Rows(f64),
    /// A mapping, and its least number of rows in the heatmap.
    Heatmap(&'static str, f64),
    /// A figure that the scenario measured, and its description; at least 1.
    Said(&'static str, &'static str),
}

/// A case, which is measured in one boot.
#[derive(Debug, Clone, Copy)]
pub(in crate::bench::accuracy) struct Case {
    /// Name, with the item of the review in it.
    name: &'static str,
    pub(super) scenario: &'static str,
    /// Parameters of the scenario.
    set: &'static [&'static str],
    pub(super) checks: &'static [Check],
    /// Budget of the profiler, in per cent of a CPU.
    pub(super) cpu: f64,
}

use Check::{
    AtMost, Covered, Heatmap, Idle, Little, Named, NotMissed, Resident, Rows, Said, Series, Steady,
    Within,
};

const MIB: u64 = 1 << 20;

const SHARED: Case =
    Case { name: "", scenario: "shared", set: &[], checks: ONE_OBJECT, cpu: BUDGET };
const TARGET: Case = Case { scenario: "targets", checks: FOUND, ..SHARED };

/// Of the scenarios: an emulated machine and a debug build.
const BUDGET: f64 = 20.0;

/// Whatever the number of processes, the memory is that of the object.
const ONE_OBJECT: &[Check] = &[Within(1.2), NotMissed(0.9), Named, Heatmap("/dev/shm/object", 8.0)];
const FOUND: &[Check] = &[Within(1.5), NotMissed(0.9), Named];
/// Less is hot than the entries of page tables cover: it may be unknown.
const SPARSE: &[Check] = &[AtMost(1.5), NotMissed(0.9)];

/// All cases.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "shared 1",
        set: &["processes=1"],
        checks: &[Within(1.2), NotMissed(0.9)],
        ..SHARED
    },
    // Pauses in proportion to the number: the object has as many passes a second.
    Case { name: "shared 8", set: &["processes=8"], ..SHARED },
    Case { name: "shared 32", set: &["processes=32", "pause_ms=80"], ..SHARED },
    Case { name: "shared 150", set: &["processes=150", "pause_ms=375"], ..SHARED },
    // The processes take all CPUs.
    Case { name: "shared 32 saturated", set: &["processes=32"], ..SHARED },
    Case { name: "shared 150 own parts", set: &["processes=150", "parts=own"], ..SHARED },
    Case {
        name: "shared 32 by scan",
        set: &["processes=32", "instrument=scan"],
        checks: &[AtMost(1.2), NotMissed(0.9)],
        // A scan has no budget.
        cpu: 200.0,
        ..SHARED
    },
    // 80 passes a second, by one process and by eight that nap.
    Case {
        name: "shared 1 of 80 passes",
        set: &["processes=1", "pause_ms=12"],
        checks: &[Within(1.2), NotMissed(0.9)],
        ..SHARED
    },
    Case { name: "shared 8 of 10 passes", set: &["processes=8", "pause_ms=95"], ..SHARED },
    Case {
        name: "target 2 read",
        set: &["case=read"],
        checks: &[
            Little(2.0),
            Series("page_cache_bytes", "page cache, reported", 256 * MIB, 4.0),
            Said("doctor", "lines of doctor on the page cache"),
        ],
        ..TARGET
    },
    Case { name: "target 3c threads", set: &["case=threads"], ..TARGET },
    Case { name: "target 3d churn", set: &["case=churn"], ..TARGET },
    Case {
        name: "target 3e growth",
        set: &["case=grow", "seconds=14"],
        checks: &[AtMost(1.5), NotMissed(0.9), Covered(0.9)],
        ..TARGET
    },
    Case { name: "target 4 no flusher", set: &["case=alone"], ..TARGET },
    Case {
        name: "target 4 naps",
        set: &["case=nap"],
        checks: &[Within(1.5), Steady(0.9)],
        ..TARGET
    },
    Case {
        name: "target 5a pool",
        set: &["case=pool"],
        checks: &[
            Within(1.5),
            NotMissed(0.9),
            Said("doctor", "lines of doctor on the shared pool"),
        ],
        ..TARGET
    },
    Case {
        name: "target 5c kinds",
        set: &["case=kinds"],
        checks: &[
            Within(1.5),
            NotMissed(0.9),
            Resident(0.02),
            Said("ksm_pages", "pages merged by KSM"),
        ],
        ..TARGET
    },
    Case {
        name: "target 5d swapped",
        set: &["case=swapped"],
        checks: &[
            Within(1.5),
            NotMissed(0.9),
            Idle(0.02),
            Series("swapped_bytes", "swapped, reported", 184 * MIB, 4.0),
        ],
        ..TARGET
    },
    Case {
        name: "target 5e reservation",
        set: &["case=reserved"],
        checks: &[
            Within(1.5),
            NotMissed(0.9),
            Idle(0.02),
            Series("reserved_bytes", "reserved, reported", 128 * 1024 * MIB, 4.0),
        ],
        ..TARGET
    },
    Case { name: "target 6 moved", set: &["case=moved"], ..TARGET },
    Case { name: "target 6b several", set: &["case=several"], ..TARGET },
    Case {
        name: "target 6c children",
        set: &["case=children"],
        // The process, the shell that starts the children, the memory that they share, the child of
        // the last window, and the sum of all others.
        checks: &[Within(1.5), NotMissed(0.9), Rows(5.0)],
        ..TARGET
    },
    Case { name: "target 9 sparse", set: &["case=sparse-16k"], checks: SPARSE, ..TARGET },
    Case { name: "target 9b sparse", set: &["case=sparse-4k"], checks: SPARSE, ..TARGET },
];

impl Case {
    /// Prefix of the case's rows.
    pub(super) fn title(&self) -> String {
        self.name.to_owned()
    }

    /// Parameters of the scenario: its own checks are left to the bars.
    pub(super) fn parameters(&self) -> Vec<&'static str> {
        let check = (self.scenario == "shared").then_some("check=no");
        self.set.iter().copied().chain(check).collect()
    }
}

/// The cases whose name contains `only`, or is it.
pub(in crate::bench::accuracy) fn chosen(only: &str) -> Vec<&'static Case> {
    let exact = CASES.iter().any(|case| case.name == only);
    let is_chosen = |case: &&Case| if exact { case.name == only } else { case.name.contains(only) };
    CASES.iter().filter(is_chosen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn every_case_can_be_given_to_its_scenario() {
        for case in CASES {
            let mut scenario = Scenario::load(case.scenario).unwrap();
            for set in case.parameters() {
                scenario.assign(set).unwrap();
            }
            let cpu = scenario.set["cpu"].as_str().unwrap();
            assert!(case.cpu >= BUDGET && cpu == format!("{BUDGET}%"), "{}", case.name);
        }
    }

    // The branches of the scenario's script are the cases of that scenario.
    #[test]
    fn every_branch_of_the_script_has_a_case() {
        let script = String::from_utf8(Scenario::load("targets").unwrap().job_text().unwrap());
        let script = script.unwrap();
        let (_, branches) = script.split_once("case $case in").unwrap();
        let (branches, _) = branches.split_once("\nesac").unwrap();
        let names = branches.lines().filter(|line| !line.starts_with(' '));
        let names = names.filter_map(|line| Some(line.split_once(')')?.0));
        let mut names: Vec<String> = names.map(|name| format!("case={name}")).collect();
        let cases = CASES.iter().filter(|case| case.scenario == "targets");
        let mut set: Vec<String> = cases.map(|case| case.set[0].to_owned()).collect();
        names.sort();
        set.sort();
        assert_eq!(names, set);
    }

    #[test]
    fn a_whole_name_chooses_one_case() {
        let names = |only| chosen(only).iter().map(|case| case.name).collect::<Vec<_>>();
        assert_eq!(names("shared 8"), ["shared 8"]);
        assert_eq!(names("target 9").len(), 2);
        assert_eq!(names("nosuch"), [""; 0]);
    }
}
