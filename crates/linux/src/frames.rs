//! Physical addresses of a process's memory, read from its pagemap.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tierscope_core::{Error, ErrorKind, FrameRun, PAGE_SHIFT, Range, Result};

use crate::space_owners::User;

/// Pagemap entries that are read at a time: those of 32 MiB.
const ENTRIES: u64 = 8192;
/// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst): present, and the frame number.
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// Appends the resident parts of what `users` map, each once, in order of address.
///
/// # Errors
/// [`ErrorKind::Permission`] if the kernel hides frame numbers from this process.
pub(crate) fn of_users(proc: &Path, users: &[User], out: &mut Vec<FrameRun>) -> Result<()> {
    // The owner of a space has the addresses of the range.
    if let [user] = users
        && user.at == user.range.start
    {
        return of_process(proc, user.owner.pid, &user.range, out);
    }
    let mut found = Vec::new();
    for user in users {
        let first = found.len();
        let mapped = Range { start: user.at, end: user.at + user.range.bytes(), ..user.range };
        of_process(proc, user.owner.pid, &mapped, &mut found)?;
        for run in &mut found[first..] {
            let start = user.range.start + (run.range.start - user.at);
            run.range = Range { start, end: start + run.range.bytes(), ..run.range };
        }
    }
    found.sort_by_key(|run| run.range);
    let mut end = 0;
    for FrameRun { range, frame } in found {
        // Processes that map a page have the same frame.
        let start = range.start.max(end);
        if start < range.end {
            end = range.end;
            let frame = frame + (start - range.start);
            FrameRun { range: Range { start, ..range }, frame }.append_to(out);
        }
    }
    Ok(())
}

/// Appends the resident parts of `range`, from the pagemap of process `pid` below `proc` (`/proc`).
/// A process that has ended has none.
///
/// # Errors
/// [`ErrorKind::Permission`] if the kernel hides frame numbers from this process.
fn of_process(proc: &Path, pid: u32, range: &Range, out: &mut Vec<FrameRun>) -> Result<()> {
    let path = proc.join(pid.to_string()).join("pagemap");
    let Ok(map) = File::open(&path) else { return Ok(()) };
    let (mut page, end) = (range.start >> PAGE_SHIFT, range.end.div_ceil(1 << PAGE_SHIFT));
    let mut bytes = vec![0; (ENTRIES * 8) as usize];
    while page < end {
        let count = (end - page).min(ENTRIES);
        let entries = &mut bytes[..(count * 8) as usize];
        // Special mappings have no entries, and neither has a process that ended in between.
        if map.read_exact_at(entries, page * 8).is_err() {
            return Ok(());
        }
        for (number, entry) in (page..).zip(entries.chunks_exact(8)) {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
            if entry & PRESENT == 0 {
                continue;
            }
            let frame = entry & FRAME;
            if frame == 0 {
                return Err(hidden(&path));
            }
            let range = Range::new(range.space, number << PAGE_SHIFT, (number + 1) << PAGE_SHIFT);
            FrameRun { range, frame: frame << PAGE_SHIFT }.append_to(out);
        }
        page += count;
    }
    Ok(())
}

fn hidden(path: &Path) -> Error {
    Error::new(ErrorKind::Permission, "cannot find the physical address of memory")
        .cause(format!("{} hides frame numbers", path.display()))
        .remedy("run as root: CAP_SYS_ADMIN is needed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tierscope_core::SpaceId;

    /// The frames found in a process whose pages from the second one on have these entries.
    fn found(entries: &[u64], pages: (u64, u64)) -> Result<Vec<(u64, u64, u64)>> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("7")).unwrap();
        let bytes = [0; 2].iter().chain(entries).flat_map(|entry| entry.to_le_bytes());
        fs::write(root.path().join("7/pagemap"), bytes.collect::<Vec<u8>>()).unwrap();
        let range = Range::new(SpaceId(3), pages.0 << 12, pages.1 << 12);
        let mut out = Vec::new();
        of_process(root.path(), 7, &range, &mut out)?;
        assert!(out.iter().all(|piece| piece.range.space == SpaceId(3)));
        let pages = |p: &FrameRun| (p.range.start >> 12, p.range.end >> 12, p.frame >> 12);
        Ok(out.iter().map(pages).collect())
    }

    // Pages 2 and 3 are contiguous in both address spaces, page 4 is absent, page 5 is elsewhere.
    #[test]
    fn consecutive_pages_are_merged() {
        let entries = [PRESENT | 8, PRESENT | 9, 5, PRESENT | 2];
        assert_eq!(found(&entries, (2, 6)), Ok(vec![(2, 4, 8), (5, 6, 2)]));
        assert_eq!(found(&entries, (3, 5)), Ok(vec![(3, 4, 9)]));
        assert_eq!(found(&entries, (2, 600)), Ok(vec![]), "beyond what the file holds");
        let gone = of_process(Path::new("/nowhere"), 7, &Range::default(), &mut Vec::new());
        assert_eq!(gone, Ok(()));
    }

    // Shared memory of four pages: one process has mapped its first two, another one, at other
    // addresses, the second and the third.
    #[test]
    fn frames_of_shared_memory_are_those_of_all_its_users() {
        let root = tempfile::tempdir().unwrap();
        let pagemap = |pid: u32, entries: &[u64]| {
            let dir = root.path().join(pid.to_string());
            fs::create_dir_all(&dir).unwrap();
            let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
            fs::write(dir.join("pagemap"), bytes).unwrap();
        };
        pagemap(7, &[0, PRESENT | 8, PRESENT | 9, 0, 0]);
        pagemap(8, &[0, PRESENT | 9, PRESENT | 3, 0]);
        let range = Range::new(SpaceId(5), 100 << 12, 104 << 12);
        let user = |space, pid, at: u64| User {
            owner: crate::space_owners::Owner { space: SpaceId(space), pid, started: 0 },
            range,
            at: at << 12,
            with_others: true,
        };
        let mut out = Vec::new();
        of_users(root.path(), &[user(1, 7, 1), user(2, 8, 0)], &mut out).unwrap();
        let pages = |p: &FrameRun| (p.range.start >> 12, p.range.end >> 12, p.frame >> 12);
        assert_eq!(out.iter().map(pages).collect::<Vec<_>>(), [(100, 102, 8), (102, 103, 3)]);
        assert!(out.iter().all(|run| run.range.space == SpaceId(5)));
    }

    #[test]
    fn hidden_frame_numbers_are_an_error() {
        let error = found(&[PRESENT], (2, 3)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission);
    }
}
