//! The memory of a workload, mapped and populated.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use tierscope_core::{Error, ErrorKind, Result, units};
use tierscope_toucher::filler::Filler;
use tierscope_workloads::description::Area;

use crate::resources::{Needs, tables_for};

const PAGE: u64 = 4096;
const PMD: u64 = 2 << 20;
const PUD: u64 = 1 << 30;
/// Bytes populated per system call, so that progress is reported and signals are handled in
/// between.
const STEP: u64 = 64 << 20;
/// Default limit on the memfd chunks that a run maps: the kernel allows 65530 mappings.
const MAX_CHUNKS: u64 = 30_000;

/// Backing of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Anonymous memory: every page has a page frame of its own.
    Anonymous {
        /// Whether the kernel may use huge pages.
        huge: bool,
    },
    /// One small memory file, mapped repeatedly: every page has its own page-table entry.
    Memfd {
        /// Size of the file in bytes.
        chunk: u64,
    },
    /// The lab's kernel module that fills page tables fast.
    Filler,
}

impl Backing {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Backing::Anonymous { huge: false } => "anon",
            Backing::Anonymous { huge: true } => "anon, huge pages allowed",
            Backing::Memfd { .. } => "memfd",
            Backing::Filler => "filler",
        }
    }

    /// Resources that `areas` need with this backing.
    pub(crate) fn needs(self, areas: &[Area]) -> Needs {
        let total: u64 = areas.iter().map(|area| rounded(area.bytes)).sum();
        let tables = tables_for(total);
        let count = areas.len() as u64;
        match self {
            Backing::Anonymous { .. } => Needs { data: total, tables, mappings: count },
            Backing::Memfd { chunk } => {
                let mappings = areas.iter().map(|area| rounded(area.bytes).div_ceil(chunk)).sum();
                Needs { data: chunk.min(total), tables, mappings }
            }
            Backing::Filler => Needs { data: PMD, tables, mappings: count },
        }
    }
}

/// Default size of the memory file: 64 MiB, or more if that would need too many mappings.
pub(crate) fn default_chunk(areas: &[Area]) -> u64 {
    let total: u64 = areas.iter().map(|area| rounded(area.bytes)).sum();
    (total / MAX_CHUNKS).next_power_of_two().max(STEP)
}

fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(PMD)
}

/// A mapped area. It stays mapped until the process ends.
pub(crate) struct Mapped {
    start: NonNull<u8>,
    bytes: u64,
    filler: Option<Filler>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is never unmapped while threads
// touch it; bytes are only accessed as atomics.
unsafe impl Send for Mapped {}

impl Mapped {
    /// The first address, a multiple of 1 GiB for areas of that size, else of 2 MiB.
    pub(crate) fn start(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Maps `area` without populating it.
    pub(crate) fn new(area: &Area, backing: Backing) -> Result<Self> {
        let bytes = rounded(area.bytes);
        let mapped = match backing {
            Backing::Filler => return Self::filled(area, bytes),
            Backing::Anonymous { huge } => anonymous(bytes, huge),
            Backing::Memfd { chunk } => repeated(bytes, chunk),
        };
        let start = mapped.map_err(|e| cannot("map", area, e))?;
        Ok(Self { start, bytes, filler: None })
    }

    fn filled(area: &Area, bytes: u64) -> Result<Self> {
        let filler = Filler::open()?;
        let start = fixed(bytes, |at| map_file(at, bytes, filler.as_fd(), 0))
            .map_err(|e| cannot("map", area, e))?;
        Ok(Self { start, bytes, filler: Some(filler) })
    }

    /// Populates every page. `on` receives the number of bytes done, and returns `false` to stop.
    pub(crate) fn populate(
        &self,
        area: &Area,
        backing: Backing,
        on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        if let Some(filler) = &self.filler {
            return filler.fill_all(self.start(), self.start() + self.bytes, on);
        }
        let write = matches!(backing, Backing::Anonymous { .. });
        let around = fault_around(Path::new("/sys/kernel/debug/fault_around_bytes"));
        for from in (0..self.bytes).step_by(STEP as usize) {
            let bytes = STEP.min(self.bytes - from);
            match (backing, around) {
                // The file's pages are resident, so that one fault maps all pages around it.
                (Backing::Memfd { chunk }, Some(around)) if from >= chunk => {
                    self.touch_part(from, bytes, around, write);
                }
                _ => self
                    .populate_part(from, bytes, write)
                    .map_err(|e| cannot("populate", area, e))?,
            }
            if !on(from + bytes) {
                return Ok(());
            }
        }
        match &area.content {
            Some(path) => self.read_content(area, path),
            None => Ok(()),
        }
    }

    fn populate_part(&self, from: u64, bytes: u64, write: bool) -> rustix::io::Result<()> {
        let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        // SAFETY: the part lies within the mapping, and populating changes no content.
        match unsafe {
            madvise(self.start.as_ptr().add(from as usize).cast(), bytes as usize, advice)
        } {
            // Linux before 5.14 does not know the advice.
            Err(rustix::io::Errno::INVAL) => {
                self.touch_part(from, bytes, PAGE, write);
                Ok(())
            }
            other => other,
        }
    }

    fn touch_part(&self, from: u64, bytes: u64, step: u64, write: bool) {
        let places = (from..from + bytes).step_by(step as usize);
        places.for_each(|at| touch(self.start() + at, !write, write));
    }

    fn read_content(&self, area: &Area, path: &str) -> Result<()> {
        // SAFETY: the area's bytes are mapped writable, and no thread touches them yet.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), area.bytes as usize) };
        let mut file = File::open(path).map_err(|e| cannot("fill", area, e))?;
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(cannot("fill", area, e)),
            }
        }
        Ok(())
    }

    /// Empties page tables in advance that would take process exit minutes to free.
    pub(crate) fn release(&self) {
        if let Some(filler) = &self.filler {
            filler.empty_all(self.start(), self.start() + self.bytes);
        }
    }
}

/// Bytes that the kernel maps around a fault on a page of a file (`do_fault_around`, mm/memory.c),
/// if debugfs shows it and it saves calls.
fn fault_around(path: &Path) -> Option<u64> {
    let bytes = std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()?;
    (bytes.is_power_of_two() && (PAGE + 1..=PMD).contains(&bytes)).then_some(bytes)
}

/// Reads and writes the byte at `address`, which must be mapped by a [`Mapped`].
#[inline]
pub(crate) fn touch(address: u64, read: bool, write: bool) {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
    // SAFETY: the address lies within a mapping that is writable and lives as long as the process;
    // all accesses to it are atomic.
    let byte = unsafe { AtomicU8::from_ptr(address as *mut u8) };
    let value = if read { byte.load(Relaxed) } else { 0 };
    // Compilers may drop relaxed atomic loads of unused values: `black_box` uses the value.
    std::hint::black_box(value);
    if write {
        byte.store(value.wrapping_add(1), Relaxed);
    }
}

/// Makes a non-temporal store to the line of `address`, which must be mapped by a [`Mapped`]; on
/// architectures without such an instruction, an ordinary store to the byte.
#[inline]
pub(crate) fn store_non_temporal(address: u64) {
    #[cfg(target_arch = "x86_64")]
    for word in 0..8 {
        let at = (address & !63) + 8 * word;
        // SAFETY: the line lies within a page of a mapping that is writable and lives as long as
        // the process; other accesses to it accept any content.
        unsafe { std::arch::x86_64::_mm_stream_si64(at as *mut i64, address as i64) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    touch(address, false, true);
}

fn cannot(what: &str, area: &Area, cause: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Other,
        format!("cannot {what} area `{}` of {}", area.name, units::about_size(area.bytes)),
    )
    .cause(cause)
    .remedy("see `ulimit -v`, and /proc/sys/vm/overcommit_memory and max_map_count")
}

fn anonymous(bytes: u64, huge: bool) -> rustix::io::Result<NonNull<u8>> {
    let start = fixed(bytes, |at| {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: `fixed` reserved these addresses for this mapping.
        unsafe { mmap_anonymous(at.cast(), bytes as usize, read_write(), flags) }.map(drop)
    })?;
    let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: the range was just mapped. Kernels without huge pages reject the advice, which is
    // fine.
    let _ = unsafe { madvise(start.as_ptr().cast(), bytes as usize, advice) };
    Ok(start)
}

fn repeated(bytes: u64, chunk: u64) -> rustix::io::Result<NonNull<u8>> {
    let file: OwnedFd = memfd_create("tierscope-toucher", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, chunk.min(bytes))?;
    fixed(bytes, |at| {
        (0..bytes).step_by(chunk as usize).try_for_each(|from| {
            // SAFETY: stays within the reserved range.
            let at = unsafe { at.add(from as usize) };
            map_file(at, chunk.min(bytes - from), file.as_fd(), 0)
        })
    })
}

fn map_file(at: *mut u8, bytes: u64, file: impl AsFd, offset: u64) -> rustix::io::Result<()> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the caller reserved these addresses.
    unsafe { mmap(at.cast(), bytes as usize, read_write(), flags, file, offset) }.map(drop)
}

fn read_write() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}

/// Reserves aligned addresses and lets `map` map over them.
fn fixed(
    bytes: u64,
    map: impl FnOnce(*mut u8) -> rustix::io::Result<()>,
) -> rustix::io::Result<NonNull<u8>> {
    let align = if bytes >= PUD { PUD } else { PMD };
    let reserved = bytes + align;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let raw = unsafe {
        mmap_anonymous(std::ptr::null_mut(), reserved as usize, ProtFlags::empty(), flags)
    }?
    .cast::<u8>();
    let before = (raw as u64).next_multiple_of(align) - raw as u64;
    // SAFETY: `before` is below `align`, so start and end stay within the reservation; only
    // addresses outside of `start..start + bytes` are unmapped.
    unsafe {
        let start = raw.add(before as usize);
        if before > 0 {
            munmap(raw.cast(), before as usize)?;
        }
        munmap(start.add(bytes as usize).cast(), (align - before) as usize)?;
        map(start)?;
        Ok(NonNull::new_unchecked(start))
    }
}

/// Reports the progress of populating every two seconds.
pub(crate) struct Progress {
    total: u64,
    before: u64,
    reported: Instant,
}

impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        Self { total, before: 0, reported: Instant::now() }
    }

    pub(crate) fn at(&mut self, done: u64) {
        if self.reported.elapsed() >= Duration::from_secs(2) {
            self.reported = Instant::now();
            eprintln!(
                "toucher: populated {} of {}",
                units::about_size(self.before + done),
                units::about_size(self.total)
            );
        }
    }

    /// Counts an area of `bytes` bytes as done.
    pub(crate) fn next(&mut self, bytes: u64) {
        self.before += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(bytes: u64) -> Area {
        Area { name: "a".into(), bytes, content: None }
    }

    fn mapped(backing: Backing, bytes: u64) -> Mapped {
        let area = area(bytes);
        let mapped = Mapped::new(&area, backing).unwrap();
        mapped.populate(&area, backing, &mut |_| true).unwrap();
        mapped
    }

    fn byte(mapped: &Mapped, at: u64) -> u8 {
        // SAFETY: within the mapping, and single-threaded.
        unsafe { mapped.start.as_ptr().add(at as usize).read_volatile() }
    }

    #[test]
    fn anonymous_pages_are_distinct() {
        let mapped = mapped(Backing::Anonymous { huge: false }, 4 << 20);
        touch(mapped.start() + 4096, true, true);
        assert_eq!((byte(&mapped, 4096), byte(&mapped, 0)), (1, 0));
        assert_eq!(mapped.start() % PMD, 0);
    }

    #[test]
    fn chunks_of_a_memory_file_are_the_same_memory() {
        let mapped = mapped(Backing::Memfd { chunk: 2 << 20 }, 6 << 20);
        touch(mapped.start() + 5, false, true);
        assert_eq!((byte(&mapped, 5), byte(&mapped, (4 << 20) + 5)), (1, 1));
    }

    #[test]
    fn content_is_at_the_start_of_the_area() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"abc").unwrap();
        let backing = Backing::Anonymous { huge: false };
        let area = Area { content: Some(file.path().to_str().unwrap().into()), ..area(5000) };
        let mapped = Mapped::new(&area, backing).unwrap();
        mapped.populate(&area, backing, &mut |_| true).unwrap();
        assert_eq!((byte(&mapped, 0), byte(&mapped, 2), byte(&mapped, 3)), (b'a', b'c', 0));
    }

    // Contents of the debugfs file, valid and useless ones.
    #[test]
    fn fault_around_is_used_if_it_saves_calls() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (content, around) in [("65536\n", Some(65536)), ("4096\n", None), ("x", None)] {
            std::fs::write(file.path(), content).unwrap();
            assert_eq!(fault_around(file.path()), around);
        }
        assert_eq!(fault_around(Path::new("/nonexistent")), None);
    }

    #[test]
    fn a_terabyte_of_memfd_needs_page_tables_only() {
        let areas = [area(5 << 40)];
        let chunk = default_chunk(&areas);
        let needs = Backing::Memfd { chunk }.needs(&areas);
        assert_eq!((needs.data, needs.mappings), (256 << 20, 20_480));
        assert_eq!(needs.tables >> 30, 10);
    }
}
