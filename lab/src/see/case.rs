//! The cases, and the bars that issue and papers set for them.

/// Our own instrument.
pub(super) const OURS: &str = "rates:bayes";

/// Everybody, in turn. `damon:tuned` is the auto-tuned DAMON on a kernel whose own cannot tune.
const EVERYBODY: &str = "rates:bayes telescope:bounded telescope:flexible damon:fixed \
     damon:tuned scan:plain kernel-damon:fixed kernel-damon:wide kernel-damon:tuned";

/// Precision and recall to reach, and in how many seconds from attach or from a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    pub(super) share: f64,
    pub(super) seconds: f64,
}

/// A boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) workload: &'static str,
    /// Of the machine: page tables take 2 GiB a TiB.
    pub(super) memory_mb: u64,
    /// Of each instrument.
    pub(super) seconds: u32,
    /// Seconds for all phases once; 0 without phases.
    pub(super) pass: u32,
    instruments: &'static str,
    /// What our own instrument, `rates`, is to reach.
    pub(super) ours: Option<Reach>,
    /// What telescope bounded and flexible are to reach: the article's.
    pub(super) article: Option<Reach>,
    /// The profiler CPU of `rates` over that of the kernel's DAMON at its default settings.
    pub(super) cpu_ratio: Option<f64>,
    /// Most memory of `rates` and of a telescope, in MB.
    pub(super) memory_bar: Option<f64>,
    /// Pairs for the slowdown by `rates`, of [`super::rows::TURNS`] slots each with and as many without.
    pub(super) pairs: u32,
    /// Seconds between two looks at the recorder's memory.
    pub(super) look: u32,
    /// Microseconds between two flushes by the lab's flusher, for all; 0: an instrument's own alone.
    pub(super) flush_us: u32,
    /// What instruments that keep to a budget may take of one CPU.
    pub(super) cpu: &'static str,
}

const PLAIN: Case = Case {
    name: "",
    workload: "",
    memory_mb: 1536,
    seconds: 20,
    pass: 0,
    instruments: EVERYBODY,
    ours: None,
    article: None,
    cpu_ratio: Some(2.0),
    memory_bar: None,
    pairs: 0,
    look: 1,
    flush_us: 5000,
    cpu: "1%",
};

/// Cold memory is touched too, and no flusher but the instrument's own: as a user gets the tools; at no more CPU than
/// the kernel's DAMON takes here, 11 to 12 %.
const NOISY: Case = Case {
    memory_mb: TERABYTE_MB,
    seconds: 30,
    instruments: "rates:bayes kernel-damon:fixed",
    ours: Some(Reach { share: 0.9, seconds: 10.0 }),
    cpu_ratio: Some(1.0),
    flush_us: 0,
    cpu: "8%",
    ..PLAIN
};

const TERABYTE_MB: u64 = 3584;
const FIVE_TERABYTES_MB: u64 = 11_776;
const WITHIN_A_SECOND: Option<Reach> = Some(Reach { share: 0.95, seconds: 1.0 });
const THE_ARTICLES: Option<Reach> = Some(Reach { share: 0.9, seconds: 3.0 });

/// Small ones first.
pub(super) const CASES: &[Case] = &[
    Case { name: "64mb-of-1gb", workload: "contiguous:space=1GiB,hot=64MiB,at=512MiB", ..PLAIN },
    Case { name: "1gb-of-8gb", workload: "contiguous:space=8GiB,hot=1GiB,at=3GiB", ..PLAIN },
    Case {
        name: "contiguous-1tb",
        workload: "contiguous:space=1TiB,hot=10GiB,at=512337MiB",
        memory_mb: TERABYTE_MB,
        ours: WITHIN_A_SECOND,
        article: THE_ARTICLES,
        cpu_ratio: Some(1.0),
        pairs: 24,
        ..PLAIN
    },
    Case {
        name: "needle-5mb-1tb",
        workload: "needle:space=1TiB,hot=5MiB",
        memory_mb: TERABYTE_MB,
        ours: Some(Reach { share: 0.9, seconds: 2.0 }),
        ..PLAIN
    },
    Case {
        name: "needle-4kb-1tb",
        workload: "needle:space=1TiB,hot=4KiB",
        memory_mb: TERABYTE_MB,
        ..PLAIN
    },
    Case {
        name: "scattered-1tb",
        workload: "scattered:space=1TiB,ranges=10000,range=2MiB",
        memory_mb: TERABYTE_MB,
        seconds: 30,
        ours: Some(Reach { share: 0.9, seconds: 10.0 }),
        ..PLAIN
    },
    Case {
        name: "stairs-5tb",
        workload: "stairs:space=5TiB,hot=10GiB,steps=5,every=4s",
        memory_mb: FIVE_TERABYTES_MB,
        pass: 20,
        ours: WITHIN_A_SECOND,
        cpu_ratio: Some(1.0),
        memory_bar: Some(100.0),
        ..PLAIN
    },
    Case {
        name: "contiguous-5tb",
        workload: "contiguous:space=5TiB,hot=10GiB,at=2560337MiB",
        memory_mb: FIVE_TERABYTES_MB,
        ours: WITHIN_A_SECOND,
        article: THE_ARTICLES,
        cpu_ratio: Some(1.0),
        memory_bar: Some(100.0),
        ..PLAIN
    },
    Case {
        name: "noisy-10-1tb",
        workload: "contiguous:space=1TiB,hot=10GiB,at=512337MiB,share=0.9",
        ..NOISY
    },
    Case {
        name: "noisy-20-1tb",
        workload: "contiguous:space=1TiB,hot=10GiB,at=512337MiB,share=0.8,hot_share=0.8",
        ..NOISY
    },
    Case {
        name: "hour-5tb",
        workload: "contiguous:space=5TiB,hot=10GiB,at=2560337MiB",
        memory_mb: FIVE_TERABYTES_MB,
        seconds: 3600,
        instruments: OURS,
        cpu_ratio: None,
        memory_bar: Some(100.0),
        look: 60,
        ..PLAIN
    },
];

impl Case {
    /// `NAME:VARIANT` of each.
    pub(super) fn instruments(&self) -> impl Iterator<Item = &'static str> {
        self.instruments.split_whitespace()
    }

    /// A whole name means that case alone; no name means all.
    pub(super) fn is_chosen(&self, only: &str) -> bool {
        match CASES.iter().any(|case| case.name == only) {
            true => self.name == only,
            false => self.name.contains(only),
        }
    }

    /// What an instrument is to reach here.
    pub(super) fn reach(&self, instrument: &str) -> Option<Reach> {
        match instrument {
            OURS => self.ours,
            "telescope:bounded" | "telescope:flexible" => self.article,
            _ => None,
        }
    }

    /// Whether truth by pages is asked for: it takes all accesses once more, and hours where they are scattered.
    pub(super) fn has_page_truth(&self) -> bool {
        !self.is_long() && self.flush_us != 0
    }

    /// Whether memory must stay flat: an hour says it.
    pub(super) fn is_long(&self) -> bool {
        self.seconds >= 3600
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_name_chooses_several_a_whole_one_alone() {
        let chosen = |only| CASES.iter().filter(|case| case.is_chosen(only)).count();
        assert_eq!(chosen(""), CASES.len());
        assert_eq!(chosen("contiguous-1tb"), 1);
        assert_eq!(chosen("needle"), 2);
        assert_eq!(chosen("nosuch"), 0);
    }

    #[test]
    fn bars_are_the_issues() {
        let case = |name| CASES.iter().find(|case| case.name == name).unwrap();
        let ours = case("scattered-1tb").reach(OURS).unwrap();
        assert_eq!((ours.share, ours.seconds), (0.9, 10.0));
        assert!(case("contiguous-5tb").reach("kernel-damon:fixed").is_none());
        assert_eq!(case("stairs-5tb").cpu_ratio, Some(1.0));
    }
}
