//! A page of this process for the module's self-test.

use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use tierscope_core::{Error, ErrorKind, PAGE_SIZE, Result};

/// A private, anonymous page without other users, never part of a huge page: the kernel may merge
/// its mapping with a neighbour's, and a huge page has no entry of level 1 to prove.
pub(crate) struct SelfTestPage(NonNull<u8>);

impl SelfTestPage {
    pub(crate) fn new() -> Result<Self> {
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: this creates an anonymous mapping at an address that the kernel chooses.
        let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_SIZE as usize, flags.0, flags.1) };
        if let Ok(page) = page {
            // A kernel without transparent huge pages refuses the advice, and does not need it.
            // SAFETY: the advice changes no content, and the page was mapped right above.
            let _ = unsafe { madvise(page, PAGE_SIZE as usize, Advice::LinuxNoHugepage) };
        }
        page.ok().and_then(|page| NonNull::new(page.cast())).map(Self).ok_or_else(|| {
            Error::new(ErrorKind::Other, "cannot map a page for the self-test")
                .cause("out of memory")
                .remedy("free some memory")
        })
    }

    /// Writes to the page, so that it is resident, and returns its address.
    pub(crate) fn touched(&self) -> u64 {
        // SAFETY: the mapping belongs to `self`, is writable, and lives as long as `self`.
        unsafe { self.0.as_ptr().write_volatile(1) };
        self.0.as_ptr() as u64
    }
}

impl Drop for SelfTestPage {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`, and nothing borrows from it. If munmap failed, one
        // page would be leaked, which is harmless.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), PAGE_SIZE as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of flags of the mapping that holds an address, in `/proc/self/smaps`.
    fn flags_at(address: u64) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("procfs is mounted");
        let mut inside = false;
        for line in maps.lines() {
            let span = line.split_once(' ').and_then(|(span, _)| span.split_once('-'));
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            if let Some((Some(from), Some(to))) = span.map(|(a, b)| (number(a), number(b))) {
                inside = (from..to).contains(&address);
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.to_owned();
            }
        }
        panic!("{address:#x} is not mapped");
    }

    // Where the mapping merges with its neighbours, which depends on address randomization, a huge
    // page may cover it, and then level 1 is not proven.
    #[test]
    fn the_page_is_never_huge() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let page = SelfTestPage::new().expect("a page can be mapped");
        let flags = flags_at(page.touched());
        assert!(flags.split_whitespace().any(|flag| flag == "nh"), "{flags}");
    }
}
