//! Fields of `/proc/PID/status` (fs/proc/array.c: `proc_pid_status`; fs/proc/task_mmu.c:
//! `task_mem`).

use tierscope_core::Result;

use super::{Proc, malformed, read_whole};

/// Resident bytes of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// All: anonymous, file, shared, and hugetlb, which the kernel counts separately.
    pub bytes: u64,
    /// All but anonymous memory: other processes may map the same pages.
    pub shareable: u64,
}

impl Proc {
    /// The thread group that `tid` belongs to; `None` if there is no such thread or process.
    ///
    /// # Errors
    /// If the file exists, but cannot be read.
    pub fn thread_group(&self, tid: u32) -> Result<Option<u32>> {
        let path = self.path(tid, "status");
        let Some(text) = read_whole(&path)? else { return Ok(None) };
        let tgid = field(&text, "Tgid:").and_then(|tgid| tgid.trim().parse().ok());
        tgid.map(Some).ok_or_else(|| malformed(&path, 1, "Tgid", &text))
    }

    /// Resident bytes of process `pid`. `None` if it is gone, ending, or a kernel thread.
    ///
    /// # Errors
    /// If the file exists, but cannot be read.
    pub fn resident(&self, pid: u32) -> Result<Option<Resident>> {
        let path = self.path(pid, "status");
        let Some(text) = read_whole(&path)? else { return Ok(None) };
        let bytes = |name: &'static str| match field(&text, name) {
            None => Ok(None),
            Some(value) => match kib(value) {
                None => Err(malformed(&path, 1, name, &text)),
                bytes => Ok(bytes),
            },
        };
        let Some(resident) = bytes("VmRSS:")? else { return Ok(None) };
        // Kernels without hugetlb have no such line.
        let pool = bytes("HugetlbPages:")?.unwrap_or(0);
        let anonymous = bytes("RssAnon:")?.unwrap_or(0);
        let shareable = resident.saturating_sub(anonymous).saturating_add(pool);
        Ok(Some(Resident { bytes: resident.saturating_add(pool), shareable }))
    }
}

impl Proc {
    /// Number of pages that process `pid` maps: the first figure of `statm` (fs/proc/array.c:
    /// `proc_pid_statm`). `None` if it cannot be read.
    pub(crate) fn mapped_pages(&self, pid: u32) -> Option<u64> {
        let text = read_whole(&self.path(pid, "statm")).ok()??;
        std::str::from_utf8(&text).ok()?.split_ascii_whitespace().next()?.parse().ok()
    }
}

/// The value after `name` at the beginning of a line. A process's name cannot imitate one.
fn field<'a>(text: &'a [u8], name: &str) -> Option<&'a str> {
    let lines = text.split(|byte| *byte == b'\n');
    let value = lines.filter_map(|line| line.strip_prefix(name.as_bytes())).next()?;
    std::str::from_utf8(value).ok()
}

/// Bytes of a value like `  1234 kB`.
fn kib(value: &str) -> Option<u64> {
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::ErrorKind;

    fn of(status: &str) -> Proc {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("7")).unwrap();
        std::fs::write(dir.path().join("7/status"), status).unwrap();
        Proc::at(dir.keep())
    }

    #[test]
    fn resident_bytes_include_huge_page_pools() {
        let resident = |status| of(status).resident(7);
        let kib = |bytes: u64, shareable: u64| Resident {
            bytes: bytes << 10,
            shareable: shareable << 10,
        };
        assert_eq!(
            resident("Name:\tx\nVmRSS:\t 12 kB\nRssAnon:\t 8 kB\nHugetlbPages:\t 2048 kB\n"),
            Ok(Some(kib(2060, 2052)))
        );
        assert_eq!(resident("Name:\tx\nVmRSS:\t     12 kB\n"), Ok(Some(kib(12, 12))));
        assert_eq!(resident("Name:\tkthreadd\nTgid:\t2\n"), Ok(None));
        assert_eq!(resident("VmRSS:\tmany kB\n").unwrap_err().kind(), ErrorKind::Data);
        assert_eq!(of("").resident(8), Ok(None));
    }

    #[test]
    fn errors_carry_path_line_and_item() {
        let error = of("Name:\tx\n").thread_group(7).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        let text = error.to_string();
        assert!(text.contains("7/status") && text.contains("line 1: no Tgid"), "{text}");
    }

    #[test]
    fn reads_this_process() {
        let pid = std::process::id();
        assert_eq!(Proc::default().thread_group(pid), Ok(Some(pid)));
        assert!(Proc::default().resident(pid).unwrap().is_some_and(|of| of.bytes > of.shareable));
        assert_eq!(Proc::default().thread_group(u32::MAX), Ok(None));
        assert!(Proc::default().mapped_pages(pid).is_some_and(|pages| pages > 1));
        assert_eq!(Proc::default().mapped_pages(u32::MAX), None);
    }
}
