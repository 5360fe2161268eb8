//! Experiments as TOML: a machine, its processes, instruments and policies, and a duration. The
//! vocabulary is the same for the simulated machine, in either mode, and for the instrumented
//! virtual one; keys of simulated machines only are in tables called `simulation`.
//!
//! ```toml
//! name = "shifted"
//! about = "64 MiB hot in 1 GiB on the slow tier"
//! source = "our own"
//! time = "10s"
//! window = "200ms"              # time between snapshots; default 200ms
//! seed = 1                      # default 1
//! instruments = ["rates"]       # names as in `bench accuracy`
//! policies = ["static", "hot-region:round=1GiB@rates"]   # `sim tier`: NAME:key=value,…@INSTRUMENT
//! warm-up = "2s"                # `sim tier` measures from then on
//!
//! [[instrument]]                # or with custom settings
//! name = "fast"
//! instrument = "damon"
//! variant = "fixed"
//! sampling = "1ms"              # and update, min-regions, max-regions, samples (a second)
//!
//! [machine]
//! hardware = "xeon-gold-6238m"  # ready-made, or a file; this is the default
//! cpus = 2                      # default: one for each thread of the processes
//! levels = 4                    # of page tables; default: the hardware's
//! llc-slices = 1                # of the last-level cache; default: the hardware's
//! second-tlb = 96               # entries of the second-level TLB; default: the hardware's
//! memory-cores = 1              # cores whose bandwidth and channels it has; default: all
//! memory-mode = false           # the first tier is a cache of the second
//! flush = "5ms"                 # period of flushes of all TLBs; default `never`
//! watermark-scale-factor = 10   # vm.watermark_scale_factor
//! min-free = "64MiB"            # vm.min_free_kbytes; default: the kernel's
//!
//! [[machine.tier]]              # selects and resizes tiers of the hardware
//! name = "dram"
//! size = "2GiB"
//!
//! [telemetry]                   # devices in memory controllers, and a budget for all instruments
//! tiers = ["cxl"]               # that they see; default: all for nemo, all but the first for chmu
//! nemo = { pipelines = 8, channels = 2, banks = 64, counter = 8 }
//! chmu = { counters = 8192, hot-list = 2048, counter-width = 16 }   # and what else it supports
//! cpu = 0.005                   # share of one CPU for an instrument; default: no limit
//! state = "64KiB"               # of a device; a larger one is refused
//!
//! [[process]]
//! workload = "contiguous:space=1GiB,hot=64MiB"    # or a file, or a program, or trace:FILE
//! threads = 1
//! cpu = 0                       # of the first thread
//! pages = "4K"                  # 4K, 2M (transparent huge pages), 1G (hugetlbfs; not in density)
//! area-pages = { column = "2M" }   # other page sizes for some of its areas; not in density
//! placement = "first-touch"     # or { bind = "optane" } or { interleave = ["dram", "optane"] }
//! populate = true               # all pages are present from the beginning, old and clean
//! written = false               # all pages are present and written to: young and dirty
//! repeats = true                # its phases repeat
//! non-temporal = false          # its stores bypass the caches; always so if the workload sets it
//! simulation = { overlap = 1, uncached-tables = false, watched = [], trapped = false }
//!
//! [simulation]
//! mode = "exact"                # or "density"
//! costs = "linux"
//!
//! [simulation.exact]
//! detail = "whole"              # or "translation", "caches"
//! tick = "4ms"                  # the kernel's timer tick, or `never`; in density mode too
//! quantum = "10us"              # largest drift between core clocks
//! profiler-cpu = 1              # core that the profiler shares; default: one of its own
//! table-region = "256MiB"       # room for uncached page tables and control blocks; default: none
//!
//! [simulation.density]
//! rate = 3000000                # accesses a second where the workload sets no rate
//! visit = "2MB"                 # size of a value that is read as a whole at a random address
//! pause = "14us"                # a thread's other work for each access
//! start = "cleared"             # or "young": initial state of the entries
//! reclaimers = 8                # threads that reclaim at once; default: 1
//! late = "50ms"                 # waits end at multiples of this, as on a machine with busy CPUs
//!
//! [simulation.sampling]
//! events = ["loads", "stores"]  # and "load-misses"
//! every = 1000                  # every n-th event, instead of the rate of an instrument
//! ```
//!
//! Everything is checked before anything runs: keys, geometry, and that the processes' memory fits
//! into their tiers.

mod build;
mod file;
mod vary;

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tierscope_core::{BusObserver, Error, ErrorKind, Result, SpaceId, Target as _};
use tierscope_workloads::masim::Mode as Masim;
use tierscope_workloads::work::load;
use tierscope_workloads::{Work, Workload};

use crate::Truth;
use crate::density;
use crate::exact::{Machine, Process, Setup};

pub use file::File;
pub use vary::{Change, Uncertain};

/// Mode of simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Every single access.
    #[default]
    Exact,
    /// Densities over ranges and time.
    Density,
}

impl Mode {
    /// Description, for reports.
    #[must_use]
    pub fn how(self) -> &'static str {
        match self {
            Mode::Exact => "access by access",
            Mode::Density => "by densities",
        }
    }

    /// Name, as in a file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Exact => "exact",
            Mode::Density => "density",
        }
    }
}

/// An instrument as named in the file; whether it exists is checked later by the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Watcher {
    /// A known instrument's name, or a name for these settings.
    pub name: String,
    /// Custom settings.
    pub settings: Option<Settings>,
    /// The name's offset in the file, for [`place`].
    pub offset: usize,
}

/// An instrument's settings; `None` means the instrument's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Name of the instrument.
    pub instrument: String,
    /// The instrument's variant.
    pub variant: Option<String>,
    /// Sampling interval.
    pub sampling: Option<Duration>,
    /// Time after which mappings are read again.
    pub update: Option<Duration>,
    /// Minimum number of regions.
    pub min_regions: Option<usize>,
    /// Maximum number of regions.
    pub max_regions: Option<usize>,
    /// Share of one CPU that the instrument may take.
    pub cpu: Option<f64>,
    /// Whether the instrument may flush the target's translations; `None` allows it.
    pub may_flush: Option<bool>,
    /// Samples a second and core that it requests; 0 for none.
    pub samples: u64,
}

/// A checked experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name: one word.
    pub name: String,
    /// Description.
    pub about: String,
    /// Source of the experiment's numbers.
    pub source: String,
    /// Simulated time.
    pub time: Duration,
    /// Time between snapshots.
    pub window: Duration,
    /// Seed of all draws.
    pub seed: u64,
    /// Mode of simulation.
    pub mode: Mode,
    /// Instruments, each on a machine of its own.
    pub watchers: Vec<Watcher>,
    /// Placement policies, each on a machine of its own: the file's text and its offset, for
    /// [`Experiment::at`].
    pub policies: Vec<(String, usize)>,
    /// Time before measurements of a policy begin.
    pub warm_up: Duration,
    /// Setup of the exact machine.
    pub setup: Setup,
    /// The processes.
    pub processes: Vec<Process>,
    /// Configuration of the density machine, for the first process.
    pub config: density::Config,
    /// Sampling for instruments that use samples, without its period.
    pub sampling: crate::config::Sampling,
    /// Cores whose part of the memory bandwidth the machine has; `None` for all of the hardware.
    pub memory_cores: Option<u32>,
    /// Sampling period set by the file; overrides the rate that an instrument requests.
    pub every: Option<u64>,
    /// Telemetry devices and the budget of instruments, for the caller that makes them, with the
    /// offset in the file.
    pub telemetry: Option<(usize, toml::Table)>,
    /// Name and text of the file, for errors.
    file: (String, String),
}

/// Parser of a workload's text: [`default_workload`], or the caller's own with more workloads.
pub type ReadWorkload = fn(&str) -> Result<Work>;

/// Parses a workload with [`tierscope_workloads::work::load`], with the corrected masim.
///
/// # Errors
/// Those of `load`.
pub fn default_workload(text: &str) -> Result<Work> {
    load(text, Masim::Correct)
}

/// A result, or the offset of an error in a text and its description.
pub type Faulty<T> = std::result::Result<T, (usize, String)>;

/// Parses a description of type `T`; `name` is for errors, usually the file's.
///
/// # Errors
/// [`ErrorKind::Data`] with line and column.
pub fn read<T: for<'de> Deserialize<'de>>(name: &str, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        place(name, text, error.span().map_or(0, |span| span.start), message)
    })
}

/// Reads the text of an experiment's file.
///
/// # Errors
/// The file cannot be read.
pub fn read_file(path: &Path) -> Result<String> {
    tierscope_workloads::text_file::read(path).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read experiment {}", path.display()))
            .cause(error)
            .remedy("give a TOML file; see experiments/ for some that work")
    })
}

/// The error for an offset in a text, with line and column.
pub fn place(name: &str, text: &str, offset: usize, what: impl Display) -> Error {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
    Error::new(ErrorKind::Data, format!("{name}:{line}:{column}"))
        .cause(what)
        .remedy("see experiments/ for files that work")
}

/// Cores whose bandwidth a thread may have without a warning.
const MOST_CORES: u32 = 4;

impl Experiment {
    /// Loads a file.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid: line and column.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&path.display().to_string(), &read_file(path)?)
    }

    /// Parses TOML; `name` is for errors.
    ///
    /// # Errors
    /// The text is invalid: line and column.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        Self::part(name, text, &read(name, text)?, default_workload)
    }

    /// Builds an experiment from a file that is already parsed, or from a part of one.
    ///
    /// # Errors
    /// The keys are inconsistent: line and column.
    pub fn part(name: &str, text: &str, file: &File, workload: ReadWorkload) -> Result<Self> {
        let checked =
            file.check(workload).map_err(|(offset, what)| place(name, text, offset, what))?;
        Ok(Self { file: (name.into(), text.into()), ..checked })
    }

    /// The error for an offset in the experiment's file.
    pub fn at(&self, offset: usize, what: impl Display) -> Error {
        place(&self.file.0, &self.file.1, offset, what)
    }

    /// A copy with another seed: `shift` after its own.
    #[must_use]
    pub fn reseeded(&self, shift: u16) -> Self {
        let mut copy = self.clone();
        copy.reseed(self.seed.wrapping_add(shift.into()));
        copy
    }

    /// Replaces the seed of all draws; seeds of processes and of their graphs keep their distances.
    pub fn reseed(&mut self, seed: u64) {
        let shift = seed.wrapping_sub(self.seed);
        for process in &mut self.processes {
            process.seed = process.seed.wrapping_add(shift);
            process.work.reseed(shift);
        }
        self.seed = seed;
        self.config.seed = seed;
    }

    /// The first process's workload for the density machine; `None` if it is a program without a
    /// description.
    #[must_use]
    pub fn described(&self) -> Option<Workload> {
        self.processes[0].work.described()
    }

    /// What makes its figures doubtful, in sentences: few cores with the memory bandwidth of many,
    /// on which nothing waits for bandwidth.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let hardware = &self.setup.hardware;
        let threads = self.processes.iter().map(|process| process.threads).sum::<u32>().max(1);
        let memory = self.memory_cores.unwrap_or(hardware.cores());
        if memory <= MOST_CORES * threads {
            return Vec::new();
        }
        vec![format!(
            "{threads} threads have the memory bandwidth of {memory} cores of {}, so that none of them \
             waits for bandwidth; set memory-cores = {threads} in [machine] for their part of it",
            hardware.name
        )]
    }

    /// Whether the processes ran without an external failure.
    ///
    /// # Errors
    /// The first process's failure, such as an unreadable trace.
    pub fn ran(&self) -> Result<()> {
        let failed = self.processes.iter().find_map(|process| process.work.failed());
        failed.map_or(Ok(()), Err)
    }

    /// Bytes that its processes map.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.processes.iter().map(|process| process.work.bytes()).sum()
    }

    /// Starts the processes on a new exact machine; returns the ground truth of each process with a
    /// description.
    ///
    /// # Errors
    /// See [`Machine::start`].
    pub fn start<B: BusObserver>(&self, machine: &mut Machine<B>) -> Result<Vec<Truth>> {
        let mut spaces = Vec::new();
        for process in &self.processes {
            spaces.push(machine.start(process)?);
        }
        let mappings = machine.mappings(Duration::ZERO)?;
        let truth = |(process, space): (&Process, SpaceId)| {
            Truth::of(&process.work.described()?, space, &mappings)
        };
        Ok(self.processes.iter().zip(spaces).filter_map(truth).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Event;
    use crate::exact::{Detail, Placement};
    use tierscope_core::Tier;
    use tierscope_hw::PageSize;

    const FULL: &str = r#"
name = "full"
about = "a"
source = "b"
time = "2s"
window = "100ms"
seed = 7
instruments = ["rates"]

[[instrument]]
name = "fast"
instrument = "damon"
sampling = "1ms"
max-regions = 50

[machine]
hardware = "xeon-gold-6238m"
cpus = 4
levels = 5
flush = "5ms"
watermark-scale-factor = 100
min-free = "4MiB"

[[machine.tier]]
name = "dram"
size = "256MiB"

[[machine.tier]]
name = "optane"
size = "512MiB"

[[process]]
workload = "contiguous:space=128MiB,hot=4MiB"
threads = 2

[[process]]
name = "second"
workload = "contiguous:space=64MiB,hot=4MiB"
pages = "2M"
placement = { interleave = ["optane", "dram"] }
populate = false
repeats = false
non-temporal = true
simulation = { overlap = 1, uncached-tables = true }

[simulation.exact]
detail = "caches"
tick = "never"
quantum = "20us"
profiler-cpu = 3
table-region = "1MiB"

[simulation.sampling]
events = ["load-misses"]
every = 100
"#;

    #[test]
    fn every_key_arrives() {
        let experiment = Experiment::parse("full", FULL).unwrap_or_else(|error| panic!("{error}"));
        let Experiment { setup, processes, watchers, .. } = &experiment;
        assert_eq!(experiment.window, Duration::from_millis(100));
        assert_eq!((setup.cpus, setup.hardware.translation.levels), (4, 5));
        assert_eq!(
            setup.hardware.tiers.iter().map(|tier| tier.mib).collect::<Vec<_>>(),
            [256, 512]
        );
        assert_eq!((setup.detail, setup.tick), (Detail::Caches, None));
        assert_eq!((setup.profiler_cpu, setup.uncached_tables), (Some(3), 128));
        assert_eq!((setup.watermark_scale, setup.min_free_kib), (100, Some(4096)));
        assert_eq!(setup.flush, Some(Duration::from_millis(5)));
        assert_eq!(
            (experiment.sampling.events.as_slice(), experiment.every),
            (&[Event::LoadMisses][..], Some(100))
        );
        // Threads are placed on consecutive cores; seeds count up from the experiment's.
        let [first, second] = &processes[..] else { panic!("there are two") };
        assert_eq!((first.first_cpu, first.threads, first.seed, first.populate), (0, 2, 7, true));
        assert_eq!((second.first_cpu, second.seed, second.pages), (2, 8, PageSize::M2));
        assert_eq!(second.placement, Placement::Interleave(vec![Tier(1), Tier(0)]));
        assert_eq!((second.overlap, second.uncached_tables), (Some(1), true));
        assert!(second.non_temporal && !second.populate && !second.repeats);
        assert_eq!((watchers[0].name.as_str(), watchers[1].name.as_str()), ("rates", "fast"));
        let fast = watchers[1].settings.as_ref().expect("it has its own");
        assert_eq!((fast.sampling, fast.max_regions), (Some(Duration::from_millis(1)), Some(50)));
        let mut again = experiment.clone();
        again.reseed(9);
        assert_eq!(again.processes.iter().map(|p| p.seed).collect::<Vec<_>>(), [9, 10]);
    }

    #[test]
    fn policies_a_warm_up_and_a_smaller_cache() {
        let more = "seed = 7\npolicies = [\"static\", \"tpp\"]\nwarm-up = \"500ms\"";
        let text = FULL.replacen("seed = 7", more, 1).replacen(
            "levels",
            "llc-slices = 3\nsecond-tlb = 96\nlevels",
            1,
        );
        let experiment = Experiment::parse("e", &text).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<&str> = experiment.policies.iter().map(|(line, _)| line.as_str()).collect();
        assert_eq!(
            (names, experiment.warm_up),
            (vec!["static", "tpp"], Duration::from_millis(500))
        );
        let hardware = &experiment.setup.hardware;
        assert_eq!(hardware.llc.as_ref().map(|llc| llc.slices), Some(3));
        assert_eq!(hardware.translation.l2[0].entries, 96);
        let refused = |from: &str, to: &str| {
            Experiment::parse("e", &text.replacen(from, to, 1)).expect_err(to).to_string()
        };
        assert!(refused("\"500ms\"", "\"2s\"").contains("e:9:11: nothing is left to measure"));
        assert!(refused("= 3\n", "= 0\n").contains("at least one slice"));
        assert!(refused("= 96\n", "= 100\n").contains("twice as many and so on, up to"));
    }

    // Two threads and one of FULL, of 88 cores.
    #[test]
    fn few_cores_with_the_bandwidth_of_many_are_pointed_out() {
        let of = |text: &str| Experiment::parse("e", text).expect("it is valid").warnings();
        let warned = of(FULL);
        assert!(
            warned[0].contains("3 threads have the memory bandwidth of 88 cores"),
            "{warned:?}"
        );
        assert!(of(&FULL.replacen("cpus = 4", "cpus = 4\nmemory-cores = 3", 1)).is_empty());
    }

    #[test]
    fn errors_name_line_and_column() {
        let refused = |from: &str, to: &str| {
            assert!(FULL.contains(from), "the test edits what is there: {from}");
            Experiment::parse("e.toml", &FULL.replacen(from, to, 1)).expect_err(to).to_string()
        };
        let cases = [
            ("seed = 7", "sede = 7", "e.toml:7:1: unknown field `sede`"),
            ("cpus = 4", "cpus = 1000", "e.toml:18:8: cannot simulate 1000 cores"),
            (
                "cpus = 4",
                "cpus = 4\nmemory-cores = 99",
                "e.toml:19:16: xeon-gold-6238m has 88 cores",
            ),
            ("levels = 5", "levels = 6", "e.toml:19:10: x86-64 has 4 or 5 levels"),
            ("flush = \"5ms\"", "flush = \"5\"", "e.toml:20:9: `5` is not a time"),
            ("= 100\nmin", "= 5000\nmin", "e.toml:21:26: the kernel takes 1 to 3000"),
            ("\"dram\"\nsize", "\"drum\"\nsize", "e.toml:25:8: xeon-gold-6238m has no tier `drum`"),
            ("\"512MiB\"", "\"1MiB\"", "e.toml:30:8: a tier has whole blocks of 2 MiB"),
            ("space=128MiB", "space=4GiB", "e.toml:32:1: process contiguous does not fit"),
            ("[\"optane\", \"dram\"]", "[]", "e.toml:40:13: name the tiers to interleave"),
            ("overlap = 1", "overlap = 99", "e.toml:36:1: process second does not fit"),
            ("profiler-cpu = 3", "profiler-cpu = 4", "the profiler has no core"),
            ("detail = \"caches\"", "detail = \"translation\"", "cannot sample cache misses"),
            ("name = \"fast\"", "name = \"../x\"", "e.toml:10:1: a name is made of letters"),
            ("name = \"fast\"", "name = \"rates\"", "e.toml:10:1: there are two instruments"),
        ];
        for (from, to, says) in cases {
            let error = refused(from, to);
            assert!(error.contains(says), "{to}: {error}");
        }
        let two =
            refused("[simulation.exact]", "[simulation]\nmode = \"density\"\n[simulation.exact]");
        assert!(two.contains("e.toml:36:1: densities take one process"), "{two}");
    }

    // Both modes give huge pages the same meaning, or density refuses them.
    #[test]
    fn densities_support_base_and_huge_pages() {
        let text = |pages: &str| {
            format!(
                "name = \"a\"\nabout = \"b\"\nsource = \"c\"\ntime = \"1s\"\n[[process]]\n\
                 workload = \"contiguous:space=64MiB,hot=4MiB\"\n{pages}\n\
                 [simulation]\nmode = \"density\"\n"
            )
        };
        let parsed = |pages| Experiment::parse("e", &text(pages));
        assert!(!parsed("").expect("4K").config.huge);
        assert!(parsed("pages = \"2M\"").expect("2M").config.huge);
        for pages in ["pages = \"1G\"", "area-pages = { area = \"2M\" }"] {
            let error = parsed(pages).expect_err(pages).to_string();
            println!("{error}");
            assert!(error.contains("densities take pages of 4K or 2M"));
        }
    }

    // A tier of 64 MiB minus the kernel's reserve: 62 MiB do not fit with their page tables, 56 do.
    #[test]
    fn a_workload_that_does_not_fit_with_its_page_tables_is_refused() {
        let text = |mib: u64, bind: &str| {
            format!(
                "name = \"a\"\nabout = \"b\"\nsource = \"c\"\ntime = \"1s\"\n[[machine.tier]]\n\
                 name = \"dram\"\nsize = \"64MiB\"\n[[process]]\n\
                 workload = \"contiguous:space={mib}MiB,hot=1MiB\"\n{bind}"
            )
        };
        let fits = |mib, bind| Experiment::parse("e", &text(mib, bind));
        assert!(fits(56, "").is_ok());
        assert!(
            fits(64, "").expect_err("too large").to_string().contains("with page tables 65 MiB")
        );
        let bound = fits(64, "placement = { bind = \"dram\" }").expect_err("too large").to_string();
        assert!(bound.contains("MiB in a tier of 64"), "{bound}");
        let started = |mib| {
            let experiment = fits(mib, "").expect("it fits");
            experiment.start(&mut Machine::new(&experiment.setup).expect("it is possible"))
        };
        assert!(started(56).is_ok(), "what is said to fit can be populated");
    }
}
