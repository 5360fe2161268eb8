//! The cases and their thresholds; those of Telescope are from its paper.

/// Our instrument.
pub(super) const OURS: &str = "rates:bayes";

/// All instruments, in order. `damon:tuned` is the auto-tuned DAMON for a kernel whose own DAMON
/// does not tune.
const ALL_INSTRUMENTS: &str = "rates:bayes telescope:bounded telescope:flexible damon:fixed \
     damon:tuned scan:plain kernel-damon:fixed kernel-damon:wide kernel-damon:tuned";

/// Required precision and recall, and the time limit in seconds after attach or a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    pub(super) share: f64,
    pub(super) seconds: f64,
}

/// A case, which is measured in one boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) workload: &'static str,
    /// Memory of the machine in MB: page tables take 2 GiB per TiB.
    pub(super) memory_mb: u64,
    /// Seconds that each instrument runs.
    pub(super) seconds: u32,
    /// Duration of a cycle of all phases in seconds; 0 without phases.
    pub(super) pass: u32,
    instruments: &'static str,
    /// Requirement for our instrument, `rates`.
    pub(super) ours: Option<Reach>,
    /// Requirement for Telescope bounded and flexible, from the paper.
    pub(super) telescope: Option<Reach>,
    /// Maximum ratio of the profiler CPU of `rates` to that of the kernel's DAMON with default
    /// settings.
    pub(super) cpu_ratio: Option<f64>,
    /// Maximum memory of `rates` and of Telescope, in MB.
    pub(super) memory_bar: Option<f64>,
    /// Number of pairs for the slowdown by `rates`, each of [`super::rows::TURNS`] slots with the
    /// instrument and as many without.
    pub(super) pairs: u32,
    /// Seconds between two measurements of the recorder's memory.
    pub(super) look: u32,
    /// Microseconds between two TLB flushes by the lab's flusher, for all instruments; 0: only the
    /// flushes of the instruments themselves.
    pub(super) flush_us: u32,
    /// CPU budget of instruments that have one, as a share of one CPU.
    pub(super) cpu: &'static str,
}

const PLAIN: Case = Case {
    name: "",
    workload: "",
    memory_mb: 1536,
    seconds: 20,
    pass: 0,
    instruments: ALL_INSTRUMENTS,
    ours: None,
    telescope: None,
    cpu_ratio: Some(2.0),
    memory_bar: None,
    pairs: 0,
    look: 1,
    flush_us: 5000,
    cpu: "1%",
};

/// Cold memory is touched too, and TLBs are flushed only by the instruments themselves, as in real
/// use; CPU is limited to that of the kernel's DAMON here, 11 to 12 %.
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
const TELESCOPE_PAPER: Option<Reach> = Some(Reach { share: 0.9, seconds: 3.0 });

/// All cases, small ones first.
pub(super) const CASES: &[Case] = &[
    Case { name: "64mb-of-1gb", workload: "contiguous:space=1GiB,hot=64MiB,at=512MiB", ..PLAIN },
    Case { name: "1gb-of-8gb", workload: "contiguous:space=8GiB,hot=1GiB,at=3GiB", ..PLAIN },
    Case {
        name: "contiguous-1tb",
        workload: "contiguous:space=1TiB,hot=10GiB,at=512337MiB",
        memory_mb: TERABYTE_MB,
        ours: WITHIN_A_SECOND,
        telescope: TELESCOPE_PAPER,
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
        telescope: TELESCOPE_PAPER,
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
        workload: "contiguous:space=1TiB,hot=10GiB,at=512337MiB,share=0.8,hot-share=0.8",
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
    /// The case's instruments as `NAME:VARIANT`.
    pub(super) fn instruments(&self) -> impl Iterator<Item = &'static str> {
        self.instruments.split_whitespace()
    }

    /// Whether the case is chosen: an exact name chooses one case, another text all cases whose
    /// names contain it.
    pub(super) fn is_chosen(&self, only: &str) -> bool {
        match CASES.iter().any(|case| case.name == only) {
            true => self.name == only,
            false => self.name.contains(only),
        }
    }

    /// Requirement for an instrument in this case.
    pub(super) fn reach(&self, instrument: &str) -> Option<Reach> {
        match instrument {
            OURS => self.ours,
            "telescope:bounded" | "telescope:flexible" => self.telescope,
            _ => None,
        }
    }

    /// Whether page truth is compared: it processes all accesses again, which takes hours where
    /// they are scattered.
    pub(super) fn has_page_truth(&self) -> bool {
        !self.is_long() && self.flush_us != 0
    }

    /// Whether the case runs for an hour, so that the recorder's memory must not grow.
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
    fn cases_have_their_thresholds() {
        let case = |name| CASES.iter().find(|case| case.name == name).unwrap();
        let ours = case("scattered-1tb").reach(OURS).unwrap();
        assert_eq!((ours.share, ours.seconds), (0.9, 10.0));
        assert!(case("contiguous-5tb").reach("kernel-damon:fixed").is_none());
        assert_eq!(case("stairs-5tb").cpu_ratio, Some(1.0));
    }
}
