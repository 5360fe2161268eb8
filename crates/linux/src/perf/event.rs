//! Selects the event that samples accesses on this machine, and opens it (perf_event_open(2)).

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_PAGE_FAULTS, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_RAW, PERF_TYPE_SOFTWARE,
    perf_event_attr,
};
use perf_event_open_sys::perf_event_open;
use tierscope_core::{Access, Missing};

use super::ring::SAMPLE;

/// Source of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Precise retired loads and stores (Intel PEBS).
    Precise,
    /// Sampled operations (AMD IBS): of all that retire, loads and stores are kept.
    Ibs,
    /// All page faults: available everywhere, but weak evidence. Shows that sampling works at all.
    Faults,
}

/// An event to be opened on each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// PERF_TYPE_*, or the number of a PMU in sysfs.
    kind: u32,
    config: u64,
    precise: u64,
    /// IBS before Linux 6.14 cannot exclude the kernel.
    with_kernel: bool,
    /// Access type of samples without a data source.
    pub(super) access: Access,
}

/// MEM_INST_RETIRED.ALL_LOADS and ALL_STORES (Intel SDM volume 3B, chapter on performance events;
/// Skylake and later: event D0, masks 81 and 82).
const LOADS: u64 = 0x81D0;
const STORES: u64 = 0x82D0;
/// Counts operations instead of cycles (AMD, IBS execution control; arch/x86/events/amd/ibs.c:
/// `cnt_ctl`).
const COUNT_OPS: u64 = 1 << 19;

impl Source {
    /// The best hardware source of the machine below `sys`.
    ///
    /// # Errors
    /// [`Missing`] if it has none.
    pub fn of_hardware(sys: &Path) -> Result<Self, Missing> {
        let devices = sys.join("bus/event_source/devices");
        let number = |file: &str| -> Option<u32> {
            fs::read_to_string(devices.join(file)).ok()?.trim().parse().ok()
        };
        if number("ibs_op/type").is_some() {
            return Ok(Source::Ibs);
        }
        if number("cpu/caps/max_precise").is_some_and(|levels| levels > 0) {
            return Ok(Source::Precise);
        }
        Err(Missing {
            port: "samples",
            cause: "this machine has no PMU that samples addresses of loads and stores".into(),
            remedy: "use hardware with PEBS or IBS (virtual machines seldom have them), or an \
                     instrument or policy that works on ACCESSED bits"
                .into(),
        })
    }

    pub(super) fn events(self, sys: &Path) -> Vec<Event> {
        let event = |kind, config, precise, access| Event {
            kind,
            config,
            precise,
            with_kernel: self == Source::Ibs,
            access,
        };
        match self {
            Source::Precise => vec![
                event(PERF_TYPE_RAW, LOADS, 2, Access::Load),
                event(PERF_TYPE_RAW, STORES, 2, Access::Store),
            ],
            Source::Ibs => {
                let file = sys.join("bus/event_source/devices/ibs_op/type");
                let kind = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
                kind.map(|kind| event(kind, COUNT_OPS, 0, Access::Load)).into_iter().collect()
            }
            Source::Faults => {
                let config = PERF_COUNT_SW_PAGE_FAULTS.into();
                vec![event(PERF_TYPE_SOFTWARE, config, 0, Access::Load)]
            }
        }
    }
}

impl Event {
    /// Attributes for `frequency` samples per second and CPU; software events are all sampled.
    ///
    /// A kernel older than the bindings accepts the longer structure: the fields that it does not
    /// know are zero (kernel/events/core.c: `perf_copy_attr`).
    pub(super) fn attr(&self, frequency: u64) -> perf_event_attr {
        let mut attr = perf_event_attr {
            type_: self.kind,
            size: size_of::<perf_event_attr>() as u32,
            config: self.config,
            sample_type: SAMPLE,
            clockid: libc::CLOCK_MONOTONIC,
            ..perf_event_attr::default()
        };
        attr.set_use_clockid(1);
        attr.set_precise_ip(self.precise);
        match self.kind {
            PERF_TYPE_SOFTWARE => attr.sample_period = 1,
            _ => {
                attr.sample_freq = frequency;
                attr.set_freq(1);
            }
        }
        if !self.with_kernel {
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
        }
        attr
    }
}

/// perf_event_open(2), or a test's stand-in for it.
pub(crate) trait EventOpener {
    /// Opens an event on one CPU, for all processes; the reader drops samples of others. The
    /// descriptor can be mapped as a ring.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    fn open(&self, attr: perf_event_attr, cpu: u32) -> io::Result<OwnedFd>;
}

/// The system call of the running kernel.
pub(crate) struct PerfEventOpen;

impl EventOpener for PerfEventOpen {
    fn open(&self, mut attr: perf_event_attr, cpu: u32) -> io::Result<OwnedFd> {
        const ALL_PROCESSES: libc::pid_t = -1;
        const NO_GROUP: libc::c_int = -1;
        let cpu = libc::c_int::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: `attr` is initialised, and `attr.size` is its size.
        let fd = unsafe {
            perf_event_open(
                &raw mut attr,
                ALL_PROCESSES,
                cpu,
                NO_GROUP,
                PERF_FLAG_FD_CLOEXEC.into(),
            )
        };
        match fd {
            // SAFETY: the descriptor is new and has no other owner.
            0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join("bus/event_source/devices").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn hardware_source_is_detected_in_sysfs() {
        let of = |files: &[(&str, &str)]| Source::of_hardware(sysfs(files).path());
        assert_eq!(of(&[("cpu/caps/max_precise", "3\n")]), Ok(Source::Precise));
        assert_eq!(of(&[("cpu/caps/max_precise", "3\n"), ("ibs_op/type", "9\n")]), Ok(Source::Ibs));
        assert!(of(&[("cpu/caps/max_precise", "0\n")]).unwrap_err().cause.contains("no PMU"));
        assert!(of(&[]).is_err());
    }

    #[test]
    fn attributes_describe_the_event() {
        let sys = sysfs(&[("ibs_op/type", "9\n")]);
        let attr = |source: Source, number: usize| source.events(sys.path())[number].attr(5000);
        let stores = attr(Source::Precise, 1);
        assert_eq!((stores.type_, stores.config, stores.sample_freq), (4, 0x82D0, 5000));
        assert_eq!((stores.precise_ip(), stores.freq(), stores.exclude_kernel()), (2, 1, 1));
        assert_eq!((stores.use_clockid(), stores.clockid), (1, libc::CLOCK_MONOTONIC));
        assert_eq!(stores.size as usize, size_of_val(&stores));
        let ibs = attr(Source::Ibs, 0);
        assert_eq!((ibs.type_, ibs.exclude_kernel(), ibs.freq()), (9, 0, 1));
        let faults = attr(Source::Faults, 0);
        assert_eq!((faults.sample_period, faults.freq()), (1, 0), "every fault");
    }
}
