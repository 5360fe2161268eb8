//! Client of the lab's kernel module that fills page tables fast: the Rust twin of
//! `lab/kmod/filler/tierscope_filler.h`, which specifies the interface.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use tierscope_core::{Error, ErrorKind, Result, units};

/// Path of the module's device.
pub const DEVICE: &str = "/dev/tierscope_filler";
/// Bytes mapped by one lowest-level page table: ranges are multiples of it.
pub const TABLE_BYTES: u64 = 2 << 20;
/// Bytes filled per ioctl in [`Filler::fill_all`], so that progress is reported and signals are
/// handled in between.
const BUDGET: u64 = 16 << 30;

/// `struct tierscope_fill`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Fill {
    /// Size of the structure.
    pub size: u32,
    /// Must be zero.
    pub reserved: u32,
    /// First address of the range.
    pub start: u64,
    /// One past the last address of the range.
    pub end: u64,
    /// Address to continue from; the module advances it.
    pub cursor: u64,
    /// Return after that many bytes; 0: when all is done.
    pub budget: u64,
    /// Result: bytes of page tables needed for the rest.
    pub needed: u64,
    /// Result: bytes of memory available for page tables.
    pub available: u64,
}

impl Fill {
    /// A request for all of `start..end`, none of it done.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Self {
        Self { size: size_of::<Self>() as u32, start, end, cursor: start, ..Self::default() }
    }
}

const MAGIC: u32 = 0xE8;
const FILL: u32 = read_write(1);
const EMPTY: u32 = read_write(2);

/// `_IOWR(MAGIC, number, struct tierscope_fill)` of asm-generic/ioctl.h.
const fn read_write(number: u32) -> u32 {
    3 << 30 | (size_of::<Fill>() as u32) << 16 | MAGIC << 8 | number
}

/// An open filler device.
#[derive(Debug)]
pub struct Filler(File);

impl AsFd for Filler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Filler {
    /// Opens the device.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`]: the module is not loaded, or this user may not open the device.
    pub fn open() -> Result<Self> {
        OpenOptions::new().read(true).write(true).open(DEVICE).map(Self).map_err(|e| {
            Error::new(ErrorKind::Missing, format!("cannot open {DEVICE}"))
                .cause(e)
                .remedy("load the lab's filler module in the lab's machine, or use --backing memfd")
        })
    }

    /// Fills the page tables from the cursor to the end, up to the budget.
    ///
    /// # Errors
    /// As the header specifies; everything before the cursor is done.
    pub fn fill(&self, fill: &mut Fill) -> io::Result<()> {
        self.call(FILL, fill)
    }

    /// Empties the page tables from the cursor to the end, up to the budget.
    ///
    /// # Errors
    /// As the header specifies.
    pub fn empty(&self, fill: &mut Fill) -> io::Result<()> {
        self.call(EMPTY, fill)
    }

    /// Maps every page of `start..end`. `on` receives the number of bytes done, and returns `false`
    /// to stop.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] with figures if there is not enough memory for the page tables.
    pub fn fill_all(&self, start: u64, end: u64, on: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let mut fill = Fill { budget: BUDGET, ..Fill::new(start, end) };
        while fill.cursor < end {
            match self.fill(&mut fill) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(failed(&fill, &e)),
                _ => {}
            }
            if !on(fill.cursor - start) {
                break;
            }
        }
        Ok(())
    }

    /// Unmaps every page of `start..end`; on failure, process exit unmaps the rest.
    pub fn empty_all(&self, start: u64, end: u64) {
        let mut fill = Fill::new(start, end);
        while fill.cursor < end {
            match self.empty(&mut fill) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return,
                _ => {}
            }
        }
    }

    fn call(&self, request: u32, fill: &mut Fill) -> io::Result<()> {
        // SAFETY: both requests take a Fill, validate every address in it, and write nothing else.
        let answer =
            unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, std::ptr::from_mut(fill)) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn failed(fill: &Fill, error: &io::Error) -> Error {
    let what = format!("cannot fill page tables from {:#x} on", fill.cursor);
    if error.raw_os_error() == Some(libc::ENOMEM) {
        return Error::new(ErrorKind::Missing, what)
            .cause(format!(
                "{} of page tables are needed, {} are available",
                units::about_size(fill.needed),
                units::about_size(fill.available)
            ))
            .remedy("take a smaller space, or give the machine more memory");
    }
    Error::new(ErrorKind::Other, what).cause(error).remedy("see the kernel's log")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `#define NAME value` lines and the structure from the header itself.
    #[test]
    fn the_twin_agrees_with_the_header() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/kmod/filler/tierscope_filler.h");
        let header = std::fs::read_to_string(path).unwrap();
        let body =
            header.split("struct tierscope_fill {").nth(1).unwrap().split('}').next().unwrap();
        let fields: Vec<_> =
            body.lines().map(str::trim).filter(|line| line.starts_with("__u")).collect();
        let ours = "__u32 size; __u32 reserved; __u64 start; __u64 end; __u64 cursor; __u64 budget; __u64 needed; __u64 available;";
        assert_eq!(fields.join(" "), ours);
        assert_eq!(size_of::<Fill>(), 56);
        let line = |name: &str| header.lines().find(|line| line.contains(name)).unwrap().to_owned();
        assert!(line("IOC_MAGIC\t").ends_with("0xE8"));
        assert!(line("IOC_FILL\t").contains("_MAGIC, 1, struct tierscope_fill)"));
        assert!(line("IOC_EMPTY\t").contains("_MAGIC, 2, struct tierscope_fill)"));
        assert_eq!((FILL, EMPTY), (0xC038_E801, 0xC038_E802));
    }
}
