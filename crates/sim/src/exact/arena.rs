//! Host memory for arrays that grow to gigabytes: zeroed, on huge pages if the host has them, never
//! copied when it grows.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed, munmap,
};
use tierscope_core::{Error, ErrorKind, Result};

/// Types for which all bits zero is a value.
///
/// # Safety
/// The implementing type must allow all-zero bits, and have no padding and no destructor.
pub(super) unsafe trait Zeroable: Copy {}

// SAFETY: any bits are a u8.
unsafe impl Zeroable for u8 {}
// SAFETY: any bits are a u64.
unsafe impl Zeroable for u64 {}

/// An array of zeroed items that grows by moving its page-table entries (mremap(2)). It begins at a
/// 2 MiB boundary of the host and moves from one to another; otherwise the host would split its
/// huge pages, and every access to a gigabyte would miss the host's TLB.
pub(super) struct Arena<T: Zeroable> {
    start: NonNull<T>,
    items: usize,
}

/// The smallest mapping, and the unit of lengths: a huge page of the host.
const GRAIN: usize = 2 << 20;

impl<T: Zeroable> Arena<T> {
    /// An empty array.
    pub(super) fn new() -> Self {
        Self { start: NonNull::dangling(), items: 0 }
    }

    /// Makes room for at least `items`; new ones are zero.
    ///
    /// # Errors
    /// The host has no memory left.
    #[inline]
    pub(super) fn reach(&mut self, items: usize) -> Result<()> {
        if items <= self.items { Ok(()) } else { self.grow(items) }
    }

    #[cold]
    fn grow(&mut self, items: usize) -> Result<()> {
        let old = self.bytes();
        let wanted = (items * size_of::<T>()).max(old * 2).next_multiple_of(GRAIN);
        let moved = map(wanted).and_then(|new| move_mapping(self.start.cast(), old, new, wanted));
        let start = moved.map_err(|errno| {
            Error::new(
                ErrorKind::Other,
                format!("no room for {} MiB of simulated state", wanted >> 20),
            )
            .cause(errno)
            .remedy("simulate a smaller footprint, or use density mode")
        })?;
        // SAFETY: the mapping is ours; advice changes no contents. A host without huge pages
        // refuses, and small pages are used then.
        let _ = unsafe { madvise(start.as_ptr(), wanted, Advice::LinuxHugepage) };
        self.start = start.cast();
        self.items = wanted / size_of::<T>();
        Ok(())
    }

    fn bytes(&self) -> usize {
        (self.items * size_of::<T>()).next_multiple_of(GRAIN)
    }
}

/// Fresh memory, aligned to a huge page.
fn map(bytes: usize) -> rustix::io::Result<NonNull<c_void>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let some = bytes + GRAIN;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps no other.
    let start = unsafe {
        mmap_anonymous(std::ptr::null_mut(), some, ProtFlags::READ | ProtFlags::WRITE, flags)?
    };
    let before = start.align_offset(GRAIN);
    // SAFETY: the parts before and behind the aligned part belong to this new mapping, and no
    // pointer to them exists yet. No range of zero bytes is unmapped.
    unsafe {
        let begin = start.byte_add(before);
        if before > 0 {
            munmap(start, before)?;
        }
        if before < GRAIN {
            munmap(begin.byte_add(bytes), GRAIN - before)?;
        }
        Ok(NonNull::new(begin).expect("a mapping is not at zero"))
    }
}

/// Moves the contents of `start` to the beginning of the mapping at `new`; returns their new
/// address.
fn move_mapping(
    start: NonNull<c_void>,
    old: usize,
    new: NonNull<c_void>,
    wanted: usize,
) -> rustix::io::Result<NonNull<c_void>> {
    if old > 0 {
        let flags = MremapFlags::MAYMOVE;
        // SAFETY: both mappings are ours; no pointer into the old one is left, since slices borrow
        // the arena; and nothing was written to the new one.
        unsafe { mremap_fixed(start.as_ptr(), old, wanted, flags, new.as_ptr())? };
    }
    Ok(new)
}

impl<T: Zeroable> Deref for Arena<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `items` items are mapped, zeroed or written, and all-zero bits are a valid `T`;
        // zero items make an empty slice at a dangling, aligned pointer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.items) }
    }
}

impl<T: Zeroable> DerefMut for Arena<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the arena is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.items) }
    }
}

impl<T: Zeroable> Drop for Arena<T> {
    fn drop(&mut self) {
        if self.items > 0 {
            // SAFETY: the mapping is ours, and no reference into it is left.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes()) };
        }
    }
}

// SAFETY: it owns its memory, as a Vec does.
unsafe impl<T: Zeroable + Send> Send for Arena<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_survive_growth() {
        let mut arena = Arena::<u64>::new();
        assert!(arena.is_empty());
        for power in 10..21 {
            arena.reach(1 << power).expect("a few MiB are there");
            arena[(1 << power) - 1] = power;
        }
        assert!((10..21).all(|power| arena[(1 << power) - 1] == power));
        assert_eq!(arena.iter().filter(|item| **item != 0).count(), 11);
        assert!(arena.as_ptr().cast::<u8>().align_offset(GRAIN) == 0, "{:?}", arena.as_ptr());
    }
}
