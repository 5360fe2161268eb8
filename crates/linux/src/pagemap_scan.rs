//! The ioctl PAGEMAP_SCAN (Linux 6.7, include/uapi/linux/fs.h): pages of a process by category.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Start and end of adjacent pages, and their categories.
pub type Answer = [u64; 3];

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong =
    (3 << 30) | ((size_of::<Argument>() as libc::c_ulong) << 16) | (0x66 << 8) | 16;

/// Which pages are listed, in sets of categories.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Pages have all of these.
    pub all_of: u64,
    /// Pages have none of these.
    pub none_of: u64,
    /// Pages have at least one of these, if there are any.
    pub any_of: u64,
    /// Categories that answers name.
    pub named: u64,
}

/// Lists pages from `start` to `end` of the process whose /proc/PID/pagemap `file` is; returns the
/// number of answers, and the address up to which they go.
///
/// # Errors
/// The kernel lacks the ioctl or a category, or the process is gone.
pub fn scan(
    file: &File,
    (start, end): (u64, u64),
    wanted: Wanted,
    answers: &mut [Answer],
) -> io::Result<(usize, u64)> {
    let mut argument = Argument {
        size: size_of::<Argument>() as u64,
        start,
        end,
        vec: answers.as_mut_ptr() as u64,
        vec_len: answers.len() as u64,
        category_inverted: wanted.none_of,
        category_mask: wanted.all_of | wanted.none_of,
        category_anyof_mask: wanted.any_of,
        return_mask: wanted.named,
        ..Argument::default()
    };
    // SAFETY: the kernel reads and writes the argument, of the size in it, and writes up to
    // `vec_len` answers of three words each to `vec`, which has room for them.
    let count = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut argument) };
    match usize::try_from(count) {
        Ok(count) => Ok((count.min(answers.len()), argument.walk_end)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
