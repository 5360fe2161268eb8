//! What a run came to, in figures with units.

use std::time::Duration;

use serde::Serialize;
use tierscope_core::drive::Ended;
use tierscope_sim::exact::{Account, Latency};
use tierscope_sim::experiment::Experiment;

use super::run::Ran;

/// An experiment and its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The experiment.
    pub experiment: String,
    /// What it is about.
    pub about: String,
    /// Where its numbers come from.
    pub source: String,
    /// `exact` or `density`.
    pub mode: &'static str,
    /// The hardware that is simulated.
    pub hardware: String,
    /// Bytes that the processes map.
    pub mapped_bytes: u64,
    /// Seed of all draws.
    pub seed: u64,
    /// The one that nobody watched first, then in the order of the instruments.
    pub runs: Vec<Run>,
}

/// One run. All times but `wall_seconds` are simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Who watched; none for the run that the slowdown is told from.
    pub instrument: Option<String>,
    /// Where it was recorded.
    pub recording: Option<String>,
    /// `deadline`, `stopped` or `target-gone`.
    pub ended: &'static str,
    /// Simulated seconds.
    pub seconds: f64,
    /// Windows of the instrument.
    pub windows: u64,
    /// CPU time of the profiler over the time, 1 is one CPU.
    pub profiler_cpu: f64,
    /// How many times longer the same accesses took than with nobody watching.
    pub slowdown: Option<f64>,
    /// Time that the simulation took.
    pub wall_seconds: f64,
    /// What the exact machine counted.
    pub account: Option<Figures>,
}

/// What an exact machine counted, over all cores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Loads and stores.
    pub accesses: u64,
    /// The same, a second.
    pub accesses_per_second: f64,
    /// Accesses that the first-level TLB had no translation for.
    pub first_tlb_misses: u64,
    /// Accesses that no TLB had a translation for: page walks.
    pub second_tlb_misses: u64,
    /// Entries that walks read.
    pub walk_reads: u64,
    /// Of these, those that went to memory.
    pub walk_reads_from_memory: u64,
    /// Accesses that went beyond a core's own caches and found their line in the last-level cache.
    pub llc_hits: u64,
    /// Accesses that the last-level cache did not have.
    pub llc_misses: u64,
    /// Of these, the share that the first tier served.
    pub fast_tier_share: Option<f64>,
    /// First touches of pages of 4 KiB, 2 MiB and 1 GiB.
    pub page_faults: [u64; 3],
    /// Hint faults.
    pub hint_faults: u64,
    /// Interrupts by TLB shootdowns.
    pub shootdowns: u64,
    /// What each process completed, in its own unit.
    pub processes: Vec<Completed>,
    /// By tier, the fastest first.
    pub tiers: Vec<TierFigures>,
    /// CPU seconds of the target, its stalls included.
    pub target_seconds: f64,
    /// CPU seconds of telemetry on the profiler's own account.
    pub telemetry_seconds: f64,
    /// CPU seconds that telemetry took from the target's cores.
    pub interrupt_seconds: f64,
    /// CPU seconds that policies said they spent.
    pub policy_seconds: f64,
    /// CPU seconds of the mover.
    pub mover_seconds: f64,
    /// Bytes of page tables.
    pub table_bytes: u64,
    /// Tables that found the uncached region full.
    pub uncached_overflows: u64,
    /// Processes that were killed: out of memory, or out of bounds.
    pub killed: u64,
}

/// What a process completed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Completed {
    /// Its name.
    pub name: String,
    /// What it is counted in, in the plural.
    pub unit: &'static str,
    /// How many.
    pub operations: u64,
    /// How long they took, of a program that marks their ends.
    pub latency: Option<LatencyFigures>,
}

/// How long a process's operations took, in simulated ns: percentiles by nearest rank, too long by a
/// 256th at most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyFigures {
    /// Operations whose accesses were all carried out.
    pub operations: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 95th percentile.
    pub p95_ns: u64,
    /// The 99th.
    pub p99_ns: u64,
    /// The 99.9th.
    pub p999_ns: u64,
    /// The longest.
    pub most_ns: u64,
}

impl From<Latency> for LatencyFigures {
    fn from(latency: Latency) -> Self {
        Self {
            operations: latency.operations,
            p50_ns: latency.p50,
            p95_ns: latency.p95,
            p99_ns: latency.p99,
            p999_ns: latency.p999,
            most_ns: latency.most,
        }
    }
}

/// What a tier did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierFigures {
    /// Its name.
    pub name: String,
    /// Demand accesses that it served.
    pub served: u64,
    /// Bytes read, prefetches and page walks included.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Mean time of a read, waits for others included; none if there was no read.
    pub read_ns: Option<f64>,
    /// The same of writes.
    pub write_ns: Option<f64>,
}

impl Figures {
    fn of(account: &Account, experiment: &Experiment, seconds: f64) -> Self {
        let counts = &account.counts;
        let misses = counts.llc_misses();
        let tiers = experiment.setup.hardware.tiers.iter().enumerate().map(|(index, tier)| {
            let [read, written] = [account.lines_read[index], account.lines_written[index]];
            let [read_wait, write_wait] = account.mean_waits.map(|waits| waits[index]);
            let mean = |lines: u64, idle: u32, wait: Duration| {
                (lines > 0).then(|| f64::from(idle) + wait.as_secs_f64() * 1e9)
            };
            TierFigures {
                name: tier.name.clone(),
                served: counts.served[index],
                read_bytes: read * 64,
                written_bytes: written * 64,
                read_ns: mean(read, tier.read_ns, read_wait),
                write_ns: mean(written, tier.write_ns, write_wait),
            }
        });
        let spent = &account.spent;
        Self {
            accesses: counts.accesses,
            accesses_per_second: counts.accesses as f64 / seconds.max(1e-9),
            first_tlb_misses: counts.second_tlb_hits + counts.walks,
            second_tlb_misses: counts.walks,
            walk_reads: counts.walk_reads,
            walk_reads_from_memory: counts.walk_misses,
            llc_hits: counts.llc_hits,
            llc_misses: misses,
            fast_tier_share: (misses > 0).then(|| counts.served[0] as f64 / misses as f64),
            page_faults: counts.first_touches,
            hint_faults: counts.hint_faults,
            shootdowns: counts.shootdowns,
            processes: account
                .done
                .iter()
                .map(|done| Completed {
                    name: done.name.clone(),
                    unit: done.unit,
                    operations: done.operations,
                    latency: done.latency.map(LatencyFigures::from),
                })
                .collect(),
            tiers: tiers.collect(),
            target_seconds: spent.target.as_secs_f64(),
            telemetry_seconds: spent.telemetry.as_secs_f64(),
            interrupt_seconds: spent.interrupts.as_secs_f64(),
            policy_seconds: spent.policy.as_secs_f64(),
            mover_seconds: spent.mover.as_secs_f64(),
            table_bytes: account.table_bytes,
            uncached_overflows: account.uncached_overflows,
            killed: account.killed,
        }
    }
}

/// The runs side by side.
pub(super) fn report(experiment: &Experiment, ran: Vec<Ran>) -> Report {
    let alone = ran.iter().find(|ran| ran.watcher.is_none()).and_then(rate);
    let runs = ran.iter().map(|ran| run(experiment, ran, alone));
    Report {
        experiment: experiment.name.clone(),
        about: experiment.about.clone(),
        source: experiment.source.clone(),
        mode: experiment.mode.name(),
        hardware: experiment.setup.hardware.name.clone(),
        mapped_bytes: experiment.bytes(),
        seed: experiment.seed,
        runs: runs.collect(),
    }
}

/// Accesses a second.
fn rate(ran: &Ran) -> Option<f64> {
    let accesses = ran.account.as_ref()?.counts.accesses as f64;
    (accesses > 0.0).then(|| accesses / ran.time.as_secs_f64().max(1e-9))
}

fn run(experiment: &Experiment, ran: &Ran, alone: Option<f64>) -> Run {
    let seconds = ran.time.as_secs_f64();
    let slowdown = ran.watcher.as_ref().and(alone).zip(rate(ran)).map(|(alone, own)| alone / own);
    Run {
        instrument: ran.watcher.clone(),
        recording: ran.recording.as_ref().map(|dir| dir.display().to_string()),
        ended: match ran.ended {
            Ended::Deadline => "deadline",
            Ended::Stopped => "stopped",
            Ended::TargetGone => "target-gone",
        },
        seconds,
        windows: ran.windows,
        profiler_cpu: ran.cpu.profiler.as_secs_f64() / seconds.max(1e-9),
        slowdown,
        wall_seconds: ran.wall.as_secs_f64(),
        account: ran.account.as_ref().map(|account| Figures::of(account, experiment, seconds)),
    }
}
