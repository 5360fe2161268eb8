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

    #[test]
    fn reads_this_process() {
        let pid = std::process::id();
        let found = Proc::default().populated(pid).unwrap().unwrap();
        let here = (&raw const pid) as u64;
        assert!(found.iter().any(|(start, end)| (*start..*end).contains(&here)));
        assert_eq!(Proc::default().populated(u32::MAX), Ok(None));
    }
}
