//! Placements that bound what a policy can reach: contenders of every table. No kernel can carry
//! them out; each is a choice made before the run.
//!
//! | contender | placement |
//! | --- | --- |
//! | `all-fast` | everything in the first tier, which is as large as all tiers together |
//! | `all-slow` | everything in the last tier, likewise |
//! | `interleave` | page by page over all tiers, in proportion to their bandwidths |
//! | `oracle` | the best static one, known from a run before: the pages that memory serves most |
//! | `clairvoyant` | begins like `oracle`, moves pages before they become hot, at the cost of it |
//!
//! Sources: METRICS.md (oracle, clairvoyant oracle); weights of `interleave`: mm/mempolicy.c,
//! `reduce_interleave_weights`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use tierscope_core::{Result, SpaceId, Tier};
use tierscope_hw::config::MemoryTier;
use tierscope_sim::exact::{Detail, Placement};
use tierscope_sim::experiment::{Experiment, Mode};

use super::foresight::{Foresight, foresee};

/// A bound on placements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    AllFast,
    AllSlow,
    Interleave,
    Oracle,
    Clairvoyant,
}

/// The kernel's largest sum of interleave weights, about: `weightiness` in mm/mempolicy.c.
const WEIGHTINESS: u64 = 32;
/// MiB of a tier that a bound does not use: one block, the smallest.
const EMPTY_MIB: u64 = 2;

impl Bound {
    pub(crate) const ALL: [Bound; 5] =
        [Bound::AllFast, Bound::AllSlow, Bound::Interleave, Bound::Oracle, Bound::Clairvoyant];

    /// Name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Bound::AllFast => "all-fast",
            Bound::AllSlow => "all-slow",
            Bound::Interleave => "interleave",
            Bound::Oracle => "oracle",
            Bound::Clairvoyant => "clairvoyant",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bound| bound.name() == name)
    }

    /// Whether placements differ on the experiment's machine: it has several tiers, with times of
    /// their own.
    pub(super) fn applies_to(experiment: &Experiment) -> bool {
        let is_timed = experiment.mode == Mode::Density || experiment.setup.detail == Detail::Whole;
        is_timed && !experiment.setup.memory_mode && experiment.setup.hardware.tiers.len() > 1
    }

    /// Number of runs before the one that is measured.
    pub(super) fn runs_before(self) -> u64 {
        match self {
            Bound::AllFast | Bound::AllSlow | Bound::Interleave => 0,
            Bound::Oracle => 1,
            Bound::Clairvoyant => 2,
        }
    }

    /// The experiment with this placement; for `clairvoyant` also what it knows. Simulated
    /// nanoseconds of the runs before are published in `reached`.
    ///
    /// # Errors
    /// A machine cannot be built.
    pub(super) fn prepare(
        self,
        experiment: &Experiment,
        stop: &Arc<AtomicBool>,
        reached: &AtomicU64,
    ) -> Result<(Experiment, Option<Foresight>)> {
        let tiers = &experiment.setup.hardware.tiers;
        let last = tiers.len() - 1;
        let prepared = match self {
            Bound::AllFast => placed(&grown(experiment, 0), |_| Placement::FirstTouch),
            Bound::AllSlow => {
                placed(&grown(experiment, last), |_| Placement::Bind(Tier(last as u8)))
            }
            Bound::Interleave => placed(experiment, |_| Placement::Interleave(turns(tiers))),
            Bound::Oracle | Bound::Clairvoyant => {
                let seen = foresee(experiment, stop, (reached, 0))?;
                placed(experiment, |space| Placement::Known(Arc::new(seen.best(space))))
            }
        };
        if self != Bound::Clairvoyant {
            return Ok((prepared, None));
        }
        // Times are closer to those of the measured run with this placement.
        let seen = foresee(&prepared, stop, (reached, experiment.time.as_nanos() as u64))?;
        Ok((prepared, Some(seen)))
    }
}

/// The experiment with a placement for each process, whose spaces are numbered from 0 on.
fn placed(experiment: &Experiment, placement: impl Fn(SpaceId) -> Placement) -> Experiment {
    let mut experiment = experiment.clone();
    for (number, process) in experiment.processes.iter_mut().enumerate() {
        process.placement = placement(SpaceId(number as u32));
    }
    experiment.config.placement = experiment.processes[0].placement.clone();
    experiment
}

/// The experiment on a machine one of whose tiers has the size of all together. The tiers above it
/// keep theirs, since page tables are there; those below it are empty.
fn grown(experiment: &Experiment, tier: usize) -> Experiment {
    let mut experiment = experiment.clone();
    for hardware in [&mut experiment.setup.hardware, &mut experiment.config.hardware] {
        let all = hardware.tiers.iter().map(|tier| tier.mib).sum();
        hardware.tiers[tier].mib = all;
        hardware.tiers[tier + 1..].iter_mut().for_each(|below| below.mib = EMPTY_MIB);
    }
    experiment
}

/// The tiers in turn, each as often as its share of the bandwidth, the smaller of reads and writes,
/// as the kernel weighs its nodes.
fn turns(tiers: &[MemoryTier]) -> Vec<Tier> {
    let bandwidths = tiers.iter().map(|tier| tier.read_mib_s.min(tier.write_mib_s));
    let sum = bandwidths.clone().sum::<u64>().max(1);
    let weights: Vec<u64> =
        bandwidths.map(|bandwidth| (WEIGHTINESS * bandwidth / sum).max(1)).collect();
    let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
    let turn = |(tier, weight): (usize, &u64)| {
        std::iter::repeat_n(Tier(tier as u8), (weight / divisor) as usize)
    };
    weights.iter().enumerate().flat_map(turn).collect()
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(mode: &str) -> Experiment {
        let text = format!(
            "name = \"e\"\nabout = \"a\"\nsource = \"s\"\ntime = \"40ms\"\nwindow = \"1ms\"\n\
             [machine]\nllc-slices = 1\n[[machine.tier]]\nname = \"dram\"\nsize = \"8MiB\"\n\
             [[machine.tier]]\nname = \"optane\"\nsize = \"64MiB\"\n\
             [[process]]\nworkload = \"contiguous:space=32MiB,hot=4MiB,at=16MiB\"\n\
             [simulation]\nmode = \"{mode}\""
        );
        Experiment::parse("e", &text).unwrap_or_else(|error| panic!("{error}"))
    }

    // 483,398 to 53,024 MiB/s: 32 x 0.901 = 28 and 32 x 0.099 = 3. Equal tiers: 16 and 16 are 1
    // and 1.
    #[test]
    fn interleaving_follows_the_kernels_weights() {
        let tiers = experiment("exact").setup.hardware.tiers;
        let counts =
            |turns: &[Tier]| [0, 1].map(|tier| turns.iter().filter(|turn| turn.0 == tier).count());
        assert_eq!(counts(&turns(&tiers)), [28, 3]);
        assert_eq!(turns(&[tiers[0].clone(), tiers[0].clone()]), [Tier(0), Tier(1)]);
    }

    #[test]
    fn one_tier_has_the_size_of_all() {
        let mib = |experiment: &Experiment| {
            experiment.setup.hardware.tiers.iter().map(|tier| tier.mib).collect::<Vec<_>>()
        };
        let experiment = experiment("exact");
        assert_eq!(mib(&grown(&experiment, 0)), [72, 2]);
        assert_eq!(mib(&grown(&experiment, 1)), [8, 72]);
    }

    fn rates(experiment: &Experiment) -> Vec<(String, f64, Option<f64>)> {
        let all = crate::contest::contestants(experiment, &["static".into()]).expect("they exist");
        let runner = crate::runner::Runner::new(Arc::default(), &());
        let report = crate::contest::run(experiment, &all, &[], "", &runner).expect("it runs");
        let outcomes = report.outcomes.into_iter();
        let rates: Vec<_> =
            outcomes.map(|of| (of.policy, of.operations_per_second, of.fast_tier_share)).collect();
        println!("{:?}: {rates:?}", experiment.mode);
        rates
    }

    // Machines of a table run on all cores at once; a machine alone gives the same to the last bit.
    #[test]
    fn a_contestant_among_others_does_as_alone() {
        let mut experiment = experiment("exact");
        experiment.time = std::time::Duration::from_millis(4);
        let all = crate::contest::contestants(&experiment, &["tpp".into()]).expect("they exist");
        let runner = crate::runner::Runner::new(Arc::default(), &());
        let run = |some: &[crate::contest::Contestant]| {
            let report = crate::contest::run(&experiment, some, &[], "", &runner);
            let outcomes = report.expect("it runs").outcomes.into_iter();
            outcomes.map(|of| format!("{:?}", crate::contest::Outcome { wall_seconds: 0.0, ..of }))
        };
        let alone: Vec<String> = all.chunks(1).flat_map(&run).collect();
        assert_eq!(alone.len(), 6, "{alone:?}");
        assert!(run(&all).eq(alone));
    }

    // The hot quarter lies where first touch does not put it, and fits into the fast tier.
    #[test]
    fn a_hot_range_has_its_best_placement() {
        for mode in ["exact", "density"] {
            let mut experiment = experiment(mode);
            experiment.config.rate = None;
            let rates = rates(&experiment);
            let names: Vec<&str> = rates.iter().map(|(name, ..)| name.as_str()).collect();
            let bounds = ["all-fast", "all-slow", "interleave", "oracle", "clairvoyant"];
            assert_eq!(names, [&["static"][..], &bounds].concat());
            let of = |wanted: &str| {
                let found = rates.iter().find(|(name, ..)| name == wanted).expect("it ran");
                (found.1, found.2.expect("memory was accessed"))
            };
            assert!((of("all-fast").1, of("all-slow").1) == (1.0, 0.0), "{mode}");
            assert!(of("oracle").1 > 0.99 && of("clairvoyant").1 > 0.99, "{mode}");
            assert!(of("oracle").0 > 1.2 * of("static").0, "{mode}");
            assert!(of("oracle").0 < 1.01 * of("all-fast").0, "{mode}");
            assert!(of("static").0 > 0.99 * of("all-slow").0, "{mode}");
        }
    }

    // A hot range of 4 MiB moves on every two seconds: the best static placement holds one or two
    // of four places of it.
    #[test]
    fn foresight_pays_if_the_hot_range_moves() {
        let text = "name = \"e\"\nabout = \"a\"\nsource = \"s\"\ntime = \"8s\"\n\
             [machine]\nllc-slices = 1\n[[machine.tier]]\nname = \"dram\"\nsize = \"8MiB\"\n\
             [[machine.tier]]\nname = \"optane\"\nsize = \"64MiB\"\n\
             [[process]]\nworkload = \"stairs:space=32MiB,hot=4MiB,steps=4,every=2s\"\n\
             [simulation]\nmode = \"density\"";
        let mut experiment = Experiment::parse("e", text).unwrap_or_else(|error| panic!("{error}"));
        experiment.config.rate = None;
        let rates = rates(&experiment);
        let share = |wanted: &str| {
            rates.iter().find(|(name, ..)| name == wanted).and_then(|(.., share)| *share)
        };
        assert!(share("oracle") < Some(0.75), "{rates:?}");
        assert!(share("clairvoyant") > Some(0.9), "{rates:?}");
    }
}
