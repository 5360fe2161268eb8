//! Memory of all kinds.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::{MIB, PAGE};

/// `MADV_PAGEOUT` of Linux 5.4 (include/uapi/asm-generic/mman-common.h).
const MADV_PAGEOUT: libc::c_int = 21;

/// Bytes of each kind of memory, and of its hot part in the middle.
const KIND: usize = 16 * MIB;
const KIND_HOT: usize = 4 * MIB;

/// A mapping that stays until the process ends.
pub(crate) struct Area {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) hot: Range<usize>,
}

/// Size of the pages of anonymous memory.
#[derive(Clone, Copy)]
pub(crate) enum Pages {
    /// 4 KiB.
    Small,
    /// Transparent huge pages.
    Huge,
    /// Of the pool of huge pages.
    Pool,
    /// 4 KiB, merged by KSM: two pages have the same content.
    Merged,
}

impl Area {
    /// Anonymous memory of that many MiB, populated.
    pub(crate) fn anonymous(mib: u64, hot_mib: u64, pages: Pages) -> Result<Self, String> {
        let flags = match pages {
            Pages::Pool => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB,
            _ => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        };
        let (bytes, hot) = ((mib as usize) * MIB, (hot_mib as usize) * MIB);
        let area = Self::of(map(bytes, WRITABLE, flags, None)?, bytes, hot);
        match pages {
            Pages::Pool => {}
            Pages::Small => area.advise(0..bytes, libc::MADV_NOHUGEPAGE)?,
            Pages::Huge => area.advise(0..bytes, libc::MADV_HUGEPAGE)?,
            Pages::Merged => {
                area.advise(0..bytes, libc::MADV_NOHUGEPAGE)?;
                area.advise(0..bytes, libc::MADV_MERGEABLE)?;
            }
        }
        area.populate(if matches!(pages, Pages::Merged) { 2 * PAGE } else { PAGE });
        Ok(area)
    }

    /// A mapping of a file of that size, populated.
    fn file(file: &File, flags: libc::c_int) -> Result<Self, String> {
        file.set_len(KIND as u64).map_err(|e| format!("a file of {KIND} bytes: {e}"))?;
        let area = Self::of(map(KIND, WRITABLE, flags, Some(file))?, KIND, KIND_HOT);
        match flags {
            libc::MAP_SHARED => area.populate(PAGE),
            // Written pages of a private mapping would be anonymous memory.
            _ => area.read(area.start..area.start + area.bytes),
        }
        Ok(area)
    }

    fn of(start: usize, bytes: usize, hot: usize) -> Self {
        let first = start + (bytes - hot) / 2;
        Self { start, bytes, hot: first..first + hot }
    }

    /// Writes a number to every page, the next one after `step` bytes.
    fn populate(&self, step: usize) {
        for at in (0..self.bytes).step_by(PAGE) {
            let page = (self.start + at) as *mut usize;
            // SAFETY: the page is mapped, writable and aligned.
            unsafe { page.write_volatile(self.start + at / step * step) };
        }
    }

    /// Reads a byte of every hot page.
    pub(crate) fn read_hot(&self) {
        self.read(self.hot.clone());
    }

    fn read(&self, part: Range<usize>) {
        read(part);
    }

    /// Pages out the last MiB.
    pub(crate) fn page_out(&self, mib: u64) -> Result<(), String> {
        self.advise(self.bytes - (mib as usize) * MIB..self.bytes, MADV_PAGEOUT)
    }

    fn advise(&self, part: Range<usize>, advice: libc::c_int) -> Result<(), String> {
        let start = (self.start + part.start) as *mut libc::c_void;
        // SAFETY: all advices in use keep the content of the memory.
        match unsafe { libc::madvise(start, part.len(), advice) } {
            0 => Ok(()),
            _ => Err(format!("madvise {advice}: {}", io::Error::last_os_error())),
        }
    }
}

/// Reads a byte of every page, all of which are mapped and readable.
pub(crate) fn read(part: Range<usize>) {
    for at in part.step_by(PAGE) {
        // SAFETY: callers give ranges of mappings that stay.
        unsafe { (at as *const u8).read_volatile() };
    }
}

const WRITABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A new mapping.
pub(crate) fn map(
    bytes: usize,
    protection: libc::c_int,
    flags: libc::c_int,
    file: Option<&File>,
) -> Result<usize, String> {
    let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, descriptor, 0) };
    match start {
        libc::MAP_FAILED => Err(format!("mmap {bytes}: {}", io::Error::last_os_error())),
        start => Ok(start.addr()),
    }
}

/// Reserves that many GiB of writable memory, and as many without permissions.
pub(crate) fn reserve(gib: u64) -> Result<(), String> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    for protection in [WRITABLE, libc::PROT_NONE] {
        map((gib as usize) << 30, protection, flags, None)?;
    }
    Ok(())
}

/// Private pages of the pool, transparent huge pages, KSM, a memfd, shared memory by name, and a
/// private file.
pub(crate) fn kinds() -> Result<Vec<Area>, String> {
    let (mib, hot) = ((KIND / MIB) as u64, (KIND_HOT / MIB) as u64);
    let mut areas = Vec::new();
    for pages in [Pages::Pool, Pages::Huge, Pages::Merged] {
        areas.push(Area::anonymous(mib, hot, pages)?);
    }
    // SAFETY: the name is a string that ends with 0.
    let memfd = unsafe { libc::memfd_create(c"shape".as_ptr(), 0) };
    if memfd < 0 {
        return Err(format!("memfd_create: {}", io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is new, and owned by nothing else.
    areas.push(Area::file(&unsafe { File::from_raw_fd(memfd) }, libc::MAP_SHARED)?);
    for (path, flags) in [("/dev/shm/shape", libc::MAP_SHARED), ("/tmp/shape", libc::MAP_PRIVATE)] {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
        areas.push(Area::file(&file.map_err(|e| format!("{path}: {e}"))?, flags)?);
    }
    Ok(areas)
}
