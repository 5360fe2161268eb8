//! Page frames of a cgroup.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};

use crate::proc::{Cgroup, parse_line};

const PAGE: u64 = 4096;
/// Pagemap entries that are read at a time.
const ENTRIES: usize = 8192;
/// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst): present; mapped by one process
/// only; the frame number.
const PRESENT: u64 = 1 << 63;
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;

/// Appends the frames that are mapped exclusively by one process of the cgroup, read below `proc`
/// (`/proc`). Processes that end in between have none; frames that several processes share, such as
/// those of libraries, are omitted.
///
/// # Errors
/// If they cannot be read; [`ErrorKind::Permission`] if the kernel hides frame numbers from this
/// process.
pub(super) fn frames_of(proc: &Path, cgroup: &Cgroup, out: &mut Vec<u64>) -> Result<()> {
    let mut pids = Vec::new();
    cgroup.processes(&mut pids)?;
    for pid in pids {
        of_process(&proc.join(pid.to_string()), out)?;
    }
    Ok(())
}

fn of_process(directory: &Path, out: &mut Vec<u64>) -> Result<()> {
    let (Ok(maps), Ok(pagemap)) =
        (std::fs::read(directory.join("maps")), File::open(directory.join("pagemap")))
    else {
        return Ok(());
    };
    let mut bytes = vec![0; ENTRIES * 8];
    for line in maps.split(|byte| *byte == b'\n').filter_map(|line| parse_line(line).ok()) {
        let (mut page, end) = (line.start / PAGE, line.end.div_ceil(PAGE));
        while page < end {
            let count = (end - page).min(ENTRIES as u64);
            let entries = &mut bytes[..count as usize * 8];
            // Special mappings, such as vsyscall, have no entries.
            if pagemap.read_exact_at(entries, page * 8).is_err() {
                break;
            }
            entries.chunks_exact(8).try_for_each(|entry| own(entry, directory, out))?;
            page += count;
        }
    }
    Ok(())
}

fn own(entry: &[u8], directory: &Path, out: &mut Vec<u64>) -> Result<()> {
    let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
    if entry & (PRESENT | EXCLUSIVE) != PRESENT | EXCLUSIVE {
        return Ok(());
    }
    match entry & FRAME {
        0 => Err(Error::new(ErrorKind::Permission, "cannot find the frames of a cgroup")
            .cause(format!("{} hides frame numbers", directory.join("pagemap").display()))
            .remedy("run as root: CAP_SYS_ADMIN is needed")),
        frame => {
            out.push(frame);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A cgroup with processes 7 and 8; process 7 has a mapping of four pages, of which three are
    /// resident.
    fn tree(entries: &[u64]) -> (tempfile::TempDir, Cgroup) {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("group");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cgroup.procs"), "7\n8\n").unwrap();
        fs::write(group.join("cgroup.controllers"), "cpu\n").unwrap();
        let process = root.path().join("7");
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("maps"), "00002000-00006000 rw-p 00000000 00:00 0 \n").unwrap();
        let before = [0u64; 2];
        let bytes = before.iter().chain(entries).flat_map(|entry| entry.to_le_bytes());
        fs::write(process.join("pagemap"), bytes.collect::<Vec<u8>>()).unwrap();
        let cgroup = Cgroup::find(&group, root.path()).unwrap();
        (root, cgroup)
    }

    #[test]
    fn frames_of_one_process_only_are_listed() {
        let own = PRESENT | EXCLUSIVE;
        let (root, cgroup) = tree(&[own | 5, 0, PRESENT | 6, own | 7]);
        let mut frames = Vec::new();
        frames_of(root.path(), &cgroup, &mut frames).unwrap();
        assert_eq!(frames, [5, 7], "absent, and shared, are left out; process 8 is gone");
    }

    #[test]
    fn hidden_frame_numbers_are_an_error() {
        let (root, cgroup) = tree(&[PRESENT | EXCLUSIVE, 0, 0, 0]);
        let error = frames_of(root.path(), &cgroup, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission);
    }
}
