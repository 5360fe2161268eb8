//! A fake kernel module: page tables of a few spaces, as sets of entries.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use tierscope_core::Level;
use tierscope_linux::abi;
use tierscope_linux::device::{Channel, Device};
use tierscope_linux::module::Module;

/// Entries of page tables: `(level, index of the entry)`.
type Entries = BTreeSet<(u8, u64)>;

#[derive(Default)]
struct Tables {
    present: Entries,
    young: Entries,
    /// Open files that are attached.
    sessions: u32,
    /// Young entries that they cleared.
    cleared: u64,
    /// Start and end of memory that the module refuses, until it has refused this many probes.
    refused: Option<(u64, u64, u32)>,
}

/// State shared by all open files of the fake.
pub(crate) struct Kernel {
    /// ABI version that INFO returns.
    pub(crate) abi: u32,
    /// Errno that `open` returns, if any.
    pub(crate) open: Option<i32>,
    /// Errno that ATTACH returns, if any.
    pub(crate) attach: Option<i32>,
    /// Pids that ATTACH refuses with EPERM.
    pub(crate) forbidden: Vec<u32>,
    /// Whether real execs and exits end spaces; else only [`Kernel::end`] does.
    pub(crate) follows_execs: bool,
    /// Pid that ATTACH returns with EBUSY.
    pub(crate) owner: u32,
    /// Whether PROBE is interrupted after two probes, and SCAN after each word.
    pub(crate) interrupted: bool,
    /// Batch sizes of the PROBE calls so far.
    pub(crate) batches: Vec<u32>,
    /// Errors that FLUSH returns first, in reverse order.
    pub(crate) flush: Vec<i32>,
    /// Pids whose TLB entries were flushed, in order.
    pub(crate) flushed: Vec<u32>,
    /// Page tables by pid; a space that was never touched has no entries.
    tables: BTreeMap<i32, Tables>,
    /// Number of execs and exits by pid.
    ended: BTreeMap<i32, u32>,
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            abi: abi::ABI_VERSION,
            open: None,
            attach: None,
            forbidden: Vec::new(),
            follows_execs: false,
            owner: 1,
            interrupted: false,
            batches: Vec::new(),
            flush: Vec::new(),
            flushed: Vec::new(),
            tables: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }
}

impl Kernel {
    /// The process reads `addr`: the entries of all levels become young.
    pub(crate) fn touch(&mut self, pid: u32, addr: u64) {
        let tables = self.tables.entry(pid as i32).or_default();
        for level in 1..=4 {
            let entry = (level, addr >> Level::new(level).unwrap().shift());
            tables.present.insert(entry);
            tables.young.insert(entry);
        }
    }

    /// Refuses `probes` probes of a process's memory between two addresses.
    pub(crate) fn refuse(&mut self, pid: u32, start: u64, end: u64, probes: u32) {
        self.tables.entry(pid as i32).or_default().refused = Some((start, end, probes));
    }

    /// The process exits or executes another program.
    pub(crate) fn end(&mut self, pid: u32) {
        self.tables.remove(&(pid as i32));
        *self.ended.entry(pid as i32).or_default() += 1;
    }
}

#[derive(Clone, Default)]
pub(crate) struct Fake(pub(crate) Rc<RefCell<Kernel>>);

impl Fake {
    pub(crate) fn module(&self) -> tierscope_core::Result<Module> {
        Module::open_on(Box::new(self.clone()))
    }
}

impl Device for Fake {
    fn open(&self) -> io::Result<Box<dyn Channel>> {
        match self.0.borrow().open {
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Ok(Box::new(File {
                kernel: Rc::clone(&self.0),
                attached: None,
                stack: None,
                mine: 0,
            })),
        }
    }

    fn name(&self) -> String {
        "/dev/fake".into()
    }
}

struct File {
    kernel: Rc<RefCell<Kernel>>,
    /// Pid, and its number of execs and exits at ATTACH.
    attached: Option<(i32, u32)>,
    /// Where the stack of the program began at ATTACH: another program has another one.
    stack: Option<String>,
    /// Entries cleared before ATTACH, or by itself.
    mine: u64,
}

impl Drop for File {
    fn drop(&mut self) {
        let Some((pid, ended)) = self.attached else { return };
        let kernel = &mut *self.kernel.borrow_mut();
        if kernel.ended.get(&pid).copied().unwrap_or(0) == ended
            && let Some(tables) = kernel.tables.get_mut(&pid)
        {
            tables.sessions -= 1;
            if tables.sessions == 0 && tables.present.is_empty() && tables.refused.is_none() {
                kernel.tables.remove(&pid);
            }
        }
    }
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl File {
    fn with_tables<T>(
        &self,
        work: impl FnOnce(&mut Tables, bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let (pid, ended) = self.attached.ok_or_else(|| error(libc::ENXIO))?;
        if self.stack.is_some() && stack_of(pid) != self.stack {
            return Err(error(libc::ESRCH));
        }
        let mut kernel = self.kernel.borrow_mut();
        if kernel.ended.get(&pid).copied().unwrap_or(0) != ended {
            return Err(error(libc::ESRCH));
        }
        let interrupted = kernel.interrupted;
        work(kernel.tables.entry(pid).or_default(), interrupted)
    }

    /// Like `with_tables`, for work that clears entries; returns the number that others cleared.
    fn clearing(
        &mut self,
        work: impl FnOnce(&mut Tables, bool) -> io::Result<()>,
    ) -> (io::Result<()>, u64) {
        let mut counted = (0, 0);
        let answer = self.with_tables(|tables, interrupted| {
            let before = tables.cleared;
            let answer = work(tables, interrupted);
            counted = (tables.cleared - before, tables.cleared);
            answer
        });
        self.mine += counted.0;
        (answer, counted.1.saturating_sub(self.mine))
    }
}

impl Channel for File {
    fn info(&mut self, info: &mut abi::Info) -> io::Result<()> {
        assert_eq!(info.size as usize, size_of::<abi::Info>());
        let kernel = self.kernel.borrow();
        info.abi = kernel.abi;
        if kernel.abi != abi::ABI_VERSION {
            return Err(error(libc::EPROTO));
        }
        let (levels, hardware_levels) = (4, 0b1111);
        let (max_probes, flush_interval_us) = (4, 1000);
        *info = abi::Info { levels, hardware_levels, max_probes, flush_interval_us, ..*info };
        Ok(())
    }

    fn attach(&mut self, attach: &mut abi::Attach) -> io::Result<()> {
        assert_eq!(attach.size as usize, size_of::<abi::Attach>());
        assert!(attach.selftest_addr != 0 && attach.selftest_addr.is_multiple_of(4096));
        let kernel = &mut *self.kernel.borrow_mut();
        if let Some(number) = kernel.attach {
            return Err(error(number));
        }
        if kernel.forbidden.contains(&(attach.pid as u32)) {
            return Err(error(libc::EPERM));
        }
        if kernel.follows_execs {
            self.stack = Some(stack_of(attach.pid).ok_or_else(|| error(libc::ESRCH))?);
        }
        let tables = kernel.tables.entry(attach.pid).or_default();
        if tables.sessions > 0 && attach.flags & abi::ATTACH_SHARED == 0 {
            attach.owner = kernel.owner;
            return Err(error(libc::EBUSY));
        }
        tables.sessions += 1;
        self.mine = tables.cleared;
        attach.proven_levels = 0b0111;
        self.attached = Some((attach.pid, kernel.ended.get(&attach.pid).copied().unwrap_or(0)));
        Ok(())
    }

    fn probe(&mut self, header: &mut abi::Probes, probes: &mut [abi::Probe]) -> io::Result<()> {
        assert!(probes.len() <= 4, "more than max_probes");
        self.kernel.borrow_mut().batches.push(probes.len() as u32);
        let (answer, others) = self.clearing(|tables, interrupted| {
            for probe in probes {
                if interrupted && header.done == 2 {
                    return Err(error(libc::EINTR));
                }
                judge(tables, probe);
                header.done += 1;
            }
            Ok(())
        });
        header.cleared_by_others = others;
        answer
    }

    fn scan(
        &mut self,
        scan: &mut abi::Scan,
        young: &mut [u64],
        present: &mut [u64],
    ) -> io::Result<()> {
        assert_eq!(scan.size as usize, size_of::<abi::Scan>());
        let shift = Level::new(scan.level as u8).unwrap().shift();
        let (answer, others) = self.clearing(|tables, interrupted| {
            while scan.cursor < scan.end {
                scan_word(tables, scan, shift, young, present);
                if interrupted && scan.cursor < scan.end {
                    return Err(error(libc::EINTR));
                }
            }
            Ok(())
        });
        scan.cleared_by_others = others;
        answer
    }

    fn flush(&mut self, flush: &mut abi::Flush) -> io::Result<()> {
        assert_eq!(flush.size as usize, size_of::<abi::Flush>());
        self.with_tables(|_, _| Ok(()))?;
        let mut kernel = self.kernel.borrow_mut();
        if let Some(number) = kernel.flush.pop() {
            return Err(error(number));
        }
        kernel.flushed.extend(self.attached.map(|(pid, _)| pid as u32));
        flush.cpus = 2;
        Ok(())
    }

    fn stats(&mut self, stats: &mut abi::Stats) -> io::Result<()> {
        assert_eq!(stats.size as usize, size_of::<abi::Stats>());
        // Lock holds: 98 of 8..10 ns, one of 1024..1280 ns, one of at least 4096 ns.
        stats.mmap_holds.by_length[4 * 3] = 98;
        stats.mmap_holds.by_length[4 * 10] = 1;
        stats.mmap_holds.by_length[4 * 12] = 1;
        stats.mmap_holds.ns_max = 4200;
        Ok(())
    }
}

/// `startstack` of /proc/PID/stat: a random address, other for each program that is executed.
fn stack_of(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.rsplit(')').next()?;
    rest.split_whitespace().nth(25).filter(|at| *at != "0").map(str::to_owned)
}

fn judge(tables: &mut Tables, probe: &mut abi::Probe) {
    if let Some((start, end, left)) = &mut tables.refused
        && (*start..*end).contains(&probe.addr)
        && *left > 0
    {
        *left -= 1;
        (probe.state, probe.kind, probe.reached) = (abi::STATE_REFUSED, abi::KIND_NONE, 0);
        return;
    }
    let entry = (probe.level, probe.addr >> Level::new(probe.level).unwrap().shift());
    probe.reached = probe.level;
    probe.kind = if probe.level == 1 { abi::KIND_PAGE } else { abi::KIND_TABLE };
    probe.state = match (tables.present.contains(&entry), tables.young.contains(&entry)) {
        (false, _) => abi::STATE_ABSENT,
        (true, false) => abi::STATE_OLD,
        (true, true) => abi::STATE_YOUNG,
    };
    if probe.op == abi::OP_TEST_AND_CLEAR {
        tables.cleared += u64::from(tables.young.remove(&entry));
    }
}

/// Scans 64 entries from the cursor, or the remaining ones.
fn scan_word(
    tables: &mut Tables,
    scan: &mut abi::Scan,
    shift: u32,
    young: &mut [u64],
    present: &mut [u64],
) {
    let word = ((scan.cursor - scan.start) >> shift) as usize / 64;
    let (mut young_bits, mut present_bits) = (0, 0);
    for bit in 0..64 {
        if scan.cursor == scan.end {
            break;
        }
        let entry = (scan.level as u8, scan.cursor >> shift);
        present_bits |= u64::from(tables.present.contains(&entry)) << bit;
        young_bits |= u64::from(tables.young.contains(&entry)) << bit;
        if scan.flags & abi::SCAN_CLEAR != 0 {
            tables.cleared += u64::from(tables.young.remove(&entry));
        }
        scan.visited += 1;
        scan.cursor += 1 << shift;
    }
    scan.found_young += u64::from(young_bits.count_ones());
    scan.found_present += u64::from(present_bits.count_ones());
    young[word] = young_bits;
    if let Some(present) = present.get_mut(word) {
        *present = present_bits;
    }
}
