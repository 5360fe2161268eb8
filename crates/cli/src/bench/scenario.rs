//! Scenarios: a workload, a machine, and who is to run on it, as TOML.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_hw::Machine as Hardware;
use tierscope_sim::config::Costs;
use tierscope_sim::density::{Config, Start};
use tierscope_workloads::Workload;
use tierscope_workloads::file::load;
use tierscope_workloads::masim;
use toml::Spanned;

use super::contender::{ALL, Contender};
use super::machine;
use crate::units;

/// The ready-made scenarios: name and TOML text.
pub(crate) const READY_MADE: [(&str, &str); 7] = [
    ("contiguous-1tb", include_str!("../../../../experiments/accuracy/contiguous-1tb.toml")),
    ("contiguous-5tb", include_str!("../../../../experiments/accuracy/contiguous-5tb.toml")),
    ("stairs-5tb", include_str!("../../../../experiments/accuracy/stairs-5tb.toml")),
    ("needle-5mb", include_str!("../../../../experiments/accuracy/needle-5mb.toml")),
    ("needle-4kb", include_str!("../../../../experiments/accuracy/needle-4kb.toml")),
    ("scattered-1tb", include_str!("../../../../experiments/accuracy/scattered-1tb.toml")),
    ("contiguous-1pb", include_str!("../../../../experiments/accuracy/contiguous-1pb.toml")),
];

/// The keys of a scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    /// One word.
    pub(crate) name: String,
    /// For people.
    pub(crate) about: String,
    /// Where its numbers come from.
    pub(crate) source: String,
    /// A description, as `toucher` takes it.
    workload: Spanned<String>,
    /// Simulated time.
    time: Spanned<String>,
    /// By densities unless told.
    #[serde(default = "densities")]
    mode: Mode,
    #[serde(default)]
    window: Option<Spanned<String>>,
    /// Ready-made hardware, or a file.
    #[serde(default)]
    machine: Option<Spanned<String>>,
    /// Memory of the last tier, where it is to be more than the machine's.
    #[serde(default)]
    far: Option<Spanned<String>>,
    /// Levels of the page table; the machine's unless told.
    #[serde(default)]
    levels: Option<Spanned<u8>>,
    /// Ready-made costs, or a file.
    #[serde(default)]
    costs: Option<Spanned<String>>,
    /// Time between flushes, or `never`.
    #[serde(default)]
    flush: Option<Spanned<String>>,
    #[serde(default)]
    cores: Option<u32>,
    /// `cleared` or `young`.
    #[serde(default)]
    start: Option<Spanned<String>>,
    #[serde(default)]
    seed: Option<u64>,
    /// All unless told.
    #[serde(default)]
    contenders: Vec<Spanned<String>>,
}

/// How accesses are simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// As densities over ranges and time.
    Density,
    /// One by one.
    Exact,
}

impl Mode {
    /// For people.
    #[must_use]
    pub fn how(self) -> &'static str {
        match self {
            Mode::Density => "by densities",
            Mode::Exact => "access by access",
        }
    }
}

/// A scenario, checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// One word.
    pub name: String,
    /// For people.
    pub about: String,
    /// Where its numbers come from.
    pub source: String,
    /// What accesses memory.
    pub workload: Workload,
    /// Simulated time.
    pub time: Duration,
    /// Time from one snapshot to the next.
    pub window: Duration,
    /// How accesses are simulated.
    pub mode: Mode,
    /// The machine, but for how accesses are sampled.
    pub config: Config,
    /// The hardware that it is like.
    pub hardware: Hardware,
    /// Who runs.
    pub contenders: Vec<Contender>,
}

/// Where in a text something is wrong, and what.
type Faulty<T> = std::result::Result<T, (usize, String)>;

/// Reads a description of type `T`; `name` is for errors, usually the file's.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(name: &str, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        at(name, text, error.span().map_or(0, |span| span.start), message)
    })
}

/// The error for a place in a text.
pub(crate) fn at(name: &str, text: &str, offset: usize, what: impl Display) -> Error {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
    Error::new(ErrorKind::Data, format!("{name}:{line}:{column}"))
        .cause(what)
        .remedy("see experiments/accuracy for scenarios that work")
}

impl Scenario {
    /// The ready-made scenario of that name, or the file.
    ///
    /// # Errors
    /// If there is neither, or what it says is wrong: line and column.
    pub fn load(text: &str) -> Result<Scenario> {
        if let Some((_, content)) = READY_MADE.iter().find(|(name, _)| *name == text) {
            return Scenario::parse(text, content);
        }
        let content = std::fs::read_to_string(Path::new(text)).map_err(|error| {
            let names: Vec<&str> = READY_MADE.iter().map(|(name, _)| *name).collect();
            Error::new(ErrorKind::Io, format!("cannot read scenario {text}"))
                .cause(error)
                .remedy(format!("give a TOML file, or one of {}", names.join(", ")))
        })?;
        Scenario::parse(text, &content)
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn parse(name: &str, text: &str) -> Result<Scenario> {
        let file: File = read(name, text)?;
        file.check().map_err(|(offset, what)| at(name, text, offset, what))
    }
}

/// What `read` makes of the text, or the fault at its place.
fn of<T>(
    text: &Spanned<String>,
    read: impl Fn(&str) -> std::result::Result<T, String>,
) -> Faulty<T> {
    read(text.get_ref()).map_err(|what| (text.span().start, what))
}

fn densities() -> Mode {
    Mode::Density
}

fn time_of(text: &Spanned<String>) -> Faulty<Duration> {
    of(text, units::duration)
}

/// Ready-made by name, or a file.
fn named<T>(
    text: &str,
    ready: impl Fn(&str) -> Result<T>,
    parse: impl Fn(&str, &str) -> Result<T>,
) -> std::result::Result<T, String> {
    if !text.ends_with(".toml") {
        return ready(text).map_err(|error| error.to_string());
    }
    let content = std::fs::read_to_string(text).map_err(|error| format!("{text}: {error}"))?;
    parse(text, &content).map_err(|error| error.to_string())
}

impl File {
    /// The scenario, if all its parts make sense.
    pub(crate) fn check(&self) -> Faulty<Scenario> {
        let workload =
            of(&self.workload, |text| load(text, masim::Mode::Correct).map_err(|e| e.to_string()))?;
        let time = time_of(&self.time)?;
        let window = self.window.as_ref().map_or(Ok(Duration::from_millis(200)), time_of)?;
        if window.is_zero() || time < window {
            return Err((self.time.span().start, "it does not hold a window".into()));
        }
        let (hardware, config) = self.config()?;
        let contenders = self
            .contenders
            .iter()
            .map(|name| of(name, |name| Contender::named(name).map_err(|error| error.to_string())));
        let mut contenders = contenders.collect::<Faulty<Vec<_>>>()?;
        if contenders.is_empty() {
            contenders = ALL.to_vec();
        }
        let scenario = Scenario {
            name: self.name.clone(),
            about: self.about.clone(),
            source: self.source.clone(),
            workload,
            time,
            window,
            mode: self.mode,
            config,
            hardware,
            contenders,
        };
        self.check_start(&scenario)?;
        // Whether the workload fits is for the machine to say.
        machine::check(&scenario)
            .map_err(|error| (self.workload.span().start, error.to_string()))?;
        Ok(scenario)
    }

    /// The exact machine begins with pages that nobody has touched.
    fn check_start(&self, scenario: &Scenario) -> Faulty<()> {
        match &self.start {
            Some(start)
                if scenario.mode == Mode::Exact && scenario.config.start == Start::Young =>
            {
                Err((start.span().start, "an exact machine starts `cleared`".into()))
            }
            _ => Ok(()),
        }
    }

    fn config(&self) -> Faulty<(Hardware, Config)> {
        let hardware = match &self.machine {
            None => Hardware::ready_made("xeon-gold-6238m").map_err(|e| (0, e.to_string()))?,
            Some(text) => of(text, |text| named(text, Hardware::ready_made, Hardware::parse))?,
        };
        let costs = match &self.costs {
            None => Costs::ready_made("linux").map_err(|e| (0, e.to_string()))?,
            Some(text) => of(text, |text| named(text, Costs::ready_made, Costs::parse))?,
        };
        let mut config = Config::of(&hardware, costs);
        if let Some(levels) = &self.levels {
            if !matches!(levels.get_ref(), 4 | 5) {
                return Err((levels.span().start, "x86-64 has 4 or 5 levels".into()));
            }
            config.radix.levels = *levels.get_ref();
        }
        if let Some(text) = &self.flush {
            let never = text.get_ref() == "never";
            config.flush = if never { None } else { Some(time_of(text)?) };
        }
        if let Some(text) = &self.start {
            config.start = of(text, |text| match text {
                "cleared" => Ok(Start::Cleared),
                "young" => Ok(Start::Young),
                _ => Err("page tables start `cleared` or `young`".into()),
            })?;
        }
        if let Some(text) = &self.far {
            config = config.with_room(of(text, units::bytes)?);
        }
        config.cores = self.cores.unwrap_or(config.cores);
        config.seed = self.seed.unwrap_or(config.seed);
        Ok((hardware, config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"toy\"\nabout = \"a\"\nsource = \"b\"\n\
                        workload = \"contiguous:space=1GiB,hot=64MiB\"\ntime = \"1s\"\n";

    #[test]
    fn every_ready_made_scenario_is_whole() {
        for (name, _) in READY_MADE {
            let scenario = Scenario::load(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.name, name);
            assert!(!scenario.source.is_empty());
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_column() {
        assert!(Scenario::parse("s.toml", TEXT).is_ok());
        let error = |more: &str| {
            Scenario::parse("s.toml", &format!("{TEXT}{more}")).unwrap_err().to_string()
        };
        assert!(error("fluhs = \"5ms\"\n").contains("s.toml:6:1: unknown field `fluhs`"));
        assert!(error("flush = \"5\"\n").starts_with("s.toml:6:9: not a time"));
        assert!(error("levels = 3\n").starts_with("s.toml:6:10: x86-64 has 4 or 5"));
        assert!(
            error("contenders = [\"guided\", \"demon\"]\n").starts_with("s.toml:6:25: no cont")
        );
        assert!(error("machine = \"abacus\"\n").contains("choose one of xeon"));
        assert!(error("cores = 0\n").contains("s.toml:4:12: cores"));
        assert!(error("mode = \"rough\"\n").starts_with("s.toml:6:8: unknown variant `rough`"));
        let young = error("mode = \"exact\"\nstart = \"young\"\n");
        assert!(young.starts_with("s.toml:7:9: an exact machine starts"), "{young}");
        let text = TEXT.replace("hot=64MiB", "hot=2GiB");
        let error = Scenario::parse("s.toml", &text).unwrap_err().to_string();
        assert!(error.starts_with("s.toml:4:12: workload"), "{error}");
    }
}
