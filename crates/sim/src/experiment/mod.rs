//! Experiments as TOML: a machine, who works on it, who watches, how long. One vocabulary for the
//! simulated machine, in either mode, and for the instrumented virtual one; what only simulated
//! machines have stands in tables called `simulation`.
//!
//! ```toml
//! name = "shifted"
//! about = "64 MiB hot in 1 GiB on the slow tier"
//! source = "our own"
//! time = "10s"
//! window = "200ms"              # from one snapshot to the next; 200ms unless told
//! seed = 1                      # 1 unless told
//! instruments = ["rates"]       # by the names of `bench accuracy`
//! policies = ["static", "hot_region:round=1GiB@rates"]   # `sim tier`: NAME:key=value,…@INSTRUMENT
//! warm-up = "2s"                # `sim tier` measures from then on
//!
//! [[instrument]]                # or with settings of one's own
//! name = "fast"
//! instrument = "damon"
//! variant = "fixed"
//! sampling = "1ms"              # and update, min-regions, max-regions, samples (a second)
//!
//! [machine]
//! hardware = "xeon-gold-6238m"  # ready-made, or a file; this one unless told
//! cpus = 2                      # as many as the processes have threads unless told
//! levels = 4                    # of page tables; the hardware's unless told
//! llc-slices = 1                # of the last-level cache; the hardware's unless told
//! memory-mode = false           # the first tier is a cache of the second
//! flush = "5ms"                 # all TLBs are flushed so often; `never` unless told
//! watermark-scale-factor = 10   # vm.watermark_scale_factor
//! min-free = "64MiB"            # vm.min_free_kbytes; the kernel's own unless told
//!
//! [[machine.tier]]              # only these of the hardware's tiers, so large
//! name = "dram"
//! size = "2GiB"
//!
//! [[process]]
//! workload = "contiguous:space=1GiB,hot=64MiB"    # or a file, or a program, or trace:FILE
//! threads = 1
//! cpu = 0                       # of the first thread
//! pages = "4K"                  # 4K, 2M (transparent huge pages), 1G (hugetlbfs; not by densities)
//! area-pages = { column = "2M" }   # other pages for some of its areas; not by densities
//! placement = "first-touch"     # or { bind = "optane" } or { interleave = ["dram", "optane"] }
//! populate = true               # all pages are there before it starts, old and clean
//! written = false               # it wrote to all of them, too: young and dirty
//! repeats = true                # its phases come again and again
//! non-temporal = false          # its stores go past the caches; those of a workload that says so always do
//! simulation = { overlap = 1, uncached-tables = false, watched = [], trapped = false }
//!
//! [simulation]
//! mode = "exact"                # or "density"
//! costs = "linux"
//!
//! [simulation.exact]
//! detail = "whole"              # or "translation", "caches"
//! tick = "4ms"                  # the kernel's timer tick, or `never`; by densities too
//! quantum = "10us"              # how far clocks of cores drift apart
//! profiler-cpu = 1              # the profiler shares it; it has one of its own unless told
//! table-region = "256MiB"       # uncached page tables, each with its control block, fit in there; none unless told
//!
//! [simulation.density]
//! rate = 3000000                # accesses a second where a workload does not say
//! visit = "2MB"                 # a value, all of which is read at once, where accesses to values look random
//! pause = "14us"                # what a thread does beside, for each access
//! start = "cleared"             # or "young": how entries are found
//! late = "50ms"                 # waits end at multiples of this, as on a machine whose CPUs are busy
//!
//! [simulation.sampling]
//! events = ["loads", "stores"]  # and "load-misses"
//! every = 1000                  # every n-th event, instead of as often as an instrument asks
//! ```
//!
//! Everything is checked before anything runs: keys, geometry, and that what processes map fits
//! into the tiers that they may use.

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

/// How accesses are simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Every single one.
    #[default]
    Exact,
    /// As densities over ranges and time.
    Density,
}

impl Mode {
    /// For people.
    #[must_use]
    pub fn how(self) -> &'static str {
        match self {
            Mode::Exact => "access by access",
            Mode::Density => "by densities",
        }
    }

    /// As in a file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Exact => "exact",
            Mode::Density => "density",
        }
    }
}

/// Who watches, as the file says it; whether there is such an instrument is for its reader to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Watcher {
    /// A name from a list, or one's own.
    pub name: String,
    /// Settings of one's own.
    pub settings: Option<Settings>,
    /// Where in the file it stands, for [`place`].
    pub offset: usize,
}

/// An instrument's settings; `None` leaves it its own default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Name of the instrument.
    pub instrument: String,
    /// Its variant.
    pub variant: Option<String>,
    /// Time between two looks.
    pub sampling: Option<Duration>,
    /// Time after which mappings are read anew.
    pub update: Option<Duration>,
    /// Least number of regions.
    pub min_regions: Option<usize>,
    /// Greatest number of regions.
    pub max_regions: Option<usize>,
    /// Share of one CPU that watching may take.
    pub cpu: Option<f64>,
    /// Whether the instrument may flush the target's translations; it may where nothing is said.
    pub may_flush: Option<bool>,
    /// Samples a second and core that the machine takes for it; 0 for none.
    pub samples: u64,
}

/// An experiment, checked.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// One word.
    pub name: String,
    /// For people.
    pub about: String,
    /// Where its numbers come from.
    pub source: String,
    /// Simulated time.
    pub time: Duration,
    /// From one snapshot to the next.
    pub window: Duration,
    /// Of all draws.
    pub seed: u64,
    /// How accesses are simulated.
    pub mode: Mode,
    /// Who watches, each on a machine of its own.
    pub watchers: Vec<Watcher>,
    /// Who places memory, each on a machine of its own: lines as the file says them, and where they
    /// stand, for [`Experiment::at`].
    pub policies: Vec<(String, usize)>,
    /// Time before anything is measured of a policy.
    pub warm_up: Duration,
    /// The exact machine.
    pub setup: Setup,
    /// Who works on it.
    pub processes: Vec<Process>,
    /// The machine of densities, for the first process.
    pub config: density::Config,
    /// How accesses are sampled where somebody asks for samples, but for how often.
    pub sampling: crate::config::Sampling,
    /// Whether samples are taken at a period of the file's, whoever asks.
    pub every: Option<u64>,
    /// The file's name and text, for errors.
    file: (String, String),
}

/// Reads a workload as `workload` says it: [`default_workload`], or that of somebody who knows more.
pub type ReadWorkload = fn(&str) -> Result<Work>;

/// What [`tierscope_workloads::work::load`] reads; masim goes as it would if it were correct.
///
/// # Errors
/// As there.
pub fn default_workload(text: &str) -> Result<Work> {
    load(text, Masim::Correct)
}

/// Where in a text something is wrong, and what.
pub type Faulty<T> = std::result::Result<T, (usize, String)>;

/// Reads a description of type `T`; `name` is for errors, usually the file's.
///
/// # Errors
/// [`ErrorKind::Data`] with line and column.
pub fn read<T: for<'de> Deserialize<'de>>(name: &str, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        place(name, text, error.span().map_or(0, |span| span.start), message)
    })
}

/// The text of an experiment's file.
///
/// # Errors
/// If it cannot be read.
pub fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read experiment {}", path.display()))
            .cause(error)
            .remedy("give a TOML file; see experiments/ for some that work")
    })
}

/// The error for a place in a text.
pub fn place(name: &str, text: &str, offset: usize, what: impl Display) -> Error {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
    Error::new(ErrorKind::Data, format!("{name}:{line}:{column}"))
        .cause(what)
        .remedy("see experiments/ for files that work")
}

impl Experiment {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or what it says is wrong: line and column.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&path.display().to_string(), &read_file(path)?)
    }

    /// Reads TOML; `name` is for errors.
    ///
    /// # Errors
    /// As [`Experiment::load`].
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        Self::part(name, text, &read(name, text)?, default_workload)
    }

    /// An experiment that is a part of a file, or all of it.
    ///
    /// # Errors
    /// As [`Experiment::load`].
    pub fn part(name: &str, text: &str, file: &File, workload: ReadWorkload) -> Result<Self> {
        let checked =
            file.check(workload).map_err(|(offset, what)| place(name, text, offset, what))?;
        Ok(Self { file: (name.into(), text.into()), ..checked })
    }

    /// The error for a place in its file.
    pub fn at(&self, offset: usize, what: impl Display) -> Error {
        place(&self.file.0, &self.file.1, offset, what)
    }

    /// Begins all draws anew; seeds of processes keep their distances.
    pub fn reseed(&mut self, seed: u64) {
        let shift = seed.wrapping_sub(self.seed);
        for process in &mut self.processes {
            process.seed = process.seed.wrapping_add(shift);
        }
        self.seed = seed;
        self.config.seed = seed;
    }

    /// What the machine of densities is told of the first process; `None` if that is a program without
    /// a description.
    #[must_use]
    pub fn described(&self) -> Option<Workload> {
        self.processes[0].work.described()
    }

    /// Whether its processes did what they were to do.
    ///
    /// # Errors
    /// What went wrong with the first that could not, from outside: a trace that cannot be read.
    pub fn ran(&self) -> Result<()> {
        let failed = self.processes.iter().find_map(|process| process.work.failed());
        failed.map_or(Ok(()), Err)
    }

    /// Bytes that its processes map.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.processes.iter().map(|process| process.work.bytes()).sum()
    }

    /// Starts the processes on an exact machine that is new; what those of them that can be described
    /// declare hot comes back.
    ///
    /// # Errors
    /// As [`Machine::start`].
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
        // Threads are laid out one after another; seeds follow the experiment's.
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
        let text =
            FULL.replacen("seed = 7", more, 1).replacen("levels", "llc-slices = 3\nlevels", 1);
        let experiment = Experiment::parse("e", &text).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<&str> = experiment.policies.iter().map(|(line, _)| line.as_str()).collect();
        assert_eq!(
            (names, experiment.warm_up),
            (vec!["static", "tpp"], Duration::from_millis(500))
        );
        assert_eq!(experiment.setup.hardware.llc.as_ref().map(|llc| llc.slices), Some(3));
        let refused = |from: &str, to: &str| {
            Experiment::parse("e", &text.replacen(from, to, 1)).expect_err(to).to_string()
        };
        assert!(refused("\"500ms\"", "\"2s\"").contains("e:9:11: nothing is left to measure"));
        assert!(refused("= 3\n", "= 0\n").contains("at least one slice"));
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_column() {
        let refused = |from: &str, to: &str| {
            assert!(FULL.contains(from), "the test edits what is there: {from}");
            Experiment::parse("e.toml", &FULL.replacen(from, to, 1)).expect_err(to).to_string()
        };
        let cases = [
            ("seed = 7", "sede = 7", "e.toml:7:1: unknown field `sede`"),
            ("cpus = 4", "cpus = 1000", "e.toml:18:8: cannot simulate 1000 cores"),
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

    // Both modes mean the same by huge pages, or density refuses.
    #[test]
    fn densities_know_small_pages_and_huge_ones() {
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

    // A tier of 64 MiB less what is the kernel's: 62 MiB do not fit with their page tables, 56 do.
    #[test]
    fn what_does_not_fit_with_its_page_tables_is_refused() {
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
