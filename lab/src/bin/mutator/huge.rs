//! Huge pages, made and taken apart: private ones, those of files, and those of the pool.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd};

use tierscope_lab::guest::mutations::{Kind, Mutations};

use crate::area::{Area, HUGE, MADV_COLLAPSE, PAGE};

const BOTH: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Makes a private huge page, splits its entry, then its folio.
pub(crate) fn collapse_and_split(mutations: &Mutations) {
    let Some(whole) = Area::map(2 * HUGE, libc::MAP_PRIVATE) else { return };
    let page = whole.huge();
    page.advise(libc::MADV_NOHUGEPAGE);
    page.touch(1);
    page.advise(libc::MADV_HUGEPAGE);
    let mut made = false;
    mutations.during(Kind::Collapse, || {
        made = page.advise(MADV_COLLAPSE);
        made
    });
    mutations.during(Kind::Split, || {
        let one = Area { start: page.start + 7 * PAGE, bytes: PAGE };
        one.protect(libc::PROT_READ) && one.protect(BOTH) && split_folio(page) && made
    });
    page.touch(2);
    mutations.during(Kind::Unmap, || whole.unmap());
}

/// By the interface that the kernel's own tests use.
fn split_folio(area: Area) -> bool {
    let (start, end) = (area.start, area.start + area.bytes);
    let command = format!("{},{start:#x},{end:#x}", std::process::id());
    fs::write("/sys/kernel/debug/split_huge_pages", command).is_ok()
}

/// Makes a huge page of a file in memory, and punches a part of it out again.
pub(crate) fn collapse_file(mutations: &Mutations) {
    let Some(file) = memory_file() else { return };
    let Some(place) = Area::map(2 * HUGE, libc::MAP_PRIVATE | libc::MAP_NORESERVE) else { return };
    let page = place.huge();
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: replaces a part of this thread's own mapping.
    let at = unsafe { libc::mmap(page.start as *mut _, HUGE, BOTH, flags, file.as_raw_fd(), 0) };
    if at != libc::MAP_FAILED {
        page.touch(1);
        mutations.during(Kind::FileCollapse, || {
            let made = page.advise(MADV_COLLAPSE);
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let (fd, first, bytes) = (file.as_raw_fd(), 9 * PAGE as i64, 16 * PAGE as i64);
            // SAFETY: a system call on an open file.
            let punched = unsafe { libc::fallocate(fd, mode, first, bytes) } == 0;
            made && punched
        });
    }
    mutations.during(Kind::Unmap, || place.unmap());
}

fn memory_file() -> Option<File> {
    // SAFETY: the name is a C string; a descriptor that nothing else owns.
    let file = unsafe {
        let fd = libc::memfd_create(c"mutator".as_ptr(), libc::MFD_CLOEXEC);
        (fd >= 0).then(|| File::from_raw_fd(fd))
    }?;
    file.set_len(HUGE as u64).ok()?;
    Some(file)
}

/// Maps, protects and unmaps huge pages of the pool.
pub(crate) fn from_pool(mutations: &Mutations) {
    mutations.during(Kind::Hugetlb, || {
        let flags = libc::MAP_PRIVATE | libc::MAP_HUGETLB;
        let Some(area) = Area::map(2 * HUGE, flags) else { return false };
        for page in [area.start, area.start + HUGE] {
            // SAFETY: the pool has set these pages aside for the new mapping.
            unsafe { (page as *mut u8).write_volatile(1) };
        }
        let half = Area { bytes: HUGE, ..area };
        half.protect(libc::PROT_NONE) && half.protect(BOTH) && area.unmap()
    });
}
