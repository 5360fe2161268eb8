//! Selects the event that samples accesses on this machine, and opens it (perf_event_open(2)).

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

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
    kind: u32,
    config: u64,
    precise: u64,
    /// IBS before Linux 6.14 cannot exclude the kernel.
    with_kernel: bool,
    /// Access type of samples without a data source.
    pub(super) access: Access,
}

const TYPE_SOFTWARE: u32 = 1;
const TYPE_RAW: u32 = 4;
/// PERF_COUNT_SW_PAGE_FAULTS.
const PAGE_FAULTS: u64 = 2;
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
            remedy: "use hardware with PEBS or IBS (virtual machines seldom have them), or a policy that \
                     works on ACCESSED bits"
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
                event(TYPE_RAW, LOADS, 2, Access::Load),
                event(TYPE_RAW, STORES, 2, Access::Store),
            ],
            Source::Ibs => {
                let file = sys.join("bus/event_source/devices/ibs_op/type");
                let kind = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
                kind.map(|kind| event(kind, COUNT_OPS, 0, Access::Load)).into_iter().collect()
            }
            Source::Faults => vec![event(TYPE_SOFTWARE, PAGE_FAULTS, 0, Access::Load)],
        }
    }
}

/// `struct perf_event_attr`, 128 bytes (PERF_ATTR_SIZE_VER7), as words. Byte offsets of its fields:
/// type 0, size 4, config 8, sample_period or _freq 16, sample_type 24, read_format 32, flags 40,
/// ..., clockid 92.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Attr([u64; 16]);

/// Bits of the attribute's flags.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const FREQ: u64 = 1 << 10;
const PRECISE_SHIFT: u32 = 15;
const USE_CLOCKID: u64 = 1 << 25;
const CLOCK_MONOTONIC: u64 = 1;

impl Event {
    /// Attributes for `frequency` samples per second and CPU; software events are all sampled.
    fn attr(&self, frequency: u64) -> Attr {
        let mut attr = Attr::default();
        let size = size_of::<Attr>() as u64;
        attr.0[0] = u64::from(self.kind) | size << 32;
        attr.0[1] = self.config;
        let software = self.kind == TYPE_SOFTWARE;
        attr.0[2] = if software { 1 } else { frequency };
        attr.0[3] = SAMPLE;
        let kernel = if self.with_kernel { 0 } else { EXCLUDE_KERNEL | EXCLUDE_HV };
        let freq = if software { 0 } else { FREQ };
        attr.0[5] = kernel | freq | USE_CLOCKID | self.precise << PRECISE_SHIFT;
        // The clock id is the upper half of its word.
        attr.0[11] = CLOCK_MONOTONIC << 32;
        attr
    }

    /// Opens the event on one CPU, for all processes; the reader drops samples of others.
    pub(super) fn open(&self, cpu: u32, frequency: u64) -> io::Result<OwnedFd> {
        const CLOEXEC: libc::c_ulong = 1 << 3;
        let attr = self.attr(frequency);
        let everybody: libc::pid_t = -1;
        let nobody: libc::c_int = -1;
        // SAFETY: the kernel reads `size` bytes of `attr`, which has that size; the other arguments
        // are numbers.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                everybody,
                cpu as libc::c_int,
                nobody,
                CLOEXEC,
            )
        };
        match i32::try_from(fd) {
            // SAFETY: the descriptor is new and has no other owner.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
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
    fn the_hardware_says_what_it_has() {
        let of = |files: &[(&str, &str)]| Source::of_hardware(sysfs(files).path());
        assert_eq!(of(&[("cpu/caps/max_precise", "3\n")]), Ok(Source::Precise));
        assert_eq!(of(&[("cpu/caps/max_precise", "3\n"), ("ibs_op/type", "9\n")]), Ok(Source::Ibs));
        assert!(of(&[("cpu/caps/max_precise", "0\n")]).unwrap_err().cause.contains("no PMU"));
        assert!(of(&[]).is_err());
    }

    #[test]
    fn attributes_are_where_the_kernel_reads_them() {
        let sys = sysfs(&[("ibs_op/type", "9\n")]);
        let bytes = |source: Source, number: usize| -> Vec<u8> {
            let attr = source.events(sys.path())[number].attr(5000);
            attr.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let u32_at =
            |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let u64_at =
            |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let stores = bytes(Source::Precise, 1);
        assert_eq!((stores.len(), u32_at(&stores, 0), u32_at(&stores, 4)), (128, 4, 128));
        assert_eq!((u64_at(&stores, 8), u64_at(&stores, 16)), (0x82D0, 5000));
        assert_eq!(u32_at(&stores, 92), 1, "CLOCK_MONOTONIC");
        assert_eq!(u64_at(&stores, 40) >> 15 & 3, 2);
        let ibs = bytes(Source::Ibs, 0);
        assert_eq!((u32_at(&ibs, 0), u64_at(&ibs, 40) & EXCLUDE_KERNEL), (9, 0));
        assert_eq!(u64_at(&bytes(Source::Faults, 0), 16), 1, "every fault");
    }
}
