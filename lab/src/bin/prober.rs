//! `prober`: probes and scans random addresses at random levels of mutators, attaches again when
//! they exec or exit, and checks that no address spaces or page tables are leaked.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Serialize;
use tierscope_core::{AccessedSet, Error, ErrorKind, Level, Range, Result, Rng, ScanMode, SpaceId};
use tierscope_lab::guest::leaks::{Held, settle};
use tierscope_lab::guest::mutations::{KINDS, Kind, Mutations};
use tierscope_lab::guest::new_tables::answers_about_tables;
use tierscope_lab::guest::outcome::outcome;
use tierscope_lab::guest::unload::{Unload, unload};
use tierscope_linux::abi;
use tierscope_linux::module::{Attachment, Module, Presence, Sharing};

/// Stress the kernel module. Exit codes: 0 all checks pass, 1 a check fails, 2 wrong use.
#[derive(Parser)]
struct Cli {
    /// Number of probes, over all threads.
    #[arg(long, default_value_t = 10_000_000)]
    probes: u64,
    /// Number of mutators at any time.
    #[arg(long, default_value_t = 3)]
    mutators: usize,
    /// Number of probing threads.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Milliseconds after which a mutator executes itself again or exits.
    #[arg(long, default_value_t = 700)]
    life_ms: u64,
    /// Probes that each kind of mutation must overlap at least.
    #[arg(long, default_value_t = 0)]
    overlaps: u64,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Name or path of the mutator program.
    #[arg(long, default_value = "mutator")]
    mutator: PathBuf,
}

/// Counts of operations, and results of the checks.
#[derive(Debug, Default, Serialize)]
struct Report {
    probes: u64,
    young: u64,
    old: u64,
    absent: u64,
    unmapped: u64,
    refused: u64,
    /// Pages of a huge-page pool, young or old.
    hugetlb: u64,
    cleared: u64,
    scans: u64,
    scanned_entries: u64,
    flushes: u64,
    interrupts: u64,
    attaches: u64,
    gone: u64,
    mutators: u64,
    /// Probes of pages that were answered about a table.
    about_tables: u64,
    /// Probes that a mutation of each kind overlapped (`guest::mutations`).
    overlaps: BTreeMap<&'static str, u64>,
    /// Mutations of each kind that had their effect; exec and exit have none.
    mutations: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    overlapped: [u64; KINDS],
    seconds: f64,
    unload_in_use: String,
    unload_after: String,
    held_before: Option<Held>,
    held_after: Option<Held>,
    failures: Vec<String>,
}

fn main() -> ExitCode {
    outcome("prober", run(&Cli::parse()), |report| &report.failures)
}

fn run(cli: &Cli) -> Result<Report> {
    let before = Held::now();
    let started = Instant::now();
    let module = Module::open()?;
    let about_tables = answers_about_tables(&module)?;
    let herd = Herd::new(cli)?;
    let mut report = probe_all(cli, &herd)?;
    report.about_tables = about_tables;
    report.seconds = started.elapsed().as_secs_f64();
    report.mutators = u64::from(herd.born.load(Ordering::Relaxed));
    report.overlaps = by_name(report.overlapped);
    report.mutations = by_name(herd.effective());
    let attachment = herd.attach(&module, 0)?;
    report.unload_in_use = answer(unload(abi::DEVICE_NAME));
    drop((attachment, module, herd));
    let after = settle(&before, Duration::from_secs(20));
    report.unload_after = answer(unload(abi::DEVICE_NAME));
    (report.held_before, report.held_after) = (Some(before), Some(after));
    report.failures = failures(cli, &report, after.is_back_at(&before));
    Ok(report)
}

fn answer(unload: Unload) -> String {
    format!("{unload:?}")
}

fn by_name(counts: [u64; KINDS]) -> BTreeMap<&'static str, u64> {
    Kind::ALL.into_iter().map(Kind::name).zip(counts).collect()
}

fn failures(cli: &Cli, report: &Report, freed: bool) -> Vec<String> {
    let checks = [
        (report.probes >= cli.probes, "fewer probes were made than asked for"),
        (report.young > 0 && report.old > 0, "no entry was seen young and none old"),
        (report.about_tables == 0, "a probe of a page was answered about a table"),
        (report.flushes > 0, "no translations were flushed"),
        (report.gone > 0, "no target ended or executed another program while watched"),
        (
            report.unload_in_use == answer(Unload::InUse),
            "the module could be unloaded while in use",
        ),
        (report.unload_after == answer(Unload::Done), "the module could not be unloaded after use"),
        (freed, "address spaces or page tables stayed behind"),
    ];
    let failed = checks.iter().filter(|(holds, _)| !holds).map(|(_, it)| (*it).to_owned());
    failed.chain(few(cli.overlaps, report)).collect()
}

/// Kinds of mutations that overlapped fewer probes than asked for, or had no effect.
fn few(least: u64, report: &Report) -> Vec<String> {
    let ends = |name| [Kind::Exec, Kind::Exit].iter().any(|kind| kind.name() == name);
    let one = |(name, count): (&&'static str, &u64)| {
        let works = ends(*name) || least == 0 || report.mutations[name] > 0;
        (*count < least || !works).then(|| {
            format!("{name}: {count} probes overlapped, {} effective", report.mutations[name])
        })
    };
    report.overlaps.iter().filter_map(one).collect()
}

/// Time to wait, after all probes, for a target that exits or executes another program.
const PATIENCE: Duration = Duration::from_secs(30);

/// Remaining work of all threads.
struct Task {
    probes_left: AtomicU64,
    gone: AtomicU64,
    started: Instant,
}

impl Task {
    fn is_done(&self) -> bool {
        let seen_all = self.gone.load(Ordering::Relaxed) > 0 || self.started.elapsed() > PATIENCE;
        self.probes_left.load(Ordering::Relaxed) == 0 && seen_all
    }

    fn made(&self, probes: u64) {
        let less = |left: u64| Some(left.saturating_sub(probes));
        // The closure never returns None, so this never fails.
        let _ = self.probes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

fn probe_all(cli: &Cli, herd: &Herd) -> Result<Report> {
    let task = Task {
        probes_left: AtomicU64::new(cli.probes),
        gone: AtomicU64::new(0),
        started: Instant::now(),
    };
    let reports = thread::scope(|scope| {
        let spawn = |i| {
            scope.spawn({
                let task = &task;
                move || Prober::new(herd, cli.seed + i)?.until_done(task)
            })
        };
        let threads: Vec<_> = (0..cli.threads).map(spawn).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(reports.into_iter().fold(Report::default(), sum))
}

fn panicked() -> Error {
    Error::new(ErrorKind::Other, "a probing thread panicked")
}

fn sum(mut all: Report, one: Report) -> Report {
    all.probes += one.probes;
    all.young += one.young;
    all.old += one.old;
    all.absent += one.absent;
    all.unmapped += one.unmapped;
    all.refused += one.refused;
    all.hugetlb += one.hugetlb;
    all.cleared += one.cleared;
    all.scans += one.scans;
    all.scanned_entries += one.scanned_entries;
    all.flushes += one.flushes;
    all.interrupts += one.interrupts;
    all.attaches += one.attaches;
    all.gone += one.gone;
    add(&mut all.overlapped, one.overlapped);
    all
}

fn add(all: &mut [u64; KINDS], more: [u64; KINDS]) {
    all.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

/// A running mutator.
struct Mutator {
    child: Child,
    mutations: Arc<Mutations>,
}

/// Running mutators; one that exits is replaced.
struct Herd {
    program: PathBuf,
    life_ms: u64,
    born: AtomicU32,
    mutators: Vec<Mutex<Mutator>>,
    /// Effective mutations of the mutators that exited.
    effective: Mutex<[u64; KINDS]>,
}

impl Herd {
    fn new(cli: &Cli) -> Result<Self> {
        let mut herd = Herd {
            program: cli.mutator.clone(),
            life_ms: cli.life_ms,
            born: AtomicU32::new(0),
            mutators: Vec::new(),
            effective: Mutex::default(),
        };
        for _ in 0..cli.mutators.max(1) {
            let mutator = herd.spawn()?;
            herd.mutators.push(Mutex::new(mutator));
        }
        Ok(herd)
    }

    fn spawn(&self) -> Result<Mutator> {
        let cannot = |e| {
            Error::new(ErrorKind::Missing, format!("cannot start {}", self.program.display()))
                .cause(e)
        };
        let number = self.born.fetch_add(1, Ordering::Relaxed);
        let mutations = Mutations::new().map_err(cannot)?;
        let (seed, life) = (u64::from(number) * 7, self.life_ms);
        let arguments = [seed, 3, life, mutations.fd() as u64].map(|n| n.to_string());
        let mut program = Command::new(&self.program);
        let child = program.args(arguments).stdin(Stdio::null()).spawn().map_err(cannot)?;
        Ok(Mutator { child, mutations: Arc::new(mutations) })
    }

    /// Pid and counters of mutator number `place`; starts a new one if it has exited.
    fn mutator(&self, place: usize) -> Result<(u32, Arc<Mutations>)> {
        let mut mutator = self.mutators[place].lock().map_err(|_| panicked())?;
        match mutator.child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) if status.success() => {
                self.count(&mutator)?;
                *mutator = self.spawn()?;
            }
            Ok(Some(status)) => {
                return Err(Error::new(ErrorKind::Other, "a mutator failed").cause(status));
            }
            Err(error) => {
                return Err(Error::new(ErrorKind::Other, "cannot wait for a mutator").cause(error));
            }
        }
        Ok((mutator.child.id(), mutator.mutations.clone()))
    }

    fn count(&self, mutator: &Mutator) -> Result<()> {
        let mut all = self.effective.lock().map_err(|_| panicked())?;
        add(&mut all, mutator.mutations.effective());
        Ok(())
    }

    /// Effective mutations of each kind, of all mutators until now.
    fn effective(&self) -> [u64; KINDS] {
        let mut all = self.effective.lock().map_or([0; KINDS], |counts| *counts);
        for mutator in self.mutators.iter().filter_map(|mutator| mutator.lock().ok()) {
            add(&mut all, mutator.mutations.effective());
        }
        all
    }

    /// Attaches to mutator number `place`, or to its successor if it exits meanwhile.
    fn attach(&self, module: &Module, place: usize) -> Result<Watched> {
        loop {
            let (pid, mutations) = self.mutator(place)?;
            match module.attach(pid) {
                Ok(attachment) => {
                    let mappings = mappings(pid);
                    return Ok(Watched {
                        pid,
                        attachment,
                        mutations,
                        mappings,
                        flushes: 0,
                        asked: 0,
                    });
                }
                Err(error) if error.kind() == ErrorKind::NoTarget => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        for mutator in self.mutators.iter_mut().filter_map(|mutator| mutator.get_mut().ok()) {
            let _ = mutator.child.kill();
            let _ = mutator.child.wait();
        }
    }
}

struct Watched {
    pid: u32,
    attachment: Attachment,
    mutations: Arc<Mutations>,
    mappings: Vec<(u64, u64)>,
    flushes: u64,
    /// Number of CPUs that the module reported as requested to flush.
    asked: u64,
}

impl Watched {
    /// Flushes the target's translations; returns whether it still exists.
    fn flush(&mut self) -> Result<bool> {
        let cpus = self.attachment.flush()?;
        self.flushes += u64::from(cpus.is_some());
        self.asked += u64::from(cpus.unwrap_or(0));
        Ok(cpus.is_some())
    }
}

fn mappings(pid: u32) -> Vec<(u64, u64)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let ranges = maps.lines().filter_map(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some((hex(start)?, hex(end)?))
    });
    // The vsyscall page is in the kernel's half of the address space.
    ranges.filter(|(_, end)| *end < 1 << 47).collect()
}

const BATCH: usize = 1000;
/// Probes of a call. A mutation is likelier to be in progress during all of a short call.
const CALLS: [usize; 4] = [25, 200, BATCH, BATCH];
/// Number of batches after which a prober reads the mappings again.
const REFRESH: u64 = 16;
/// Maximum bytes of a scan: 64 Ki entries of 4 KiB, and entries of every level.
const SCAN_MOST: u64 = 256 << 20;

struct Prober<'a> {
    herd: &'a Herd,
    module: Module,
    rng: Rng,
    report: Report,
    set: AccessedSet,
}

impl<'a> Prober<'a> {
    fn new(herd: &'a Herd, seed: u64) -> Result<Self> {
        let (report, set) = (Report::default(), AccessedSet::default());
        // Several sessions of one target at a time are a part of the test.
        let module = Module::open()?.with_sharing(Sharing::Shared);
        Ok(Prober { herd, module, rng: Rng::seeded(seed), report, set })
    }

    fn until_done(mut self, task: &Task) -> Result<Report> {
        while !task.is_done() {
            let place = self.rng.below(self.herd.mutators.len() as u64) as usize;
            let mut watched = self.herd.attach(&self.module, place)?;
            self.report.attaches += 1;
            self.stay(&mut watched, task)?;
            self.count_flushes(&mut watched)?;
        }
        Ok(self.report)
    }

    /// Observes one address space for a number of batches, or until it is gone.
    fn stay(&mut self, watched: &mut Watched, task: &Task) -> Result<()> {
        for batch in 0..4 * REFRESH {
            if batch % REFRESH == 0 {
                watched.mappings = mappings(watched.pid);
            }
            let here = self.batch(watched)?
                && (batch % 4 != 0 || self.scan(watched)?)
                && (batch % 4 != 1 || watched.flush()?);
            if !here {
                self.report.gone += 1;
                task.gone.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            task.made(BATCH as u64);
            if task.is_done() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Checks that the module counted all flushes, and no more interrupts than CPUs requested to
    /// flush.
    fn count_flushes(&mut self, watched: &mut Watched) -> Result<()> {
        let stats = watched.attachment.stats()?;
        self.report.flushes += stats.flushes;
        self.report.interrupts += stats.interrupts;
        if stats.flushes == watched.flushes && stats.interrupts <= watched.asked {
            return Ok(());
        }
        let counted = format!("{} of {}", stats.flushes, watched.flushes);
        Err(Error::new(ErrorKind::Other, "flushes are not counted right").cause(counted))
    }

    fn batch(&mut self, watched: &mut Watched) -> Result<bool> {
        let levels: Vec<Level> = watched.attachment.proven().highest_first().collect();
        let mut probes: Vec<abi::Probe> =
            (0..BATCH).map(|_| self.probe(&watched.mappings, &levels)).collect();
        let size = CALLS[self.rng.below(CALLS.len() as u64) as usize];
        for call in probes.chunks_mut(size) {
            let Watched { attachment, mutations, .. } = &mut *watched;
            let (presence, overlapped) = mutations.throughout(|| attachment.probe(call));
            if presence? == Presence::Gone {
                return Ok(false);
            }
            add(
                &mut self.report.overlapped,
                overlapped.map(|it| u64::from(it) * call.len() as u64),
            );
            call.iter().for_each(|probe| self.count(probe));
        }
        Ok(true)
    }

    fn probe(&mut self, mappings: &[(u64, u64)], levels: &[Level]) -> abi::Probe {
        let level = levels[self.rng.below(levels.len() as u64) as usize];
        let op = if self.rng.below(2) == 0 { abi::OP_TEST } else { abi::OP_TEST_AND_CLEAR };
        abi::Probe { addr: self.address(mappings), level: level.number(), op, ..Default::default() }
    }

    /// A random address: mostly in a mapping, sometimes anywhere in the lower half.
    fn address(&mut self, mappings: &[(u64, u64)]) -> u64 {
        if mappings.is_empty() || self.rng.below(16) == 0 {
            return self.rng.below(1 << 47);
        }
        let (start, end) = mappings[self.rng.below(mappings.len() as u64) as usize];
        start + self.rng.below(end - start)
    }

    fn count(&mut self, probe: &abi::Probe) {
        let report = &mut self.report;
        report.probes += 1;
        report.hugetlb += u64::from(probe.kind == abi::KIND_HUGETLB);
        report.cleared +=
            u64::from(probe.state == abi::STATE_YOUNG && probe.op == abi::OP_TEST_AND_CLEAR);
        let counter = match probe.state {
            abi::STATE_YOUNG => &mut report.young,
            abi::STATE_OLD => &mut report.old,
            abi::STATE_ABSENT => &mut report.absent,
            abi::STATE_UNMAPPED => &mut report.unmapped,
            _ => &mut report.refused,
        };
        *counter += 1;
    }

    fn scan(&mut self, watched: &mut Watched) -> Result<bool> {
        let levels: Vec<Level> = watched.attachment.proven().highest_first().collect();
        let level = levels[self.rng.below(levels.len() as u64) as usize];
        let start = self.address(&watched.mappings);
        let end = (start + 1 + self.rng.below(SCAN_MOST)).min(1 << 47);
        let bits = self.rng.below(8);
        let mode = ScanMode { clear: bits & 1 != 0, prune: bits & 2 != 0, present: bits & 4 != 0 };
        let range = level.align(&Range::new(SpaceId(0), start, end));
        let stats = watched.attachment.scan(&range, level, mode, &mut self.set)?;
        self.report.scans += 1;
        self.report.scanned_entries += stats.map_or(0, |stats| stats.visited);
        Ok(stats.is_some())
    }
}
