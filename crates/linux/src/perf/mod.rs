//! Sampled accesses by perf_event: Intel PEBS, AMD IBS, or page faults on machines without either.
//!
//! Events are open on every CPU, for all processes; samples of processes that are not watched are
//! dropped when the rings are read. Samples that the kernel lost are counted. CPUs may come and go.

mod event;
#[cfg(test)]
pub(crate) mod file_rings;
mod ring;

use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings::perf_event_mmap_page;
use tierscope_core::{Access, Addr, Error, ErrorKind, Lost, Result, Sample, Samples, SpaceId};

pub use event::Source;
pub(crate) use event::{EventOpener, PerfEventOpen};
pub use ring::{Losses, Record, parse};

use crate::cpus::online;
use crate::open::Host;
use crate::space_owners::{SpaceOwners, listed};

/// Data pages of a ring: 512 KiB hold 9000 samples, two seconds at 5 kHz.
const PAGES: usize = 128;
/// Default samples per second and CPU: the Telescope article's moderate setting.
pub const FREQUENCY: u64 = 5000;

/// Offsets of the ring's head and tail in its first page.
const HEAD: usize = offset_of!(perf_event_mmap_page, data_head);
const TAIL: usize = offset_of!(perf_event_mmap_page, data_tail);
/// User addresses are below this one.
const USER_END: u64 = 1 << 56;

/// The ring of one event on one CPU.
#[derive(Debug)]
struct Ring {
    /// One page for head and tail, then the data pages.
    memory: MmapRaw,
    page: usize,
    /// The event ends when this is closed.
    _fd: OwnedFd,
    access: Access,
    cpu: u32,
}

impl Ring {
    fn map(fd: OwnedFd, access: Access, cpu: u32) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let memory = MmapOptions::new().len((PAGES + 1) * page).map_raw(&fd)?;
        Ok(Self { memory, page, _fd: fd, access, cpu })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the word lies in the first page, is aligned, and both sides access it atomically.
        unsafe { AtomicU64::from_ptr(self.memory.as_mut_ptr().add(at).cast()) }
    }

    /// Copies the records since the last call into a contiguous buffer.
    fn take(&mut self, row: &mut Vec<u8>) {
        let head = self.word(HEAD).load(Ordering::Acquire);
        let tail = self.word(TAIL).load(Ordering::Relaxed);
        // SAFETY: the data pages follow the first page; the kernel does not overwrite records
        // between `tail` and `head` before the new tail is stored.
        let data = unsafe {
            std::slice::from_raw_parts(self.memory.as_ptr().add(self.page), PAGES * self.page)
        };
        ring::copy_unread(data, tail, head, row);
        self.word(TAIL).store(head, Ordering::Release);
    }
}

/// Samples of watched processes.
pub struct PerfSamples {
    rings: Vec<Ring>,
    opener: Opener,
    /// CPUs that were online when they were looked at last.
    cpus: Vec<u32>,
    /// Drains since then.
    drains: u32,
    owners: SpaceOwners,
    row: Vec<u8>,
    losses: Losses,
}

/// Opens the rings of a CPU.
struct Opener {
    sys: PathBuf,
    events: Rc<dyn EventOpener>,
    source: Source,
    frequency: u64,
}

impl Opener {
    fn open(&self, cpu: u32, rings: &mut Vec<Ring>) -> io::Result<()> {
        for event in self.source.events(&self.sys) {
            let fd = self.events.open(event.attr(self.frequency), cpu)?;
            rings.push(Ring::map(fd, event.access, cpu)?);
        }
        Ok(())
    }
}

/// Number of drains after which the online CPUs are looked at again.
const CPUS_AFTER: u32 = 32;

impl PerfSamples {
    /// Opens `source` on every online CPU of `host`, at `frequency` samples per second and CPU.
    ///
    /// # Errors
    /// [`ErrorKind::Permission`] without CAP_PERFMON; [`ErrorKind::Missing`] if the event does not
    /// exist.
    pub(crate) fn open(
        host: &Host<'_>,
        source: Source,
        frequency: u64,
        owners: SpaceOwners,
    ) -> Result<Self> {
        let (sys, events) = (host.sys.to_owned(), Rc::clone(&host.events));
        let (opener, cpus) = (Opener { sys, events, source, frequency }, online(host.sys));
        let mut rings = Vec::new();
        let open = |cpu: &u32| opener.open(*cpu, &mut rings);
        cpus.iter().try_for_each(open).map_err(|e| refused(source, &e))?;
        let (row, losses) = (Vec::new(), Losses::default());
        Ok(Self { rings, opener, cpus, drains: 0, owners, row, losses })
    }

    /// Closes the rings of CPUs that went offline, whose events the kernel has ended, and opens
    /// those of CPUs that came. One that cannot be opened is tried again.
    fn follow_cpus(&mut self) {
        self.drains += 1;
        if self.drains < CPUS_AFTER {
            return;
        }
        self.drains = 0;
        let now = online(&self.opener.sys);
        if now == self.cpus || now.is_empty() {
            return;
        }
        self.rings.retain(|ring| now.contains(&ring.cpu));
        self.cpus.retain(|cpu| now.contains(cpu));
        for cpu in now {
            let mut rings = Vec::new();
            if !self.cpus.contains(&cpu) && self.opener.open(cpu, &mut rings).is_ok() {
                self.rings.append(&mut rings);
                self.cpus.push(cpu);
            }
        }
        self.cpus.sort_unstable();
    }

    /// Counts of lost and throttled samples since opening.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.losses
    }
}

impl Samples for PerfSamples {
    fn drain(&mut self, out: &mut Vec<Sample>) -> Lost {
        let (owners, memory) = (self.owners.all(), self.owners.memory());
        let space = |pid: u32| -> Option<SpaceId> {
            owners.iter().find(|owner| owner.pid == pid).map(|owner| owner.space)
        };
        let (first, mut lost) = (out.len(), 0);
        for ring in &mut self.rings {
            ring.take(&mut self.row);
            let access = ring.access;
            let losses = parse(&self.row, |record| {
                // The hardware does not always know the address; kernel addresses belong to no
                // space.
                let known = record.address != 0 && record.address < USER_END;
                if let Some(space) = space(record.pid).filter(|_| known) {
                    out.push(Sample {
                        time: record.time,
                        at: listed(&memory, Addr { space, at: record.address }),
                        access: record.access.unwrap_or(access),
                        core: record.cpu,
                        tier: None,
                    });
                }
            });
            lost += losses.lost + u64::from(losses.broken > 0);
            self.losses.throttled += losses.throttled;
            self.losses.broken += losses.broken;
        }
        self.losses.lost += lost;
        out[first..].sort_by_key(|sample| sample.time);
        self.follow_cpus();
        Lost(lost)
    }
}

fn refused(source: Source, error: &io::Error) -> Error {
    let what = match source {
        Source::Precise => "cannot sample loads and stores (PEBS)",
        Source::Ibs => "cannot sample operations (IBS)",
        Source::Faults => "cannot sample page faults",
    };
    let (kind, remedy) = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            (ErrorKind::Permission, "run as root, or with CAP_PERFMON; see perf_event_paranoid")
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            (ErrorKind::Other, "raise the limit of open files with `ulimit -n`")
        }
        Some(libc::EBUSY) => {
            (ErrorKind::Missing, "end other users of the PMU (the NMI watchdog, perf)")
        }
        _ => (ErrorKind::Missing, "choose an instrument or policy that works on ACCESSED bits"),
    };
    Error::new(kind, what).cause(error).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::space_owners::Owner;

    fn open(pid: u32) -> Option<PerfSamples> {
        let owners = SpaceOwners::default();
        owners.set(&[Owner { space: SpaceId(4), pid, started: 0 }], Arc::default());
        PerfSamples::open(&Host::default(), Source::Faults, 0, owners)
            .inspect_err(|error| tierscope_conformance::skip::skipped(error))
            .ok()
    }

    /// Maps pages and touches every third of them; returns the addresses of the touched pages.
    fn touch(pages: usize) -> (rustix::mm::MapFlags, BTreeSet<u64>) {
        let flags = rustix::mm::MapFlags::PRIVATE;
        let bytes = pages * 4096;
        // SAFETY: a new mapping, which only this function uses.
        let memory = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                flags,
            )
        }
        .unwrap();
        // Otherwise one fault could map a whole huge page of 2 MiB.
        // SAFETY: madvise affects that mapping only.
        unsafe { libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE) };
        let mut touched = BTreeSet::new();
        for page in (0..pages).step_by(3) {
            // SAFETY: the address lies inside of the mapping.
            unsafe { memory.cast::<u8>().add(page * 4096).write_volatile(1) };
            touched.insert(memory as u64 + page as u64 * 4096);
        }
        (flags, touched)
    }

    // Each page fault of this process is sampled exactly once, and no untouched page is.
    #[test]
    fn faults_of_this_process_come_through_the_ring() {
        let Some(mut samples) = open(std::process::id()) else { return };
        let mut out = Vec::new();
        samples.drain(&mut out);
        let (_, touched) = touch(900);
        out.clear();
        let lost = samples.drain(&mut out);
        let seen: Vec<u64> = out.iter().map(|sample| sample.at.at & !4095).collect();
        let ours: Vec<u64> = seen.into_iter().filter(|page| touched.contains(page)).collect();
        assert_eq!((ours.iter().copied().collect::<BTreeSet<u64>>(), lost), (touched, Lost(0)));
        assert_eq!(ours.len(), 300);
        assert!(out.iter().all(|sample| sample.at.space == SpaceId(4)));
        assert!(out.is_sorted_by_key(|sample| sample.time));
    }

    /// Pins this thread to the first CPU that it may run on.
    fn stay() {
        let mut set = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..1024).find(|cpu| set.is_set(*cpu)).unwrap();
        set.clear();
        set.set(first);
        rustix::thread::sched_setaffinity(None, &set).unwrap();
    }

    // A ring that is not read becomes full after 9362 samples of 56 bytes. The next sample that
    // fits is preceded by the number of lost ones.
    #[test]
    fn samples_lost_by_a_full_ring_are_counted() {
        stay();
        let Some(mut samples) = open(std::process::id()) else { return };
        let (mut seen, mut lost, mut touched) = (0, 0, 0);
        for pages in [60_000, 300] {
            let (_, some) = touch(pages);
            let mut out = Vec::new();
            lost += samples.drain(&mut out).0;
            seen += out.iter().filter(|sample| some.contains(&(sample.at.at & !4095))).count();
            touched += some.len();
        }
        assert!(seen < touched && lost > 0, "{seen} of {touched}, {lost} lost");
        // Page faults of tests that run concurrently may be lost as well.
        assert!(seen as u64 + lost >= touched as u64, "{seen} of {touched}, {lost} lost");
        assert_eq!(samples.losses().lost, lost);
    }

    #[test]
    fn samples_of_other_processes_are_dropped() {
        let Some(mut samples) = open(1 << 30) else { return };
        touch(30);
        let mut out = Vec::new();
        samples.drain(&mut out);
        assert_eq!(out, []);
    }
}
