//! The simulated rows and their thresholds. Each is a ready-made scenario of `tierscope
//! bench accuracy` with another workload: no TLB flusher, and page tables in the state that earlier
//! activity left; processes of some scenarios are simulated access by access.

use crate::bench::rows::Bar;

/// Requirement for a scenario's results.
#[derive(Debug, Clone, Copy)]
pub(super) enum Requirement {
    /// Precision and recall reach the first value within this many seconds, after attach and after
    /// each change.
    Reach(f64, f64),
    /// Precision and recall stay above the first value in every window after this many seconds.
    Held(f64, f64),
    /// The named figure meets the threshold after this many seconds.
    Figure(&'static str, f64, Bar),
    /// After this many seconds at least this share of the hot bytes is found or reported as
    /// unknown.
    FoundOrUnknown(f64, f64),
}

/// A scenario and its requirements.
#[derive(Debug, Clone)]
pub(super) struct Simulated {
    /// Name, with which the names of its rows begin.
    pub(super) name: String,
    /// Name of a ready-made scenario.
    pub(super) file: &'static str,
    /// Changes to the scenario, as `key=value`.
    pub(super) set: Vec<String>,
    /// Simulated duration in seconds.
    pub(super) seconds: u32,
    pub(super) requirements: Vec<Requirement>,
    /// Whether the workload declares a hot set: then bounds and widths have thresholds as well.
    pub(super) declared: bool,
    /// Whether the unknown bytes have a threshold: only with 1 TiB.
    pub(super) known: bool,
    /// Maximum profiler CPU in per cent of one CPU; None for instruments without a budget.
    pub(super) cpu: Option<f64>,
    /// Name of the contender that is judged.
    pub(super) contender: &'static str,
    /// Time between two flushes of all TLBs by the lab's flusher; None: only the instrument's own
    /// flushes.
    pub(super) flush: Option<&'static str>,
}

/// Name of our instrument, `rates`, as a contender.
const OURS: &str = "rates";

/// Seconds at which figures are computed, in addition to the end of the run.
pub(super) const AT: [f64; 4] = [4.0, 8.0, 10.0, 12.0];

impl Simulated {
    fn noise(name: &str, workload: &str, seconds: u32, requirements: &[Requirement]) -> Self {
        Self {
            name: format!("noise {name}"),
            file: "noise",
            set: vec![format!("process.0.workload={workload}")],
            seconds,
            requirements: requirements.to_vec(),
            declared: true,
            known: true,
            cpu: Some(1.0),
            contender: OURS,
            flush: None,
        }
    }

    fn graded(name: &str, workload: &str, requirements: &[Requirement]) -> Self {
        Self { declared: false, ..Self::noise(name, workload, 12, requirements) }
    }

    /// Seconds after which intervals and unknown bytes are judged: 10, or the end of a shorter run.
    pub(super) fn judged_at(&self) -> f64 {
        f64::from(self.seconds).min(10.0)
    }
}

/// Settings for a share of accesses that follow the pattern, and the share of the hot ranges: the
/// other accesses are spread over all memory, which is not hot.
fn mixed(background: u32) -> String {
    format!("share={},hot-share=0.4", f64::from(100 - background) / 100.0)
}

/// All simulated scenarios, the quick ones of a kind first.
pub(super) fn all() -> Vec<Simulated> {
    let cases = [
        terabyte(),
        larger(),
        rates(),
        busy(),
        moving_and_small(),
        exact(),
        graded(),
        odd(),
        peers(),
    ];
    cases.concat()
}

fn terabyte() -> Vec<Simulated> {
    let case = |background: u32, requirements: &[Requirement]| {
        let workload = format!(
            "contiguous:space=1TiB,hot=10GiB,at=307567MiB,{},rate=3000000",
            mixed(background)
        );
        Simulated::noise(&format!("1 TiB, 10 GiB hot, {background} %"), &workload, 60, requirements)
    };
    let usual = [Requirement::Reach(0.95, 4.0), Requirement::Held(0.95, 4.0)];
    let mut cases: Vec<Simulated> = [0, 1, 2, 5, 10, 20].map(|b| case(b, &usual)).into();
    cases.push(case(50, &[Requirement::Reach(0.9, 8.0)]));
    cases
}

fn larger() -> Vec<Simulated> {
    let five = |background: u32, requirement| {
        let workload = format!(
            "contiguous:space=5TiB,hot=10GiB,at=1234567MiB,{},rate=3000000",
            mixed(background)
        );
        let name = format!("5 TiB, 10 GiB hot, {background} %");
        Simulated { known: false, ..Simulated::noise(&name, &workload, 20, &[requirement]) }
    };
    let scattered = |background: u32| {
        let workload = format!(
            "scattered:space=1TiB,ranges=10000,range=2MiB,{},rate=3000000",
            mixed(background)
        );
        let name = format!("1 TiB, 10,000 x 2 MiB hot, {background} %");
        Simulated::noise(&name, &workload, 20, &[Requirement::Reach(0.9, 12.0)])
    };
    let petabyte = Simulated {
        file: "noise-1pb",
        set: Vec::new(),
        known: false,
        ..Simulated::noise(
            "1 PiB, 1,000 x 1 GiB hot, 10 %",
            "",
            14,
            &[Requirement::Reach(0.9, 12.0)],
        )
    };
    vec![
        five(0, Requirement::Reach(0.95, 1.0)),
        five(10, Requirement::Reach(0.9, 8.0)),
        five(20, Requirement::Reach(0.9, 8.0)),
        scattered(0),
        scattered(10),
        petabyte,
    ]
}

fn rates() -> Vec<Simulated> {
    let case = |name: &str, rate: u32, seconds| {
        let workload =
            format!("contiguous:space=1TiB,hot=10GiB,at=307567MiB,{},rate={rate}", mixed(10));
        let name = format!("1 TiB, 10 GiB hot, 10 %, {name}");
        Simulated::noise(&name, &workload, 20, &[Requirement::Reach(0.95, seconds)])
    };
    vec![case("300 k/s", 300_000, 8.0), case("10 M/s", 10_000_000, 4.0)]
}

/// Scenarios with busy CPUs, on which only `samples` of the 40 samples of a window are taken.
fn busy() -> Vec<Simulated> {
    let case = |samples: u32| {
        let workload =
            format!("contiguous:space=1TiB,hot=10GiB,at=307567MiB,{},rate=3000000", mixed(10));
        let name = format!("1 TiB, 10 GiB hot, 10 %, {samples} of 40 samples arrive");
        let requirements = [
            Requirement::Figure("false_sure", 10.0, Bar::Most(0.01)),
            Requirement::FoundOrUnknown(10.0, 0.9),
        ];
        let mut case = Simulated::noise(&name, &workload, 20, &requirements);
        case.set.push(format!("simulation.density.late={}us", 200_000 / samples));
        Simulated { known: false, declared: false, ..case }
    };
    [6, 3, 1].map(case).into()
}

fn moving_and_small() -> Vec<Simulated> {
    let drift = format!(
        "drift:space=1TiB,window=10GiB,step=211GiB,every=20s,time=100s,{},rate=3000000",
        mixed(10)
    );
    let small = |background: u32| {
        let workload =
            format!("contiguous:space=1TiB,hot=1GiB,at=300GiB,{},rate=3000000", mixed(background));
        let name = format!("1 TiB, one whole GiB hot, {background} %");
        Simulated::noise(&name, &workload, 15, &[Requirement::Reach(0.9, 10.0)])
    };
    vec![
        Simulated::noise(
            "1 TiB, 10 GiB that move every 20 s, 10 %",
            &drift,
            100,
            &[Requirement::Reach(0.9, 8.0)],
        ),
        small(0),
        small(10),
    ]
}

fn exact() -> Vec<Simulated> {
    let mut cases = Vec::new();
    for (space, hot, at) in [(16, 1, 5123), (64, 4, 20_483)] {
        for pages in ["4K", "2M"] {
            for background in [0, 2, 10] {
                let workload = format!(
                    "contiguous:space={space}GiB,hot={hot}GiB,at={at}MiB,{},rate=3000000",
                    mixed(background)
                );
                let name =
                    format!("{hot} GiB hot of {space} GiB, pages of {pages}, {background} %");
                let mut case = Simulated::noise("", &workload, 6, &[Requirement::Reach(0.95, 5.0)]);
                case.name = format!("resident {name}");
                case.file = "resident";
                case.set.push(format!("process.0.pages={pages}"));
                cases.push(case);
            }
        }
    }
    let workload =
        format!("contiguous:space=1TiB,hot=2GiB,at=307567MiB,{},rate=3000000", mixed(10));
    let mut terabyte = Simulated::noise("", &workload, 12, &[Requirement::Reach(0.9, 10.0)]);
    terabyte.name = "resident 2 GiB hot of 1 TiB, pages of 2M, 10 %".into();
    terabyte.file = "resident";
    terabyte.set.push("process.0.pages=2M".into());
    cases.push(terabyte);
    cases
}

fn graded() -> Vec<Simulated> {
    const TEN: &str = "oracle_10gib";
    const HUNDRED: &str = "oracle_100gib";
    let oracle = |ten, hundred| {
        [
            Requirement::Figure(TEN, 10.0, Bar::Least(ten)),
            Requirement::Figure(HUNDRED, 10.0, Bar::Least(hundred)),
            Requirement::Figure("ceiling_10gib", 10.0, Bar::None),
            Requirement::Figure("ceiling_100gib", 10.0, Bar::None),
        ]
    };
    let zipf = "zipf:space=1TiB,item=4KiB,theta=0.99,rate=3000000";
    vec![
        Simulated::graded(
            "stairs, 8 x 8 GiB, each half as hot, 5 %",
            "graded:space=1TiB,ranges=8,range=8GiB,ratio=0.5,share=0.95,rate=3000000",
            &[
                Requirement::Figure("order", 10.0, Bar::Least(1.0)),
                Requirement::Figure("rate_factor", 10.0, Bar::Most(1.3)),
            ],
        ),
        Simulated::graded(
            "1 TiB, Gaussian, sd 64 GiB",
            "gaussian:space=1TiB,item=4KiB,sd=16777216,rate=3000000",
            &oracle(0.95, 0.95),
        ),
        Simulated::graded("1 TiB, zipf 0.99 in address order", zipf, &oracle(0.95, 0.95)),
        Simulated::graded(
            "1 TiB, zipf 0.99 scrambled over 4 KiB pages",
            &format!("{zipf},scrambled=true"),
            &oracle(0.9, 0.85),
        ),
    ]
}

fn odd() -> Vec<Simulated> {
    let none_hot = Requirement::Figure("reported", 10.0, Bar::Most(0.0));
    let stripes = |name: &str, range: &str, apart: &str| {
        let workload = format!("striped:space=1GiB,range={range},apart={apart},rate=3000000");
        let requirements = [
            Requirement::Figure("hot_ratio", 10.0, Bar::Most(1.5)),
            Requirement::FoundOrUnknown(10.0, 0.66),
        ];
        Simulated::graded(&format!("1 GiB, {name}"), &workload, &requirements)
    };
    let uniform = "contiguous:space=5TiB,hot=5TiB,rate=3000000";
    let idle = "needle:space=1TiB,hot=4KiB,rate=1";
    vec![
        Simulated::graded(
            "5 TiB, all equally warm",
            uniform,
            &[Requirement::Figure("rate_factor", 10.0, Bar::Most(1.3)), none_hot],
        ),
        Simulated { cpu: Some(0.1), ..Simulated::graded("1 TiB, idle", idle, &[none_hot]) },
        stripes("16 KiB hot in every 2 MiB", "16KiB", "2MiB"),
        stripes("4 KiB hot in every 256 KiB", "4KiB", "256KiB"),
    ]
}

/// All contenders that read page tables, with their own flushes only and with the lab's flusher:
/// two tables (METRICS.md).
fn peers() -> Vec<Simulated> {
    let terabyte = |background: u32| {
        format!("contiguous:space=1TiB,hot=10GiB,at=307567MiB,{},rate=3000000", mixed(background))
    };
    let small = format!("contiguous:space=16GiB,hot=1GiB,at=5123MiB,{},rate=3000000", mixed(2));
    let places = [
        ("1 TiB, 10 GiB hot, 0 %", "noise", terabyte(0), "4K"),
        ("1 TiB, 10 GiB hot, 10 %", "noise", terabyte(10), "4K"),
        ("1 GiB hot of 16 GiB, pages of 4K, 2 %", "resident", small.clone(), "4K"),
        ("1 GiB hot of 16 GiB, pages of 2M, 2 %", "resident", small, "2M"),
    ];
    let requirements =
        ["precision", "recall"].map(|figure| Requirement::Figure(figure, 10.0, Bar::None));
    let mut cases = Vec::new();
    for (how, flush) in [("as shipped", None), ("with a flusher, 5 ms", Some("5ms"))] {
        for (place, file, workload, pages) in &places {
            for contender in
                [OURS, "bounded", "flexible", "damon-moderate", "damon-aggressive", "scan"]
            {
                let mut case = Simulated::graded("", workload, &requirements);
                case.name = format!("peers {how}, {place}, {contender}");
                case.file = file;
                case.set.push(format!("process.0.pages={pages}"));
                cases.push(Simulated { seconds: 10, cpu: None, contender, flush, ..case });
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_workloads::generate::from_spec;

    #[test]
    fn every_workload_can_be_made_and_no_name_begins_another() {
        let all = all();
        for case in &all {
            for set in &case.set {
                if let Some(spec) = set.strip_prefix("process.0.workload=") {
                    assert!(from_spec(spec).is_ok(), "{spec}");
                }
            }
            let alike = |other: &&Simulated| other.name.starts_with(&format!("{}:", case.name));
            assert_eq!(all.iter().filter(alike).count(), 0, "{}", case.name);
        }
        let mut names: Vec<&str> = all.iter().map(|case| &*case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }

    // The hot set has exactly 10 GiB with any share of background accesses.
    #[test]
    fn background_is_never_hot() {
        for case in terabyte() {
            let spec = case.set[0].strip_prefix("process.0.workload=").unwrap();
            let workload = from_spec(spec).unwrap();
            let hot = workload.hot(&workload.segment_at(std::time::Duration::ZERO));
            assert_eq!(hot.iter().map(|part| part.bytes).sum::<u64>(), 10 << 30, "{spec}");
        }
    }

    #[test]
    fn scenarios_have_their_thresholds() {
        let all = all();
        let case = |name: &str| all.iter().find(|case| case.name == name).unwrap();
        let held = case("noise 1 TiB, 10 GiB hot, 20 %");
        assert!(matches!(
            held.requirements[..],
            [Requirement::Reach(0.95, 4.0), Requirement::Held(0.95, 4.0)]
        ));
        assert!(matches!(
            case("noise 5 TiB, 10 GiB hot, 0 %").requirements[..],
            [Requirement::Reach(0.95, 1.0)]
        ));
        assert_eq!(case("noise 1 TiB, idle").cpu, Some(0.1));
        let unbounded: Vec<&Simulated> = all.iter().filter(|case| !case.known).collect();
        assert_eq!(unbounded.len(), 7);
    }
}
