//! The module's character device behind a trait: unit tests substitute a page table of their own.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use crate::abi;

/// Opens file descriptors of the kernel module.
pub trait Device {
    /// Opens a new channel, not yet attached.
    ///
    /// # Errors
    /// Those of `open(2)` of the device.
    fn open(&self) -> io::Result<Box<dyn Channel>>;

    /// Name of the device, for messages.
    fn name(&self) -> String;
}

/// One open file of the device: the six calls of `kmod/tierscope_abi.h`, with slices in place of
/// arrays. Implementations fill in addresses and counts; callers fill in the other fields.
pub trait Channel {
    /// INFO: facts of the running kernel.
    ///
    /// # Errors
    /// Those of the ioctl, as in all other calls. Fields that the module wrote are in `info` even
    /// then.
    fn info(&mut self, info: &mut abi::Info) -> io::Result<()>;

    /// ATTACH: binds the channel to an address space.
    fn attach(&mut self, attach: &mut abi::Attach) -> io::Result<()>;

    /// PROBE: judges a batch. The header is written back, with the number of completed probes.
    fn probe(&mut self, header: &mut abi::Probes, probes: &mut [abi::Probe]) -> io::Result<()>;

    /// SCAN: judges a range; `present` may be empty. The bitmaps hold a bit for each entry in
    /// `start..end`.
    fn scan(
        &mut self,
        scan: &mut abi::Scan,
        young: &mut [u64],
        present: &mut [u64],
    ) -> io::Result<()>;

    /// FLUSH: flushes the target's TLB entries.
    fn flush(&mut self, flush: &mut abi::Flush) -> io::Result<()>;

    /// STATS: reads the channel's statistics.
    fn stats(&mut self, stats: &mut abi::Stats) -> io::Result<()>;
}

/// The character device `/dev/tierscope`.
#[derive(Debug)]
pub struct CharDevice {
    path: PathBuf,
}

impl Default for CharDevice {
    fn default() -> Self {
        Self { path: PathBuf::from("/dev").join(abi::DEVICE_NAME) }
    }
}

impl Device for CharDevice {
    fn open(&self) -> io::Result<Box<dyn Channel>> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        Ok(Box::new(OpenDevice(file)))
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

struct OpenDevice(File);

impl OpenDevice {
    /// # Safety
    /// `request` takes a `T`, and every address in `arg` is valid for the accesses that the request
    /// makes there.
    unsafe fn call<T>(&self, request: u32, arg: &mut T) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        // SAFETY: `arg` is a live, exclusive T; the caller guarantees the rest.
        let answer = unsafe { libc::ioctl(fd, request as _, std::ptr::from_mut(arg)) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Channel for OpenDevice {
    fn info(&mut self, info: &mut abi::Info) -> io::Result<()> {
        // SAFETY: INFO takes an Info without addresses; a newer module writes no more than
        // `info.size` bytes.
        unsafe { self.call(abi::IOC_INFO, info) }
    }

    fn attach(&mut self, attach: &mut abi::Attach) -> io::Result<()> {
        // SAFETY: ATTACH takes an Attach. The kernel only reads at the address in it, which it
        // checks.
        unsafe { self.call(abi::IOC_ATTACH, attach) }
    }

    fn probe(&mut self, header: &mut abi::Probes, probes: &mut [abi::Probe]) -> io::Result<()> {
        header.count = u32::try_from(probes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        header.probes = probes.as_mut_ptr() as u64;
        // SAFETY: PROBE takes a Probes whose address and count are those of the slice.
        unsafe { self.call(abi::IOC_PROBE, header) }
    }

    fn scan(
        &mut self,
        scan: &mut abi::Scan,
        young: &mut [u64],
        present: &mut [u64],
    ) -> io::Result<()> {
        let words = words_needed(scan)?;
        if young.len() < words || !(present.is_empty() || present.len() >= words) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        scan.young = young.as_mut_ptr() as u64;
        scan.present = if present.is_empty() { 0 } else { present.as_mut_ptr() as u64 };
        // SAFETY: SCAN takes a Scan; both bitmaps hold the words of its range.
        unsafe { self.call(abi::IOC_SCAN, scan) }
    }

    fn flush(&mut self, flush: &mut abi::Flush) -> io::Result<()> {
        // SAFETY: FLUSH takes a Flush without addresses.
        unsafe { self.call(abi::IOC_FLUSH, flush) }
    }

    fn stats(&mut self, stats: &mut abi::Stats) -> io::Result<()> {
        // SAFETY: STATS takes a Stats without addresses.
        unsafe { self.call(abi::IOC_STATS, stats) }
    }
}

/// Words in a bitmap of the scan's range.
fn words_needed(scan: &abi::Scan) -> io::Result<usize> {
    let level = u8::try_from(scan.level).ok().and_then(tierscope_core::Level::new);
    let (Some(level), true) = (level, scan.start <= scan.end) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let entries = (scan.end - scan.start).div_ceil(level.entry_bytes());
    usize::try_from(entries.div_ceil(64)).map_err(|_| io::ErrorKind::InvalidInput.into())
}
