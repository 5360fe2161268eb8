//! Parser of `/proc/PID/smaps` (fs/proc/task_mmu.c: `show_smap`).

use std::io::{BufRead, BufReader};
use std::path::Path;

use tierscope_core::Result;

use super::{Proc, each_line, open};

/// Fields of the pages of a mapping: in memory, in a huge-page pool, swapped.
const FIELDS: [&[u8]; 4] = [b"Rss:", b"Swap:", b"Shared_Hugetlb:", b"Private_Hugetlb:"];

impl Proc {
    /// Start and end of the mappings of process `pid` that have pages in memory or swapped, sorted;
    /// `None` if it is gone.
    ///
    /// # Errors
    /// If the file cannot be read, or is malformed.
    pub(crate) fn populated(&self, pid: u32) -> Result<Option<Vec<(u64, u64)>>> {
        let path = self.path(pid, "smaps");
        let Some(file) = open(&path)? else { return Ok(None) };
        populated(BufReader::new(file), &path)
    }
}

/// Bytes in pages of a huge-page pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolBytes {
    /// Of shared mappings, whether or not other processes map the pages now.
    pub(crate) shared: u64,
    /// Of private mappings.
    pub(crate) private: u64,
}

impl Proc {
    /// Bytes of process `pid` in pages of a huge-page pool, by the flags of their mappings: the
    /// fields `Shared_Hugetlb` and `Private_Hugetlb` say how many processes map a page; `None` if
    /// it is gone.
    ///
    /// # Errors
    /// Same as [`Proc::populated`].
    pub(crate) fn pool_bytes(&self, pid: u32) -> Result<Option<PoolBytes>> {
        let path = self.path(pid, "smaps");
        let Some(file) = open(&path)? else { return Ok(None) };
        pool_bytes(BufReader::new(file), &path)
    }
}

fn pool_bytes(text: impl BufRead, path: &Path) -> Result<Option<PoolBytes>> {
    let (mut found, mut of_mapping) = (PoolBytes::default(), 0u64);
    let read = each_line(text, path, |line| {
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            let has = |flag: &[u8]| flags.split(|b| *b == b' ').any(|word| word == flag);
            // Flag `sh` is absent where the file is not writable; the memory is shared even so.
            let bytes = std::mem::take(&mut of_mapping);
            let kind = match has(b"sh") || has(b"ms") {
                true => &mut found.shared,
                false => &mut found.private,
            };
            *kind = kind.saturating_add(if has(b"ht") { bytes } else { 0 });
        } else if line.starts_with(b"Shared_Hugetlb:") || line.starts_with(b"Private_Hugetlb:") {
            let (_, rest) = line.split_at(line.iter().position(|b| *b == b':').unwrap_or(0) + 1);
            let kib = size(rest).ok_or("size")?;
            of_mapping = of_mapping.saturating_add(kib.saturating_mul(1024));
        }
        Ok(())
    })?;
    Ok(read.map(|()| found))
}

fn populated(text: impl BufRead, path: &Path) -> Result<Option<Vec<(u64, u64)>>> {
    let (mut ranges, mut current) = (Vec::new(), None);
    let read = each_line(text, path, |line| {
        let (first, rest) =
            line.split_at(line.iter().position(|b| *b == b' ').unwrap_or(line.len()));
        if !first.ends_with(b":") {
            current = Some(range(first).ok_or("address range")?);
        } else if FIELDS.contains(&first) && size(rest).ok_or("size")? > 0 {
            ranges.extend(current.take());
        }
        Ok(())
    })?;
    Ok(read.map(|()| ranges))
}

/// A range like `5555000-5556000`.
fn range(text: &[u8]) -> Option<(u64, u64)> {
    let (start, end) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// The number of a size like `   12 kB`.
fn size(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::ErrorKind;

    // Mappings with pages, without, with swapped ones, and of a huge-page pool.
    #[test]
    fn mappings_with_pages_are_listed() {
        let text = "\
            1000-3000 rw-p 00000000 00:00 0                          [heap]\nSize:  8 kB\nRss:     4 kB\nSwap:   4 kB\n\
            4000-5000 ---p 00000000 00:00 0 \nRss:    0 kB\nSwap:   0 kB\nVmFlags: mr mw me\n\
            6000-8000 rw-p 00000000 00:00 0 \nRss:    0 kB\nSwap:   8 kB\n\
            a00000-c00000 rw-s 00000000 00:0f 7 /anon_hugepage\nRss:  0 kB\nShared_Hugetlb:  2048 kB\n";
        let found = populated(text.as_bytes(), Path::new("smaps")).unwrap().unwrap();
        assert_eq!(found, [(0x1000, 0x3000), (0x6000, 0x8000), (0xa0_0000, 0xc0_0000)]);
        let broken = populated("1000-3000 rw-p\nRss: many kB\n".as_bytes(), Path::new("smaps"));
        assert_eq!(broken.unwrap_err().kind(), ErrorKind::Data);
    }

    // A shared mapping whose 2 MiB no other process maps, a shared one that is only read, with 4 of
    // its 8 MiB mapped by others, a private one; and memory that is of no pool.
    #[test]
    fn pool_pages_are_shared_if_their_mapping_is() {
        let text = "\
            a00000-c00000 rw-s 0 00:0f 7 /anon_hugepage\nPrivate_Hugetlb:  2048 kB\nVmFlags: rd wr sh mr mw me ms de ht sd \n\
            c00000-1400000 r--s 0 00:0f 7 /p\nShared_Hugetlb: 4096 kB\nPrivate_Hugetlb: 4096 kB\nVmFlags: rd mr me ms de ht \n\
            2000000-2400000 rw-p 0 00:0f 7 /p\nPrivate_Hugetlb: 4096 kB\nVmFlags: rd wr mr mw me de ht \n\
            3000000-3400000 rw-s 0 00:0f 9 /shm\nRss: 8 kB\nPrivate_Hugetlb: 0 kB\nVmFlags: rd wr sh ms \n";
        let found = pool_bytes(text.as_bytes(), Path::new("smaps")).unwrap().unwrap();
        assert_eq!(found, PoolBytes { shared: 10 << 20, private: 4 << 20 });
        let broken = pool_bytes("Private_Hugetlb: many kB\n".as_bytes(), Path::new("smaps"));
        assert_eq!(broken.unwrap_err().kind(), ErrorKind::Data);
    }

    #[test]
    fn reads_this_process() {
        let pid = std::process::id();
        let found = Proc::default().populated(pid).unwrap().unwrap();
        let here = (&raw const pid) as u64;
        assert!(found.iter().any(|(start, end)| (*start..*end).contains(&here)));
        assert_eq!(Proc::default().populated(u32::MAX), Ok(None));
    }
}
