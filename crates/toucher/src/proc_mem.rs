//! Reads another process's memory through `/proc/PID/maps` and `/proc/PID/mem`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

/// Access to the memory of one process.
pub struct ProcMem {
    dir: PathBuf,
    mem: File,
}

impl ProcMem {
    /// Opens the memory of process `pid` below `proc`, usually `/proc`.
    ///
    /// # Errors
    /// There is no such process, or no permission to trace it.
    pub fn open(proc: &Path, pid: u32) -> Result<Self> {
        let dir = proc.join(pid.to_string());
        let mem = File::open(dir.join("mem")).map_err(|e| cannot(&dir.join("mem"), &e))?;
        Ok(ProcMem { dir, mem })
    }

    /// Start and end of every private mapping that is readable and writable.
    ///
    /// # Errors
    /// The process has exited.
    pub fn data_mappings(&self) -> Result<Vec<(u64, u64)>> {
        let maps = fs::read_to_string(self.dir.join("maps"));
        Ok(parse_maps(&maps.map_err(|e| cannot(&self.dir.join("maps"), &e))?))
    }

    /// Reads at `address`; returns the number of bytes read, 0 if the address is unreadable.
    pub fn read(&self, address: u64, into: &mut [u8]) -> usize {
        self.mem.read_at(into, address).unwrap_or(0)
    }

    /// KiB of the process in transparent huge pages.
    ///
    /// # Errors
    /// The process has exited.
    pub fn huge_kib(&self) -> Result<u64> {
        let path = self.dir.join("smaps_rollup");
        let text = fs::read_to_string(&path).map_err(|e| cannot(&path, &e))?;
        let field = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
        Ok(field.and_then(|f| f.split_whitespace().next()?.parse().ok()).unwrap_or(0))
    }
}

fn parse_maps(maps: &str) -> Vec<(u64, u64)> {
    let data = maps.lines().filter(|line| line.split_whitespace().nth(1) == Some("rw-p"));
    data.filter_map(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    })
    .collect()
}

fn cannot(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::NoTarget, format!("cannot read {}", path.display()))
        .cause(error)
        .remedy("check the pid; reading another's memory needs root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_data_is_searched() {
        let maps = "\
55d0-55e0 r-xp 00000000 08:01 1 /usr/bin/redis-server
7f00-7f80 rw-p 00000000 00:00 0 [heap]
7f80-7f90 rw-s 00000000 00:01 2 /dev/zero
7f90-7fa0 ---p 00000000 00:00 0
";
        assert_eq!(parse_maps(maps), [(0x7f00, 0x7f80)]);
    }

    #[test]
    fn our_own_memory_can_be_read() {
        let data = std::hint::black_box(vec![0xA5u8; 100]);
        let mem = ProcMem::open(Path::new("/proc"), std::process::id()).unwrap();
        let mut copy = [0; 100];
        assert_eq!(mem.read(data.as_ptr() as u64, &mut copy), 100);
        assert_eq!(copy, data[..]);
        assert_eq!(mem.read(8, &mut copy), 0);
    }
}
