//! What a mutator does to its address space while a prober looks at it: kinds, and a page that both
//! share, in which the mutator counts the beginnings and ends of mutations of each kind.
//!
//! A probe *overlaps* a kind if one mutation of the kind was in progress during its whole call: it
//! had begun before the call did, and had not ended when the call had. Calls that a mutation begins
//! or ends in are left out, so that the count is too low rather than too high. Threads die in the
//! middle of mutations when a program executes another or exits: then only that counts.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `munmap`.
    Unmap,
    /// `mremap`.
    Remap,
    /// `mprotect`.
    Protect,
    /// `MADV_DONTNEED`.
    Discard,
    /// A huge page is made: `MADV_COLLAPSE` of private memory.
    Collapse,
    /// A huge page is taken apart: a page of it is protected, and its folio is split.
    Split,
    /// `fork`; not the life of the child.
    Fork,
    /// `execve`, until the address space is gone.
    Exec,
    /// From the last action of the program until the address space is gone.
    Exit,
    /// A mapping of a huge-page pool is made, protected in part, and unmapped.
    Hugetlb,
    /// `UFFDIO_WRITEPROTECT`, on and off.
    UserfaultProtect,
    /// `UFFDIO_MOVE` of pages to another place (Linux 6.8).
    UserfaultMove,
    /// `MADV_PAGEOUT`, and the faults that bring the pages back.
    Swap,
    /// Equal pages are merged, and separated again by writes.
    Merge,
    /// A huge page of a file is made and punched out of it again.
    FileCollapse,
    /// Pages move to another node.
    Migrate,
    /// `mlock` and `munlock`.
    Lock,
}

use Kind::*;

/// Number of kinds.
pub const KINDS: usize = 17;

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; KINDS] = [
        Unmap,
        Remap,
        Protect,
        Discard,
        Collapse,
        Split,
        Fork,
        Exec,
        Exit,
        Hugetlb,
        UserfaultProtect,
        UserfaultMove,
        Swap,
        Merge,
        FileCollapse,
        Migrate,
        Lock,
    ];

    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Unmap => "munmap",
            Remap => "mremap",
            Protect => "mprotect",
            Discard => "discard",
            Collapse => "THP collapse",
            Split => "THP split",
            Fork => "fork",
            Exec => "exec",
            Exit => "exit",
            Hugetlb => "hugetlb",
            UserfaultProtect => "userfaultfd WP",
            UserfaultMove => "userfaultfd MOVE",
            Swap => "swap",
            Merge => "KSM",
            FileCollapse => "file THP",
            Migrate => "migration",
            Lock => "mlock",
        }
    }
}

/// Counters of one kind.
#[derive(Debug, Default)]
struct Counter {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Mutations that had their effect.
    effective: AtomicU64,
}

/// The shared counters of a mutator.
#[derive(Debug)]
pub struct Mutations {
    file: File,
    counters: *const [Counter; KINDS],
}

// SAFETY: the mapping lives as long as the value, and all fields in it are atomic.
unsafe impl Send for Mutations {}
// SAFETY: as above.
unsafe impl Sync for Mutations {}

const BYTES: usize = size_of::<[Counter; KINDS]>();

impl Mutations {
    /// New counters, which programs inherit that this one starts.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new() -> std::io::Result<Self> {
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"mutations".as_ptr(), 0) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: a descriptor that nothing else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(BYTES as u64)?;
        Self::map(file)
    }

    /// The counters that this program inherited under the number [`Self::fd`].
    ///
    /// # Errors
    /// There are none.
    pub fn inherited(fd: i32) -> std::io::Result<Self> {
        // SAFETY: the parent made it for this program alone; a wrong number fails in `map`.
        Self::map(unsafe { File::from_raw_fd(fd) })
    }

    fn map(file: File) -> std::io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { file, counters: at.cast_const().cast() })
    }

    /// Number of the descriptor, for the program that inherits it.
    #[must_use]
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn of(&self, kind: Kind) -> &Counter {
        // SAFETY: mapped and zeroed by the kernel; dropped with the value only.
        unsafe { &(&(*self.counters))[kind as usize] }
    }

    /// Counts a mutation that begins.
    pub fn begin(&self, kind: Kind) {
        self.of(kind).begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts the end of a mutation, and whether it had its effect.
    pub fn end(&self, kind: Kind, effective: bool) {
        self.of(kind).effective.fetch_add(u64::from(effective), Ordering::SeqCst);
        self.of(kind).ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes a mutation; `action` returns whether it had its effect.
    pub fn during(&self, kind: Kind, action: impl FnOnce() -> bool) {
        self.begin(kind);
        let effective = action();
        self.end(kind, effective);
    }

    /// Number of mutations of each kind that had their effect.
    #[must_use]
    pub fn effective(&self) -> [u64; KINDS] {
        Kind::ALL.map(|kind| self.of(kind).effective.load(Ordering::SeqCst))
    }

    /// Calls `call`; returns its result, and for each kind whether a mutation was in progress from
    /// before the call until after it.
    pub fn throughout<T>(&self, call: impl FnOnce() -> T) -> (T, [bool; KINDS]) {
        let begun = Kind::ALL.map(|kind| self.of(kind).begun.load(Ordering::SeqCst));
        let result = call();
        let ended = Kind::ALL.map(|kind| self.of(kind).ended.load(Ordering::SeqCst));
        let dying = [Exec, Exit]
            .into_iter()
            .any(|kind| self.of(kind).begun.load(Ordering::SeqCst) > ended[kind as usize]);
        let overlapped = Kind::ALL.map(|kind| {
            // Of the mutations that had begun before, one at least has not ended.
            let one = begun[kind as usize] > ended[kind as usize];
            one && (!dying || matches!(kind, Exec | Exit))
        });
        (result, overlapped)
    }

    /// Ends all mutations: the threads in the middle of them died when this program began.
    pub fn end_all(&self) {
        for kind in Kind::ALL {
            let begun = self.of(kind).begun.load(Ordering::SeqCst);
            self.of(kind).ended.store(begun, Ordering::SeqCst);
        }
    }
}

impl Drop for Mutations {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and not used after this.
        unsafe { libc::munmap(self.counters.cast_mut().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    fn overlapped(call: impl FnOnce(&Mutations), before: impl FnOnce(&Mutations)) -> bool {
        let mutations = Mutations::new().unwrap();
        before(&mutations);
        let ((), all) = mutations.throughout(|| call(&mutations));
        assert!(all.iter().enumerate().all(|(i, one)| !one || i == Lock as usize));
        all[Lock as usize]
    }

    #[test]
    fn a_mutation_overlaps_a_call_only_if_it_surrounds_it() {
        let begin = |m: &Mutations| m.begin(Lock);
        let end = |m: &Mutations| m.end(Lock, true);
        let nothing = |_: &Mutations| {};
        assert!(overlapped(nothing, begin), "in progress all the time");
        assert!(!overlapped(end, begin), "ends in the call");
        assert!(!overlapped(begin, nothing), "begins in the call");
        assert!(!overlapped(nothing, |m| m.during(Lock, || true)), "ended before");
        assert!(overlapped(end, |m| (begin(m), begin(m)).1), "one of two goes on");
    }

    #[test]
    fn threads_that_die_in_a_mutation_do_not_count() {
        let mutations = Mutations::new().unwrap();
        mutations.begin(Lock);
        mutations.begin(Exec);
        let ((), all) = mutations.throughout(|| ());
        assert!(!all[Lock as usize] && all[Exec as usize]);
        mutations.end_all();
        assert_eq!(mutations.throughout(|| ()).1, [false; KINDS]);
        mutations.begin(Lock);
        assert!(!mutations.throughout(|| mutations.begin(Exit)).1[Lock as usize]);
    }

    #[test]
    fn only_those_with_an_effect_count_as_effective() {
        let mutations = Mutations::new().unwrap();
        let copy = mutations.file.try_clone().unwrap().into_raw_fd();
        let other = Mutations::inherited(copy).unwrap();
        other.during(Swap, || false);
        other.during(Swap, || true);
        assert_eq!(mutations.effective()[Swap as usize], 1);
    }

    #[test]
    fn kinds_are_numbered_in_the_order_of_their_list() {
        assert!(Kind::ALL.iter().enumerate().all(|(i, kind)| *kind as usize == i));
    }
}
