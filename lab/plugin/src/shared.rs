//! Files of the run's directory, mapped for as long as QEMU runs.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

/// Maps a whole file that is there, for reading and writing, for good.
///
/// # Errors
/// It is missing or not as long as said: the path and why.
pub fn map_file(path: &str, bytes: u64) -> Result<*mut u8, String> {
    let file =
        OpenOptions::new().read(true).write(true).open(path).map_err(|e| format!("{path}: {e}"))?;
    let there = file.metadata().map_err(|e| format!("{path}: {e}"))?.len();
    if there < bytes {
        return Err(format!("{path} has {there} bytes, {bytes} are needed"));
    }
    // SAFETY: a new mapping at an address that the kernel chooses touches nothing of ours.
    let base = unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, file.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED {
        return Err(format!("{path}: {}", std::io::Error::last_os_error()));
    }
    Ok(base.cast())
}

/// As [`map_file`], as words.
///
/// # Errors
/// As there.
pub fn map_words(path: &str, bytes: u64) -> Result<&'static [AtomicU64], String> {
    let base = map_file(path, bytes)?;
    // SAFETY: mapped for good, page-aligned, and touched through atomics only, here and by whoever shares it.
    unsafe { tierscope_wire::ring::region(base, bytes as usize) }.map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_mappings_of_a_file_are_one_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let path = file.path().to_str().unwrap();
        let (one, other) = (map_words(path, 4096).unwrap(), map_words(path, 4096).unwrap());
        one[7].store(9, Relaxed);
        assert_eq!(other[7].load(Relaxed), 9);
        assert!(map_words(path, 4097).unwrap_err().contains("has 4096 bytes"));
        assert!(map_words("/nowhere", 1).unwrap_err().contains("/nowhere"));
    }
}
