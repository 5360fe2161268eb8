//! TLB misses that an instrumented virtual machine records, as a source of samples.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;

use tierscope_core::{Access, Addr, Error, ErrorKind, Lost, Result, Sample, Samples, SpaceId};
use tierscope_wire::device::{Client, rings};
use tierscope_wire::{Consumer, TlbMiss};

use super::telemetry_device::{find_device, map};
use crate::space_owners::{SpaceOwners, listed};

/// TLB misses of processes as samples, without subsampling: every miss is recorded. Records do not
/// distinguish loads from stores: all are reported as loads.
#[derive(Debug)]
pub struct TlbMisses {
    /// One ring per CPU. The memory that they read stays mapped until the program ends.
    rings: Vec<Consumer<'static, TlbMiss>>,
    /// Physical addresses of top-level page tables, with the spaces that they belong to.
    roots: Vec<(u64, SpaceId)>,
    owners: SpaceOwners,
    batch: Vec<TlbMiss>,
}

impl TlbMisses {
    /// Opens the rings of the device below `sys`, for processes that are identified by the address
    /// of their top-level page table ([`root_of`]). Only one reader at a time is possible.
    ///
    /// # Errors
    /// If there is no device, or if it has no rings.
    pub fn open(sys: &Path, roots: Vec<(u64, SpaceId)>) -> Result<Self> {
        let missing = |cause: &str| {
            Error::new(ErrorKind::Missing, "there are no records of TLB misses")
                .cause(cause)
                .remedy("start the machine with parts `device`, `tlb`, and guest_rings = true")
        };
        let function =
            find_device(sys).ok_or_else(|| missing("no PCI function is a telemetry device"))?;
        let words = map(&function)?.leak()?;
        Client::attach(words, 0)?;
        let rings: Vec<_> =
            rings(words).into_iter().map(Consumer::attach).collect::<Result<_>>()?;
        match rings.is_empty() {
            true => Err(missing("the device's memory holds none")),
            false => Ok(Self { rings, roots, owners: SpaceOwners::default(), batch: Vec::new() }),
        }
    }
}

impl TlbMisses {
    /// Sets the owners of the spaces, whose shared memory samples are attributed to.
    pub(crate) fn of_owners(self, owners: SpaceOwners) -> Self {
        Self { owners, ..self }
    }
}

impl Samples for TlbMisses {
    fn drain(&mut self, out: &mut Vec<Sample>) -> Lost {
        let memory = self.owners.memory();
        self.batch.clear();
        let batch = &mut self.batch;
        let lost = self
            .rings
            .iter_mut()
            .map(|ring| ring.drain(batch).map_or(0, |drained| drained.lost.0))
            .sum();
        self.batch.sort_by_key(|miss| miss.time);
        let sample = |miss: &TlbMiss| {
            let (_, space) = self.roots.iter().find(|(root, _)| *root == miss.root)?;
            Some(Sample {
                time: miss.time,
                at: listed(&memory, Addr { space: *space, at: miss.address }),
                access: Access::Load,
                core: miss.cpu.into(),
                tier: None,
            })
        };
        out.extend(self.batch.iter().filter_map(sample));
        Lost(lost)
    }
}

/// The ioctl of [`root_of`]: `_IOWR('T', 0x80, __u64)`, lab/kmod/device/tierscope_device.c.
const ROOT: libc::c_ulong = 3 << 30 | 8 << 16 | (b'T' as libc::c_ulong) << 8 | 0x80;

/// The physical address of a process's top-level page table, which identifies it in records of TLB
/// misses.
///
/// # Errors
/// If the lab's module is not loaded, or if there is no such process.
pub fn root_of(pid: u32) -> Result<u64> {
    let path = "/dev/tierscope_device";
    let failed = |cause: std::io::Error| {
        let kind = match cause.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::Missing,
            std::io::ErrorKind::PermissionDenied => ErrorKind::Permission,
            _ => ErrorKind::Gone,
        };
        Error::new(kind, format!("cannot find the page table of process {pid} through {path}"))
            .cause(cause)
            .remedy("load the lab's module tierscope_device, run as root")
    };
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let mut value = u64::from(pid);
    // SAFETY: the ioctl reads and writes eight bytes at `value`.
    match unsafe { libc::ioctl(file.as_raw_fd(), ROOT, &raw mut value) } {
        0 => Ok(value),
        _ => Err(failed(std::io::Error::last_os_error())),
    }
}
