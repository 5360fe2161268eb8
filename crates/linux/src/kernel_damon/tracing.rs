//! A private tracefs instance with one event enabled, so that other tracing is not disturbed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use super::event::{Event, Format};
use super::ring;
use crate::maker::{self, Maker};
use crate::proc::Proc;

const EVENT: &str = "events/damon/damon_aggregated";
/// Size of an event in the ring buffer, its header included.
const EVENT_BYTES: u64 = 56;
/// Number of windows that fit in the buffer of one CPU.
const WINDOWS: u64 = 4;
/// Read size; the kernel splits larger buffer pages into parts of this size.
const PAGE: usize = 4096;

/// A tracefs instance, removed when this is dropped, or by the next start if the process is killed.
#[derive(Debug)]
pub(crate) struct Instance {
    path: PathBuf,
    format: Format,
    cpus: Vec<File>,
}

impl Instance {
    /// Creates an instance below the tracefs at `root`, with room for windows of `regions` regions,
    /// and with CLOCK_MONOTONIC as its trace clock.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] without tracefs or the event, [`ErrorKind::Permission`] if access is
    /// denied.
    pub(crate) fn new(root: &Path, regions: u64) -> Result<Self> {
        let format = read_format(&root.join(EVENT).join("format"))?;
        let (instances, proc) = (root.join("instances"), Proc::default());
        maker::left_in(&instances, &proc).iter().for_each(|left| remove(left));
        let path = instances.join(format!("{}{}", maker::PREFIX, Maker::own(&proc)?.name()));
        fs::create_dir_all(&path).map_err(|e| not_ours(&path, &e))?;
        let mut instance = Self { path, format, cpus: Vec::new() };
        let kib = (regions * EVENT_BYTES * WINDOWS).div_ceil(1024).max(256);
        instance.set("trace_clock", "mono")?;
        instance.set("buffer_size_kb", &kib.to_string())?;
        instance.cpus = instance.open_cpus()?;
        // Otherwise the kernel hooks every context switch to record process names, which we do not
        // need (kernel/trace/trace_sched_switch.c, tracing_start_cmdline_record).
        let _ = instance.set("trace_options", "norecord-cmd");
        instance.set(&format!("{EVENT}/enable"), "1")?;
        Ok(instance)
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value).map_err(|e| not_ours(&path, &e))
    }

    fn open_cpus(&self) -> Result<Vec<File>> {
        let directory = self.path.join("per_cpu");
        let entries = fs::read_dir(&directory).map_err(|e| not_ours(&directory, &e))?;
        let open = |entry: fs::DirEntry| {
            let path = entry.path().join("trace_pipe_raw");
            let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
            file.map_err(|e| not_ours(&path, &e))
        };
        entries.flatten().map(open).collect()
    }

    /// Appends the events since the last call, CPU by CPU. Returns whether the kernel overwrote
    /// events.
    ///
    /// # Errors
    /// If the buffer cannot be read or decoded.
    pub(crate) fn drain(&mut self, out: &mut Vec<Event>) -> Result<bool> {
        let mut lost = false;
        let mut page = [0; PAGE];
        for cpu in &mut self.cpus {
            while let Some(bytes) =
                read_page(cpu, &mut page).map_err(|e| unreadable(&self.path, &e))?
            {
                let format = &self.format;
                let answer = ring::decode(&page[..bytes], |time, record| {
                    out.extend(format.read(time, record));
                });
                lost |= answer.map_err(|item| not_understood(&self.path, item))?;
            }
        }
        Ok(lost)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.cpus.clear();
        remove(&self.path);
    }
}

/// Removes an instance, by rmdir of its directory, which is busy while its files are open.
fn remove(path: &Path) {
    let _ = fs::write(path.join(EVENT).join("enable"), "0");
    let _ = fs::remove_dir(path);
}

/// Reads a page of the ring buffer; `None` if no data is available now.
fn read_page(file: &mut File, page: &mut [u8; PAGE]) -> io::Result<Option<usize>> {
    loop {
        match file.read(page) {
            Ok(0) => return Ok(None),
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn read_format(path: &Path) -> Result<Format> {
    let text = fs::read_to_string(path).map_err(|e| not_ours(path, &e))?;
    Format::parse(&text).map_err(|item| not_understood(path, item))
}

fn not_ours(path: &Path, error: &io::Error) -> Error {
    let what = format!("cannot trace the kernel's DAMON: {}", path.display());
    match error.kind() {
        io::ErrorKind::NotFound => Error::new(ErrorKind::Missing, what)
            .cause("there is no such file")
            .remedy("mount tracefs at /sys/kernel/tracing; the kernel needs CONFIG_DAMON and CONFIG_TRACING"),
        io::ErrorKind::PermissionDenied => {
            Error::new(ErrorKind::Permission, what).cause(error).remedy("run as root")
        }
        _ => unreadable(path, error),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot use {}", path.display()))
        .cause(error)
        .remedy("check that tracing works with `trace-cmd stat`")
}

fn not_understood(path: &Path, item: &str) -> Error {
    Error::new(ErrorKind::Data, format!("cannot understand {}", path.display()))
        .cause(format!("no {item}"))
        .remedy("report it with the kernel version (`uname -r`)")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kernel_damon::event::tests::{FORMAT, record};
    use crate::kernel_damon::ring::tests::page;

    /// Creates a fake tracefs of two CPUs, and returns the directory of our instance.
    pub(crate) fn fake(root: &Path) -> PathBuf {
        let name = Maker::own(&Proc::default()).unwrap().name();
        let ours = root.join("instances").join(format!("tierscope-{name}"));
        for directory in ["per_cpu/cpu0", "per_cpu/cpu1", EVENT] {
            fs::create_dir_all(ours.join(directory)).unwrap();
        }
        fs::create_dir_all(root.join(EVENT)).unwrap();
        fs::write(root.join(EVENT).join("format"), FORMAT).unwrap();
        for cpu in ["cpu0", "cpu1"] {
            fs::write(ours.join("per_cpu").join(cpu).join("trace_pipe_raw"), []).unwrap();
        }
        ours
    }

    /// Appends events to a CPU's buffer, as the kernel does.
    pub(crate) fn emit(ours: &Path, cpu: &str, events: &[Event]) {
        let path = ours.join("per_cpu").join(cpu).join("trace_pipe_raw");
        let mut text = fs::read(&path).unwrap();
        for event in events {
            text.extend(page(event.time, false, &[(0, record(event))]));
        }
        fs::write(&path, text).unwrap();
    }

    fn event(time: u64) -> Event {
        Event { time, target: 0, regions: 2, start: 0, end: 4096, accesses: 1, age: 1 }
    }

    #[test]
    fn one_event_is_enabled_on_the_monotonic_clock() {
        let root = tempfile::tempdir().unwrap();
        let ours = fake(root.path());
        let _instance = Instance::new(root.path(), 20_000).unwrap();
        let said = |file: &str| fs::read_to_string(ours.join(file)).unwrap();
        assert_eq!(said("trace_clock"), "mono");
        assert_eq!(said("trace_options"), "norecord-cmd");
        // 20,000 regions of 56 bytes, times 4 windows.
        assert_eq!(said("buffer_size_kb"), "4375");
        assert_eq!(said("events/damon/damon_aggregated/enable"), "1");
    }

    // The instance of a killed process goes, that of another program stays.
    #[test]
    fn instances_of_ended_processes_are_removed() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path());
        let at = |name: &str| root.path().join("instances").join(name);
        let left = at(&format!("tierscope-{}", maker::tests::ENDED));
        fs::create_dir(&left).unwrap();
        fs::create_dir(at("trace-cmd")).unwrap();
        let _instance = Instance::new(root.path(), 1000).unwrap();
        assert!(!left.exists() && at("trace-cmd").exists());
    }

    #[test]
    fn every_cpu_is_drained_once() {
        let root = tempfile::tempdir().unwrap();
        let ours = fake(root.path());
        let mut instance = Instance::new(root.path(), 1000).unwrap();
        let drain = |instance: &mut Instance| {
            let mut events = Vec::new();
            assert_eq!(instance.drain(&mut events), Ok(false));
            events.sort_by_key(|event| event.time);
            events
        };
        emit(&ours, "cpu0", &[event(1), event(3)]);
        emit(&ours, "cpu1", &[event(2)]);
        assert_eq!(drain(&mut instance), [event(1), event(2), event(3)]);
        emit(&ours, "cpu1", &[event(4)]);
        assert_eq!(drain(&mut instance), [event(4)]);
        assert_eq!(drain(&mut instance), []);
    }

    #[test]
    fn a_kernel_without_the_event_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let error = Instance::new(root.path(), 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.to_string().contains("CONFIG_DAMON"), "{error}");
    }

    #[test]
    fn damage_carries_path_and_item() {
        let root = tempfile::tempdir().unwrap();
        let ours = fake(root.path());
        let mut instance = Instance::new(root.path(), 1000).unwrap();
        fs::write(ours.join("per_cpu/cpu0/trace_pipe_raw"), [0xff; 64]).unwrap();
        let error = instance.drain(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains("no data of that length"), "{error}");
    }
}
