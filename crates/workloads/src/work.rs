//! What a process executes: accesses by description, or a program that computes them.

use std::sync::Arc;

use tierscope_core::{Error, ErrorKind, Result};

use crate::description::Area;
use crate::masim::Mode;
use crate::{App, Phase, Workload, file, generate, programs};

/// Prefix of the lines that replay a recorded trace; the path of the trace follows.
pub const TRACE: &str = "trace:";

/// Names that any line may begin with, except traces.
pub fn names() -> impl Iterator<Item = &'static str> {
    generate::NAMES.into_iter().chain(programs::names())
}

/// Names joined for messages.
pub fn listed(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Reads any workload: a program's line ([`programs`]) or a description ([`file::load`]). `mode`
/// applies to masim configurations only.
///
/// # Errors
/// The line or the file is invalid, or cannot be read; or it names a trace, which this crate cannot
/// read.
pub fn load(text: &str, mode: Mode) -> Result<Work> {
    if text.starts_with(TRACE) {
        return Err(Error::new(ErrorKind::Usage, format!("cannot replay `{text}` here"))
            .cause("a trace's addresses are not ours")
            .remedy("replay it on the simulated machine: `tierscope sim run`"));
    }
    if programs::knows(text) {
        return programs::from_spec(text).map(Work::Computed);
    }
    file::load(text, mode).map(Work::Described)
}

/// A description of accesses, or a program that makes them.
#[derive(Clone, Debug)]
pub enum Work {
    /// Patterns and phases: densities and hot ranges are known in advance.
    Described(Workload),
    /// A program: its accesses are known only as it runs.
    Computed(Arc<dyn App>),
}

impl Work {
    /// The description of the accesses, if there is one ([`App::described`]).
    #[must_use]
    pub fn described(&self) -> Option<Workload> {
        match self {
            Work::Described(workload) => Some(workload.clone()),
            Work::Computed(app) => app.described(),
        }
    }

    /// The external error that ended the program early ([`App::failed`]).
    #[must_use]
    pub fn failed(&self) -> Option<Error> {
        match self {
            Work::Described(_) => None,
            Work::Computed(app) => app.failed(),
        }
    }

    /// Draws a program's data from a seed `shift` above its own ([`App::reseeded`]).
    pub fn reseed(&mut self, shift: u64) {
        if let Work::Computed(app) = self
            && let Some(other) = app.reseeded(shift)
        {
            *app = other;
        }
    }

    /// The parts of the process's run ([`App::phases`]).
    #[must_use]
    pub fn phases(&self) -> Vec<Phase> {
        match self {
            Work::Described(_) => Vec::new(),
            Work::Computed(app) => app.phases(),
        }
    }

    /// Name for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Work::Described(workload) => &workload.name,
            Work::Computed(app) => app.name(),
        }
    }

    /// The memory that the process maps when it starts.
    #[must_use]
    pub fn areas(&self) -> &[Area] {
        match self {
            Work::Described(workload) => &workload.areas,
            Work::Computed(app) => app.areas(),
        }
    }

    /// Bytes of all areas.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.areas().iter().map(|area| area.bytes).fold(0, u64::saturating_add)
    }

    /// What the process counts as operations, in the plural.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self {
            Work::Described(_) => "accesses",
            Work::Computed(app) => app.unit(),
        }
    }

    /// Number of threads that the program requests; 1 by default.
    #[must_use]
    pub fn threads(&self) -> u32 {
        match self {
            Work::Described(_) => 1,
            Work::Computed(app) => app.threads().unwrap_or(1).max(1),
        }
    }

    /// Whether any of its stores are non-temporal, i.e. bypass the caches.
    #[must_use]
    pub fn is_non_temporal(&self) -> bool {
        matches!(self, Work::Described(workload) if workload.is_non_temporal())
    }

    /// Checks that the workload can be started.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Work::Described(workload) => workload.check().map_err(|fault| fault.what),
            Work::Computed(app) => match app.areas().iter().find(|area| area.bytes == 0) {
                Some(area) => Err(format!("area `{}` is empty", area.name)),
                None if app.areas().is_empty() => Err("there is no area".into()),
                None => Ok(()),
            },
        }
    }
}

impl From<Workload> for Work {
    fn from(workload: Workload) -> Self {
        Work::Described(workload)
    }
}

impl From<Arc<dyn App>> for Work {
    fn from(app: Arc<dyn App>) -> Self {
        Work::Computed(app)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_and_programs_are_loaded_alike() {
        let load = |text| load(text, Mode::Correct);
        assert!(matches!(load("zipf:space=1GiB"), Ok(Work::Described(_))));
        let gups = load("gups:table=1MiB,threads=3").unwrap();
        assert!(matches!(gups, Work::Computed(_)));
        assert_eq!((gups.bytes(), gups.threads(), gups.unit()), (1 << 20, 3, "updates"));
        let silo = load("silo:keys=10,value=100,threads=2").unwrap();
        assert_eq!((silo.threads(), silo.unit()), (2, "requests"));
        assert!(load("trace:a/b.trace").unwrap_err().to_string().contains("cannot replay"));
    }

    #[test]
    fn an_error_on_an_unknown_name_lists_the_known_ones() {
        for unknown in ["nothing:space=1GiB", "nothing", "/nowhere/nothing.toml"] {
            let error = load(unknown, Mode::Correct).unwrap_err().to_string();
            names().for_each(|name| assert!(error.contains(name), "{error}"));
        }
        let error = load("silo:keys=10,color=red", Mode::Correct).unwrap_err().to_string();
        assert!(
            error.contains("`silo` has no key `color`, only ycsb, updates, dist, keys"),
            "{error}"
        );
        let error = load("zipf:color=red", Mode::Correct).unwrap_err().to_string();
        assert!(error.contains("`zipf` has no key `color`, only space, item, theta"), "{error}");
    }
}
