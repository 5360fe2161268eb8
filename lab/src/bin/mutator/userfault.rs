//! Pages that userfaultfd protects and moves.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tierscope_lab::guest::mutations::{Kind, Mutations};

use crate::area::{Area, PAGE};

const PAGES: usize = 256;
/// Times that pages are protected and freed again.
const ROUNDS: usize = 4;

// include/uapi/linux/userfaultfd.h
const API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_MOVE: u64 = 0xc028_aa05;
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;
const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;

struct Userfaults(OwnedFd);

impl Userfaults {
    fn open() -> Option<Self> {
        // SAFETY: a descriptor that nothing else owns.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
        }?;
        let all = Self(fd);
        all.ioctl(UFFDIO_API, &mut [API, 0, 0]).then_some(all)
    }

    /// `argument`: the structure of the call, which consists of 64-bit fields.
    fn ioctl<const N: usize>(&self, call: u64, argument: &mut [u64; N]) -> bool {
        debug_assert_eq!(call >> 16 & 0x3fff, 8 * N as u64, "its size is in the call's number");
        // SAFETY: the kernel reads and writes as many bytes as the call's number states.
        unsafe { libc::ioctl(self.0.as_raw_fd(), call, argument.as_mut_ptr()) == 0 }
    }

    fn register(&self, area: Area, mode: u64) -> bool {
        self.ioctl(UFFDIO_REGISTER, &mut [area.start as u64, area.bytes as u64, mode, 0])
    }
}

fn area() -> Option<Area> {
    let area = Area::map(PAGES * PAGE, libc::MAP_PRIVATE)?;
    area.advise(libc::MADV_NOHUGEPAGE);
    Some(area)
}

/// Protects pages from writes, and lifts it again before one is written.
pub(crate) fn protect(mutations: &Mutations) {
    let (Some(area), Some(faults)) = (area(), Userfaults::open()) else { return };
    area.touch(1);
    mutations.during(Kind::UserfaultProtect, || {
        let protect = |mode| {
            faults.ioctl(UFFDIO_WRITEPROTECT, &mut [area.start as u64, area.bytes as u64, mode])
        };
        faults.register(area, MODE_WP) && (0..ROUNDS).all(|_| protect(1) && protect(0))
    });
    drop(faults);
    area.touch(2);
    mutations.during(Kind::Unmap, || area.unmap());
}

/// Moves pages to a place that has none.
pub(crate) fn shift(mutations: &Mutations) {
    let (Some(from), Some(to), Some(faults)) = (area(), area(), Userfaults::open()) else { return };
    from.touch(1);
    mutations.during(Kind::UserfaultMove, || {
        let (source, target, bytes) = (from.start as u64, to.start as u64, from.bytes as u64);
        faults.register(to, MODE_MISSING)
            && faults.ioctl(UFFDIO_MOVE, &mut [target, source, bytes, 0, 0])
    });
    drop(faults);
    mutations.during(Kind::Unmap, || to.unmap() & from.unmap());
}
