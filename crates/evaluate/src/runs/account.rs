//! Results of runs, in figures with units.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tierscope_sim::exact::{Account, Latency};
use tierscope_sim::experiment::Experiment;

use super::run::Ran;

/// Results of an experiment: one run without instrument, and one for each instrument.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: String,
    /// Description of the experiment.
    pub about: String,
    /// Source of its parameters.
    pub source: String,
    /// Simulation mode: `exact` or `density`.
    pub mode: &'static str,
    /// Name of the simulated hardware.
    pub hardware: String,
    /// Bytes that the processes map.
    pub mapped_bytes: u64,
    /// Seed of all draws.
    pub seed: u64,
    /// The baseline run without instrument, then the instruments in their order.
    pub runs: Vec<Run>,
}

/// Result of one run. All times except `wall_seconds` are simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Name of the instrument; `None` for the baseline run.
    pub instrument: Option<String>,
    /// Directory of the recording, if there is one.
    pub recording: Option<String>,
    /// Reason for the end: `deadline`, `stopped` or `target-gone`.
    pub ended: &'static str,
    /// Duration of the run, in simulated seconds.
    pub seconds: f64,
    /// Windows that the instrument delivered.
    pub windows: u64,
    /// CPU time of the profiler relative to the simulated time, 1 is one CPU.
    pub profiler_cpu: f64,
    /// Run time of the same accesses relative to the baseline run.
    pub slowdown: Option<f64>,
    /// Wall time of the simulation.
    pub wall_seconds: f64,
    /// Counts of the exact machine.
    pub account: Option<Figures>,
}

/// Counts of an exact machine, over all cores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Loads and stores.
    pub accesses: u64,
    /// Loads and stores per second.
    pub accesses_per_second: f64,
    /// Accesses that missed the first-level TLB.
    pub first_tlb_misses: u64,
    /// Accesses that missed all TLBs: page walks.
    pub second_tlb_misses: u64,
    /// Page-table entries read by walks.
    pub walk_reads: u64,
    /// Walk reads that went to memory.
    pub walk_reads_from_memory: u64,
    /// Accesses that missed the core's own caches and hit the last-level cache.
    pub llc_hits: u64,
    /// Accesses that missed the last-level cache.
    pub llc_misses: u64,
    /// Share of the last-level cache misses that the first tier served.
    pub fast_tier_share: Option<f64>,
    /// First touches of pages of 4 KiB, 2 MiB and 1 GiB.
    pub page_faults: [u64; 3],
    /// Number of hint faults.
    pub hint_faults: u64,
    /// Interrupts for TLB shootdowns.
    pub shootdowns: u64,
    /// Operations of each process, in its own unit.
    pub processes: Vec<Completed>,
    /// Figures of each tier, fastest first.
    pub tiers: Vec<TierFigures>,
    /// CPU seconds of the target, including stalls.
    pub target_seconds: f64,
    /// CPU seconds of telemetry, charged to the profiler.
    pub telemetry_seconds: f64,
    /// CPU seconds of telemetry on the target's cores.
    pub interrupt_seconds: f64,
    /// CPU seconds that policies have reported.
    pub policy_seconds: f64,
    /// CPU seconds of the mover.
    pub mover_seconds: f64,
    /// Bytes of page tables.
    pub table_bytes: u64,
    /// Tables allocated elsewhere because the uncached region was full.
    pub uncached_overflows: u64,
    /// Processes killed for lack of memory, or for an access out of bounds.
    pub killed: u64,
}

/// Operations of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Completed {
    /// Name of the process.
    pub name: String,
    /// Unit of the operations, in the plural.
    pub unit: &'static str,
    /// Number of operations.
    pub operations: u64,
    /// Latency of the operations, for a program that marks their ends.
    pub latency: Option<LatencyFigures>,
}

/// Latency of a process's operations, in simulated ns: percentiles by nearest rank, overestimated
/// by at most 1/256.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyFigures {
    /// Operations whose accesses are all complete.
    pub operations: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// The 95th percentile.
    pub p95_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The longest latency.
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

/// Traffic and latency of a tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierFigures {
    /// Name of the tier.
    pub name: String,
    /// Demand accesses served by the tier.
    pub served: u64,
    /// Bytes read, including prefetches and page walks.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Mean latency of a read, including queueing; `None` without reads.
    pub read_ns: Option<f64>,
    /// Mean latency of a write, including queueing; `None` without writes.
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

/// Makes the report of an experiment from its runs.
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

/// Accesses per second of a run.
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
        ended: ran.ended.name(),
        seconds,
        windows: ran.windows,
        profiler_cpu: ran.cpu.profiler.as_secs_f64() / seconds.max(1e-9),
        slowdown,
        wall_seconds: ran.wall.as_secs_f64(),
        account: ran.account.as_ref().map(|account| Figures::of(account, experiment, seconds)),
    }
}
