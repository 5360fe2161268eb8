//! Opening a live machine by what a run needs of it: the one place that decides which ports are
//! opened, for all commands.

use std::path::Path;

use tierscope_core::{Error, ErrorKind, Need, Result, SpaceId};

use crate::module::Module;
use crate::perf::{self, Source};
use crate::telemetry::{self, TlbMisses};
use crate::{LiveMachine, Selection};

/// Root of sysfs.
const SYS: &str = "/sys";

/// Command block of the telemetry device that programs controllers: one driver at a time.
const COMMANDS: usize = 1;

/// Kinds of evidence that no program can provide of another process.
const NEVER: [Need; 1] = [Need::HintFaults];

/// Refuses what no live machine can provide: user space cannot arm hint faults in another process.
///
/// # Errors
/// [`ErrorKind::Missing`], with the reason.
pub fn check_needs(what: &str, needs: &[Need]) -> Result<()> {
    match needs.iter().find(|need| NEVER.contains(need)) {
        None => Ok(()),
        Some(need) => {
            Err(Error::new(ErrorKind::Missing, format!("{what} cannot work on a live machine"))
                .cause(format!(
                    "it needs {need}, and user space cannot arm them in another process"
                ))
                .remedy("simulate it with `tierscope sim run`, or choose another one"))
        }
    }
}

impl LiveMachine {
    /// Opens the target with the ports that `needs` lists, and no others: the kernel module for
    /// ACCESSED bits, perf_event (or the telemetry device) for samples, the controllers of the
    /// telemetry device for counters.
    ///
    /// # Errors
    /// Those of [`LiveMachine::open`] and [`check_needs`]; a port that is needed and missing.
    pub fn for_needs(selection: &Selection, needs: &[Need]) -> Result<Self> {
        check_needs("this run", needs)?;
        let module = match needs.contains(&Need::AccessBits) {
            true => Ok(Module::open()?),
            false => Err(not_needed()),
        };
        let counters = match needs.contains(&Need::Counters) {
            true => Some(telemetry::controllers(Path::new(SYS), COMMANDS)?),
            false => None,
        };
        let mut machine = Self::open(selection, module)?;
        if let Some(counters) = counters {
            machine.set_counters(Box::new(counters));
        }
        if needs.contains(&Need::Samples) {
            machine.open_samples()?;
        }
        Ok(machine)
    }

    /// Opens a source of samples: the processor's, or that of an instrumented virtual machine.
    fn open_samples(&mut self) -> Result<()> {
        let missing = match Source::of_hardware(Path::new(SYS)) {
            Ok(source) => return self.sample(source, perf::FREQUENCY),
            Err(missing) => missing,
        };
        let root = |(space, pid): (SpaceId, u32)| Ok((telemetry::root_of(pid)?, space));
        let roots: Result<Vec<(u64, SpaceId)>> = self.pids().into_iter().map(root).collect();
        match roots.and_then(|roots| TlbMisses::open(Path::new(SYS), roots)) {
            Ok(misses) => self.set_samples(Ok(Box::new(misses))),
            // Machines without a PMU are common, those without a telemetry device the rule: the
            // missing PMU is the cause to report.
            Err(_) => return Err(missing.into()),
        }
        Ok(())
    }
}

/// Why a machine has no ACCESSED bits that was opened for a run without need of them.
fn not_needed() -> Error {
    Error::new(ErrorKind::Missing, "neither instrument nor policy of this run works on them")
        .remedy("choose one that does, such as `--instrument rates`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Ports;

    #[test]
    fn hint_faults_are_refused_with_the_reason() {
        let error = check_needs("instrument hint_fault", &[Need::HintFaults]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        let text = error.to_string();
        assert!(text.contains("hint_fault cannot work on a live machine"), "{text}");
        assert!(text.contains("user space cannot arm them in another process"), "{text}");
        assert!(check_needs("", &[Need::AccessBits, Need::Samples]).is_ok());
    }

    // A child that waits for input, and no needs: neither the module nor perf_event is opened.
    #[test]
    fn what_is_not_needed_is_not_opened() {
        let selection = Selection::Command(vec!["cat".into()]);
        let mut machine = LiveMachine::for_needs(&selection, &[]).unwrap();
        let missing = machine.access_bits().err().expect("no port was opened");
        assert!(missing.cause.starts_with("neither instrument nor policy"), "{missing:?}");
    }
}
