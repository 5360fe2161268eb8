//! The kernel calls of the mover, behind a trait that tests implement with a fake kernel.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tierscope_core::{Node, PAGE_SHIFT, PAGE_SIZE, Range, Time};

use super::brakes::Switch;
use super::paging::Paged;
use crate::clock;
use crate::pidfd::PidFd;
use crate::proc::{Proc, parse_stat};
use crate::reread_file::RereadFile;
use crate::space_owners::{Owner, SpaceOwners, User};

/// Memory of a node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeMemory {
    pub(crate) total: u64,
    pub(crate) free: u64,
}

/// The kernel calls. Nodes and errors are numbers as in the kernel's ABI: negative ones are errors.
pub(crate) trait Kernel {
    /// Current time of CLOCK_MONOTONIC.
    fn now(&self) -> Time;

    /// The running processes that map parts of a range: the owner of its space, or the users of
    /// shared memory.
    fn users(&mut self, range: &Range) -> Vec<User>;

    /// `move_pages` without target nodes: queries the node of each page, or `-ENOENT` and similar.
    ///
    /// # Errors
    /// Those of the system call.
    fn locate(&mut self, pid: u32, pages: &[u64], nodes: &mut [i32]) -> io::Result<()>;

    /// `move_pages` of all pages to one node, with `process.1` also of pages that other processes
    /// map. Returns how many were not moved; a status that the kernel does not write keeps
    /// its value.
    ///
    /// # Errors
    /// Those of the system call.
    fn move_pages(
        &mut self,
        process: (u32, bool),
        pages: &[u64],
        node: Node,
        status: &mut [i32],
    ) -> io::Result<u64>;

    /// Whether the 2 MiB block that contains a resident page is one huge page, mapped by a PMD or
    /// by PTEs.
    fn is_huge(&mut self, pid: u32, page: u64) -> bool;

    /// Total and free memory of a node; `None` if it is offline.
    fn memory(&mut self, node: Node) -> Option<NodeMemory>;

    /// PSI: share of the last ten seconds in which some task stalled on memory; `None` without PSI.
    fn stalled(&mut self) -> Option<f64>;

    /// Reads the pagemap entries of consecutive pages from address `first` on.
    ///
    /// # Errors
    /// If the pagemap cannot be read; ESRCH if the process has ended.
    fn paged(&mut self, pid: u32, first: u64, pages: &mut [Paged]) -> io::Result<()>;

    /// Pages out a range: `process_madvise(MADV_PAGEOUT)`.
    ///
    /// # Errors
    /// Those of the system call.
    fn page_out(&mut self, pid: u32, at: u64, bytes: u64) -> io::Result<()>;

    /// Free bytes of swap; `None` if the kernel does not report them.
    fn swap_free(&mut self) -> Option<u64>;

    /// State of the kill switch at a path.
    fn switch(&mut self, path: &Path) -> Switch;
}

/// The running kernel.
#[derive(Debug)]
pub(crate) struct RunningKernel {
    proc: Proc,
    owners: SpaceOwners,
    sys: PathBuf,
    /// Open `meminfo` file of each node.
    nodes: Vec<(Node, RereadFile)>,
    pressure: RereadFile,
    /// Open `stat` file of the process that was queried last: consecutive blocks belong to one
    /// process.
    stat: Option<(Owner, RereadFile)>,
    flags: Option<File>,
    /// Open pagemap, with the pid of its process.
    map: Option<(u32, File)>,
    /// Pidfd of the process that was paged out last.
    process: Option<(u32, PidFd)>,
    targets: Vec<i32>,
}

impl RunningKernel {
    pub(crate) fn new(owners: SpaceOwners) -> Self {
        Self {
            proc: Proc::default(),
            owners,
            sys: PathBuf::from("/sys"),
            nodes: Vec::new(),
            pressure: RereadFile::new("/proc/pressure/memory"),
            stat: None,
            flags: File::open("/proc/kpageflags").ok(),
            map: None,
            process: None,
            targets: Vec::new(),
        }
    }

    /// Reads entries of a process's pagemap, from the page at `first` on.
    ///
    /// An open pagemap is that of the program that ran when it was opened: after an exec, or if the
    /// pid was reused, it is empty for ever. So a file that cannot be read is opened once more.
    fn read_map(&mut self, pid: u32, first: u64, bytes: &mut [u8]) -> io::Result<()> {
        let offset = (first >> PAGE_SHIFT) * 8;
        if let Some((_, map)) = self.map.as_ref().filter(|(known, _)| *known == pid)
            && map.read_exact_at(bytes, offset).is_ok()
        {
            return Ok(());
        }
        self.map = None;
        let map = File::open(format!("/proc/{pid}/pagemap"))?;
        map.read_exact_at(bytes, offset)?;
        self.map = Some((pid, map));
        Ok(())
    }

    /// Whether a process still runs the program that was watched.
    fn runs(&mut self, owner: &Owner) -> bool {
        let file = match &mut self.stat {
            Some((known, file)) if known == owner => file,
            other => {
                let file = RereadFile::new(self.proc.path(owner.pid, "stat"));
                &mut other.insert((*owner, file)).1
            }
        };
        let stat = file.read().and_then(|text| parse_stat(text).ok());
        stat.is_some_and(|stat| stat.started == owner.started && !stat.has_ended())
    }

    /// Frame number of a page; `None` if it is not resident, or if the kernel hides frame numbers.
    fn frame(&mut self, pid: u32, page: u64) -> Option<u64> {
        const PRESENT: u64 = 1 << 63; // bit of an entry: Documentation/admin-guide/mm/pagemap.rst
        const FRAME: u64 = (1 << 55) - 1;
        let mut bytes = [0; 8];
        self.read_map(pid, page, &mut bytes).ok()?;
        let entry = u64::from_ne_bytes(bytes);
        (entry & PRESENT != 0 && entry & FRAME != 0).then_some(entry & FRAME)
    }
}

/// Reads the word at an index of a file of 64-bit words.
fn word(file: &File, number: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, number * 8).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

impl Kernel for RunningKernel {
    fn now(&self) -> Time {
        clock::monotonic()
    }

    fn users(&mut self, range: &Range) -> Vec<User> {
        let mut users = self.owners.users(range);
        users.retain(|user| self.runs(&user.owner));
        users
    }

    fn locate(&mut self, pid: u32, pages: &[u64], nodes: &mut [i32]) -> io::Result<()> {
        call(pid, pages, None, nodes, MOVE).map(|_| ())
    }

    fn move_pages(
        &mut self,
        (pid, with_others): (u32, bool),
        pages: &[u64],
        node: Node,
        status: &mut [i32],
    ) -> io::Result<u64> {
        self.targets.clear();
        self.targets.resize(pages.len(), node.0 as i32);
        let flags = if with_others { MOVE_ALL } else { MOVE };
        match call(pid, pages, Some(&self.targets), status, flags) {
            // Without CAP_SYS_NICE.
            Err(error) if with_others && error.raw_os_error() == Some(libc::EPERM) => {
                call(pid, pages, Some(&self.targets), status, MOVE)
            }
            done => done,
        }
    }

    /// A huge page of 2 MiB begins at a frame number divisible by 512, and its middle is a tail
    /// page; smaller folios would begin there.
    fn is_huge(&mut self, pid: u32, page: u64) -> bool {
        const TAIL: u64 = 1 << 16; // KPF_COMPOUND_TAIL, include/uapi/linux/kernel-page-flags.h
        let head = page >> 21 << 21;
        let Some(frame) = self.frame(pid, page) else { return false };
        let first = frame.wrapping_sub((page - head) >> PAGE_SHIFT);
        let middle = || self.flags.as_ref().and_then(|flags| word(flags, first + 256));
        first.is_multiple_of(512) && middle().is_some_and(|flags| flags & TAIL != 0)
    }

    fn memory(&mut self, node: Node) -> Option<NodeMemory> {
        let at = self.nodes.iter().position(|(known, _)| *known == node).unwrap_or_else(|| {
            self.nodes.push((node, RereadFile::new(meminfo(&self.sys, node))));
            self.nodes.len() - 1
        });
        parse_meminfo(self.nodes[at].1.text()?)
    }

    fn stalled(&mut self) -> Option<f64> {
        parse_pressure(self.pressure.text()?)
    }

    fn paged(&mut self, pid: u32, first: u64, pages: &mut [Paged]) -> io::Result<()> {
        let mut bytes = vec![0; pages.len() * 8];
        // The pagemap of a process that has ended is empty, and so are reads beyond the last
        // address.
        self.read_map(pid, first, &mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => {
                io::Error::from_raw_os_error(libc::ESRCH)
            }
            _ => error,
        })?;
        for (page, entry) in pages.iter_mut().zip(bytes.chunks_exact(8)) {
            *page = Paged::of_entry(entry.try_into().map_or(0, u64::from_ne_bytes));
        }
        Ok(())
    }

    /// Opens a pidfd, or reuses the last one while its process holds the pid. A new pidfd could
    /// refer to a reused pid only if the process exited since [`Kernel::users`] checked it.
    fn page_out(&mut self, pid: u32, at: u64, bytes: u64) -> io::Result<()> {
        if self.process.as_ref().is_none_or(|(known, fd)| *known != pid || !fd.holds_its_pid()) {
            self.process = Some((pid, PidFd::open(pid)?));
        }
        match &self.process {
            Some((_, process)) => page_out(process, at, bytes),
            None => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }

    fn swap_free(&mut self) -> Option<u64> {
        swap_free(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn switch(&mut self, path: &Path) -> Switch {
        Switch::at(path)
    }
}

/// MPOL_MF_MOVE: only pages that no other process maps.
const MOVE: libc::c_int = 1 << 1;
/// MPOL_MF_MOVE_ALL: all pages. Needs CAP_SYS_NICE.
const MOVE_ALL: libc::c_int = 1 << 2;

/// The system call move_pages(2).
fn call(
    pid: u32,
    pages: &[u64],
    nodes: Option<&[i32]>,
    status: &mut [i32],
    flags: libc::c_int,
) -> io::Result<u64> {
    assert!(status.len() >= pages.len() && nodes.is_none_or(|nodes| nodes.len() >= pages.len()));
    // SAFETY: the kernel reads as many addresses and nodes and writes as many statuses; the
    // assertion checks the lengths. The addresses belong to another process and are not written to.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            pages.len(),
            pages.as_ptr(),
            nodes.map_or(std::ptr::null(), <[i32]>::as_ptr),
            status.as_mut_ptr(),
            flags,
        )
    };
    u64::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// Calls process_madvise(2) until all of the range has been processed.
fn page_out(process: &PidFd, mut at: u64, bytes: u64) -> io::Result<()> {
    let end = at + bytes;
    while at < end {
        let range = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: (end - at) as usize };
        let fd = process.as_fd().as_raw_fd();
        // SAFETY: the kernel reads one iovec, which is valid; the addresses in it belong to another
        // process, and paging out does not change memory contents.
        let done = unsafe {
            libc::syscall(libc::SYS_process_madvise, fd, &raw const range, 1, libc::MADV_PAGEOUT, 0)
        };
        match u64::try_from(done) {
            Err(_) => return Err(io::Error::last_os_error()),
            // Nothing of the range was advised, and no reason given.
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            Ok(done) => at += done,
        }
    }
    Ok(())
}

/// `SwapFree` of /proc/meminfo, in bytes.
fn swap_free(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("SwapFree:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Path of a node's `meminfo`.
fn meminfo(sys: &Path, node: Node) -> PathBuf {
    sys.join(format!("devices/system/node/node{}/meminfo", node.0))
}

/// Total and free memory of a node; `None` for a missing node.
pub(crate) fn node_memory(sys: &Path, node: Node) -> Option<NodeMemory> {
    parse_meminfo(&fs::read_to_string(meminfo(sys, node)).ok()?)
}

fn parse_meminfo(text: &str) -> Option<NodeMemory> {
    let of = |key: &str| {
        let line = text.lines().find_map(|line| line.split_once(key))?;
        line.1.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(NodeMemory { total: of(" MemTotal:")?, free: of(" MemFree:")? })
}

/// The `some avg10` value of a pressure file, as a share of 1.
pub(crate) fn parse_pressure(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let average = some.split(' ').find_map(|word| word.strip_prefix("avg10="))?;
    average.parse::<f64>().ok().filter(|share| share.is_finite()).map(|percent| percent / 100.0)
}

/// Low and high watermarks of a node in bytes, summed over its zones (`/proc/zoneinfo`).
pub(crate) fn watermarks(text: &str, node: Node) -> (u64, u64) {
    let (mut here, mut low, mut high) = (false, 0, 0);
    let head = format!("Node {}, zone", node.0);
    for line in text.lines() {
        if line.starts_with("Node ") {
            here = line.starts_with(&head);
        }
        let mut words = line.split_whitespace();
        let pages = |word: Option<&str>| word.and_then(|pages| pages.parse::<u64>().ok());
        match words.next() {
            Some("low") if here => low += pages(words.next()).unwrap_or(0),
            Some("high") if here => high += pages(words.next()).unwrap_or(0),
            _ => {}
        }
    }
    (low.saturating_mul(PAGE_SIZE), high.saturating_mul(PAGE_SIZE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::SpaceId;

    #[test]
    fn memory_of_a_node_is_read() {
        let text =
            "Node 1 MemTotal:        2048 kB\nNode 1 MemFree:  1024 kB\nNode 1 MemUsed: 1 kB\n";
        assert_eq!(parse_meminfo(text), Some(NodeMemory { total: 2 << 20, free: 1 << 20 }));
        assert_eq!(parse_meminfo("Node 1 MemTotal: x kB\n"), None);
        assert_eq!(parse_meminfo("Node 1 MemTotal: 99999999999999999999 kB\n"), None);
    }

    #[test]
    fn pressure_is_a_share() {
        let text = "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=1.00 avg60=0 avg300=0 total=0\n";
        assert_eq!(parse_pressure(text), Some(0.125));
        assert_eq!(parse_pressure("some avg10=NaN\n"), None);
        assert_eq!(parse_pressure(""), None);
    }

    #[test]
    fn free_swap_is_read() {
        let text = "MemFree: 1 kB\nSwapTotal:  16 kB\nSwapFree:  8 kB\n";
        assert_eq!((swap_free(text), swap_free("SwapFree: many\n")), (Some(8192), None));
    }

    // An open pagemap is that of the program that ran when it was opened.
    #[test]
    fn after_an_exec_the_new_programs_pages_are_read() {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let mut shell = Command::new("sh");
        shell.args(["-c", "read line; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let (pid, mut kernel) = (child.id(), RunningKernel::new(SpaceOwners::default()));
        let stack = || {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
            let line = maps.lines().find(|line| line.ends_with("[stack]")).unwrap().to_owned();
            let end = line.split(['-', ' ']).nth(1).unwrap();
            u64::from_str_radix(end, 16).unwrap() - 4096
        };
        let mut page = [Paged::Absent];
        if let Err(error) = kernel.paged(pid, stack(), &mut page) {
            // Without the capability, as in a test of another user.
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
        let mut input = child.stdin.take().unwrap();
        // `cat` answers once it runs.
        input.write_all(b"go\nx").unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        page = [Paged::Absent];
        kernel.paged(pid, stack(), &mut page).unwrap();
        assert!(page[0].is_present());
        drop(input);
        child.wait().unwrap();
    }

    // The running kernel's pagemap, for a page of this process.
    #[test]
    fn a_page_of_this_process_is_in_the_pagemap() {
        let page = vec![1u8; 3 * 4096];
        let at = (page.as_ptr() as u64 + 4095) & !4095;
        let mut kernel = RunningKernel::new(SpaceOwners::default());
        let mut pages = [Paged::Absent; 1];
        match kernel.paged(std::process::id(), at, &mut pages) {
            Ok(()) => assert_eq!(pages, [Paged::Own]),
            Err(error) => {
                tierscope_conformance::skip::skipped(format!("/proc/self/pagemap: {error}"))
            }
        }
        let mut none = [Paged::Absent; 1];
        let error = kernel.paged(u32::MAX, at, &mut none).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }

    /// Memory of this process, at most one huge page of it, and whether the kernel made one.
    fn memory(advice: memmap2::Advice) -> (memmap2::MmapMut, u64, bool) {
        let mut memory = memmap2::MmapMut::map_anon(4 << 20).unwrap();
        memory.advise(advice).unwrap();
        let block = (memory.as_ptr() as u64).next_multiple_of(2 << 20);
        let at = (block - memory.as_ptr() as u64) as usize;
        memory[at..at + (2 << 20)].fill(1);
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mapping = smaps.split("\nVmFlags:").find(|mapping| {
            let lines = mapping.lines();
            let range = lines.filter_map(|line| line.split_once(' ')?.0.split_once('-'));
            let mut ends = range.filter_map(|(start, end)| {
                Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
            });
            ends.any(|(start, end)| (start..end).contains(&block))
        });
        let huge = mapping.is_some_and(|mapping| mapping.contains("AnonHugePages:      2048 kB"));
        (memory, block, huge)
    }

    // The last page of a block of 2 MiB, of a huge page and of small pages.
    #[test]
    fn a_huge_page_of_this_process_is_one() {
        let (mut kernel, own) = (RunningKernel::new(SpaceOwners::default()), std::process::id());
        let (huge, at, is_one) = memory(memmap2::Advice::HugePage);
        let sees_frames = kernel.frame(own, at).is_some_and(|frame| frame > 0);
        if sees_frames && kernel.flags.is_some() {
            assert_eq!(kernel.is_huge(own, at + (511 << PAGE_SHIFT)), is_one);
        } else {
            tierscope_conformance::skip::skipped("page frame numbers need CAP_SYS_ADMIN");
        }
        drop(huge);
        let (_small, at, is_one) = memory(memmap2::Advice::NoHugePage);
        assert!(!is_one && !kernel.is_huge(own, at + (511 << PAGE_SHIFT)));
    }

    // Two zones on node 0, one on node 1; the values are pages.
    #[test]
    fn watermarks_add_up_over_zones() {
        let text = "Node 0, zone DMA\n  per-node stats\n  pages free 9\n        min 1\n        low 2\n        high 3\n\
                    Node 0, zone Normal\n        low 20\n        high 30\nNode 1, zone Movable\n        low 5\n        high 6\n";
        assert_eq!(watermarks(text, Node(0)), (22 * 4096, 33 * 4096));
        assert_eq!(watermarks(text, Node(1)), (5 * 4096, 6 * 4096));
        assert_eq!(watermarks(text, Node(10)), (0, 0));
    }

    // The running kernel's move_pages(), for a page of this process.
    #[test]
    fn a_page_of_this_process_is_on_a_node() {
        let page = vec![1u8; 3 * 4096];
        let at = (page.as_ptr() as u64 + 4095) & !4095;
        let mut kernel = RunningKernel::new(SpaceOwners::default());
        let mut nodes = [-1];
        match kernel.locate(std::process::id(), &[at], &mut nodes) {
            Ok(()) => assert!(nodes[0] >= 0, "{nodes:?}"),
            // A kernel without NUMA support.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
        assert_eq!(kernel.users(&Range::new(SpaceId(0), 0, 4096)), []);
    }
}
