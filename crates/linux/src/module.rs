//! Client of the kernel module.
//!
//! [`Module::open`] checks the ABI version; [`Module::attach`] binds to one address space. Errors
//! have a cause and a remedy; the end of a space (exit or exec) is not an error, but
//! [`Presence::Gone`].

use std::io;
use std::time::Duration;

use tierscope_core::{
    AccessedSet, Error, ErrorKind, Level, LevelSet, Radix, Range, Result, ScanMode, ScanStats,
};

use crate::abi;
use crate::caps;
use crate::device::{Channel, CharDevice, Device};
use crate::pidfd::PidFd;
use crate::selftest_page::SelfTestPage;
use crate::signing;

/// The kernel module, opened, with a matching ABI version.
pub struct Module {
    device: Box<dyn Device>,
    info: abi::Info,
    page: SelfTestPage,
    sharing: Sharing,
}

/// Whether an address space may have other sessions. Each sees only the accesses between its own
/// clear of an ACCESSED bit and the next one's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// A space that has a session is refused.
    #[default]
    Alone,
    /// A space that has sessions is attached to as well, and all of them count what the others
    /// clear ([`Attachment::cleared_by_others`]).
    Shared,
}

/// Whether an address space still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Presence {
    /// The address space exists.
    Here,
    /// Its process exited or executed another program.
    Gone,
}

impl Module {
    /// Opens `/dev/tierscope` and checks the ABI version.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if the module is not loaded, [`ErrorKind::Permission`] without the
    /// capabilities, [`ErrorKind::Version`] if the module has another ABI version.
    pub fn open() -> Result<Self> {
        Self::open_on(Box::new(CharDevice::default()))
    }

    /// Like [`Module::open`], for another device.
    ///
    /// # Errors
    /// Those of [`Module::open`].
    pub fn open_on(device: Box<dyn Device>) -> Result<Self> {
        let mut channel = device.open().map_err(|e| not_open(&device.name(), &e))?;
        let mut info = abi::Info { size: size_of::<abi::Info>() as u32, ..Default::default() };
        let answer = channel.info(&mut info);
        if info.abi != abi::ABI_VERSION && info.abi != 0 {
            return Err(other_version(info.abi));
        }
        answer.map_err(|e| refused("read the version of the kernel module", &e))?;
        Ok(Self { device, info, page: SelfTestPage::new()?, sharing: Sharing::default() })
    }

    /// Attaches this way from now on.
    #[must_use]
    pub fn with_sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// Facts of the running kernel.
    #[must_use]
    pub fn info(&self) -> &abi::Info {
        &self.info
    }

    /// The levels of the page table, and those at which the hardware is documented to set ACCESSED.
    /// An [`Attachment`] has the set of proven levels.
    #[must_use]
    pub fn radix(&self) -> Radix {
        Radix { levels: self.info.levels as u8, proven: level_set(self.info.hardware_levels) }
    }

    /// Minimum time between two flushes of one [`Attachment`].
    #[must_use]
    pub fn flush_interval(&self) -> Duration {
        Duration::from_micros(self.info.flush_interval_us.into())
    }

    /// Attaches to the address space of process `pid`.
    ///
    /// # Errors
    /// [`ErrorKind::NoTarget`] if there is no such process or it has no memory of its own,
    /// [`ErrorKind::Permission`] without the capabilities, [`ErrorKind::Busy`] if another session
    /// watches the process and [`Sharing`] does not allow it.
    pub fn attach(&self, pid: u32) -> Result<Attachment> {
        let pidfd = PidFd::open(pid).map_err(|e| refused(&attach_to(pid), &e))?;
        self.attach_as(pid, &pidfd)
    }

    /// Like [`Module::attach`], for the process of `pidfd`: a pidfd that was opened before and is
    /// still valid afterwards proves that the pid was not reused in between.
    ///
    /// # Errors
    /// Those of [`Module::attach`].
    pub fn attach_as(&self, pid: u32, pidfd: &PidFd) -> Result<Attachment> {
        let mut channel = self.device.open().map_err(|e| not_open(&self.device.name(), &e))?;
        let mut attach = abi::Attach {
            size: size_of::<abi::Attach>() as u32,
            pid: pid as i32,
            selftest_addr: self.page.touched(),
            flags: if self.sharing == Sharing::Shared { abi::ATTACH_SHARED } else { 0 },
            ..Default::default()
        };
        let answer = channel.attach(&mut attach);
        answer.map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY) if attach.owner == std::process::id() => watched_already(pid),
            Some(libc::EBUSY) => busy(pid, attach.owner),
            _ => refused(&attach_to(pid), &e),
        })?;
        if !pidfd.holds_its_pid() {
            let reused = io::Error::from_raw_os_error(libc::ESRCH);
            return Err(refused(&attach_to(pid), &reused));
        }
        let proven = level_set(attach.proven_levels);
        let max_probes = self.info.max_probes.max(1) as usize;
        let flush_interval = self.flush_interval();
        Ok(Attachment { channel, proven, max_probes, flush_interval, cleared_by_others: 0 })
    }
}

fn attach_to(pid: u32) -> String {
    format!("attach to process {pid}")
}

/// One address space, accessed through its own file descriptor.
pub struct Attachment {
    channel: Box<dyn Channel>,
    proven: LevelSet,
    max_probes: usize,
    flush_interval: Duration,
    cleared_by_others: u64,
}

/// Fraction of the flush interval after which a flush that was too early is retried.
const FLUSH_PARTS: u32 = 10;
/// Maximum number of retries of a flush: they add up to more than the interval, since a sleep is
/// never too short.
const FLUSH_TRIES: u32 = FLUSH_PARTS + 2;

impl Attachment {
    /// Levels at which the self-test saw hardware set ACCESSED.
    #[must_use]
    pub fn proven(&self) -> LevelSet {
        self.proven
    }

    /// ACCESSED bits of the space that other sessions found set and cleared, from the beginning of
    /// this one until its last probe or scan: accesses that this one cannot see.
    #[must_use]
    pub fn cleared_by_others(&self) -> u64 {
        self.cleared_by_others
    }

    /// Judges a batch in order, and writes the answers into `probes`. A batch larger than the
    /// module's limit is split.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if a level is not proven, [`ErrorKind::Usage`] for an invalid address
    /// or level.
    pub fn probe(&mut self, probes: &mut [abi::Probe]) -> Result<Presence> {
        for part in probes.chunks_mut(self.max_probes) {
            if self.probe_part(part)? == Presence::Gone {
                return Ok(Presence::Gone);
            }
        }
        Ok(Presence::Here)
    }

    fn probe_part(&mut self, mut part: &mut [abi::Probe]) -> Result<Presence> {
        loop {
            let mut header =
                abi::Probes { size: size_of::<abi::Probes>() as u32, ..Default::default() };
            let answer = self.channel.probe(&mut header, part);
            self.cleared_by_others = self.cleared_by_others.max(header.cleared_by_others);
            match answer.as_ref().map_err(|e| e.raw_os_error()) {
                Err(Some(libc::EINTR)) => {
                    let done = part.len().min(header.done as usize);
                    part = &mut part[done..];
                }
                Err(Some(libc::ESRCH)) => return Ok(Presence::Gone),
                _ => return answer.map(|()| Presence::Here).map_err(|e| refused("probe", &e)),
            }
        }
    }

    /// Judges every entry of `level` in `range`. `set` is resized to fit, and its space is that of
    /// `range`. `None` if the address space is gone.
    ///
    /// # Errors
    /// Those of [`Attachment::probe`].
    pub fn scan(
        &mut self,
        range: &Range,
        level: Level,
        mode: ScanMode,
        set: &mut AccessedSet,
    ) -> Result<Option<ScanStats>> {
        set.reset(range, level, mode.present);
        let mut scan = abi::Scan {
            size: size_of::<abi::Scan>() as u32,
            level: u32::from(level.number()),
            flags: scan_flags(mode),
            start: set.range.start,
            end: set.range.end,
            cursor: set.range.start,
            ..Default::default()
        };
        loop {
            let answer = self.channel.scan(&mut scan, &mut set.young, &mut set.present);
            self.cleared_by_others = self.cleared_by_others.max(scan.cleared_by_others);
            match answer.as_ref().map_err(|e| e.raw_os_error()) {
                Err(Some(libc::EINTR)) => {}
                Err(Some(libc::ESRCH)) => {
                    set.reset(range, level, mode.present);
                    return Ok(None);
                }
                _ => {
                    return answer
                        .map(|()| Some(scan_stats(&scan)))
                        .map_err(|e| refused("scan", &e));
                }
            }
        }
    }

    /// Requests the CPUs that run the process to flush its TLB entries, without waiting for them;
    /// returns the number of these CPUs, or `None` if the address space is gone. If called too soon
    /// after the last flush, it sleeps, for at most slightly more than [`Module::flush_interval`].
    ///
    /// # Errors
    /// If the module refuses the call, which is not expected.
    pub fn flush(&mut self) -> Result<Option<u32>> {
        let mut tries = 0;
        loop {
            let mut flush = abi::Flush { size: size_of::<abi::Flush>() as u32, cpus: 0 };
            let answer = self.channel.flush(&mut flush);
            match answer.as_ref().map_err(|e| e.raw_os_error()) {
                Err(Some(libc::EINTR)) => {}
                Err(Some(libc::ESRCH)) => return Ok(None),
                Err(Some(libc::EAGAIN)) if tries < FLUSH_TRIES => {
                    tries += 1;
                    std::thread::sleep(self.flush_interval / FLUSH_PARTS);
                }
                _ => {
                    return answer
                        .map(|()| Some(flush.cpus))
                        .map_err(|e| refused("flush translations", &e));
                }
            }
        }
    }

    /// Statistics of this attachment, with the lengths of its lock holds.
    ///
    /// # Errors
    /// If the module refuses the call, which is not expected.
    pub fn stats(&mut self) -> Result<abi::Stats> {
        let mut stats = abi::Stats { size: size_of::<abi::Stats>() as u32, ..Default::default() };
        self.channel.stats(&mut stats).map_err(|e| refused("read statistics", &e))?;
        Ok(stats)
    }

    /// Whether the address space still exists: a probe without clearing.
    ///
    /// # Errors
    /// Those of [`Attachment::probe`].
    pub fn presence(&mut self) -> Result<Presence> {
        let level = self.proven.highest_first().last().unwrap_or(Level::PTE);
        self.probe(&mut [abi::Probe { level: level.number(), ..Default::default() }])
    }
}

impl abi::Holds {
    /// Number of holds.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.by_length.iter().sum()
    }

    /// The `share` (0..=1) quantile of their lengths: the upper edge of its bucket, at most a
    /// quarter above the true value. Zero if there were no holds.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Duration {
        let rank = (share * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reached = self.by_length.iter().position(|holds| {
            seen += holds;
            seen >= rank
        });
        reached.map_or(Duration::ZERO, |bucket| {
            Duration::from_nanos(hold_bucket_end(bucket).min(self.ns_max))
        })
    }
}

/// Exclusive upper bound of a bucket of lock holds in ns (`TIERSCOPE_HOLD_BUCKETS`).
fn hold_bucket_end(bucket: usize) -> u64 {
    let next = bucket.max(7) as u64 + 1;
    (4 + next % 4) << (next / 4 - 2)
}

fn level_set(bits: u32) -> LevelSet {
    LevelSet::from_bits(bits as u8)
}

fn scan_flags(mode: ScanMode) -> u32 {
    let clear = if mode.clear { abi::SCAN_CLEAR } else { 0 };
    let prune = if mode.prune { abi::SCAN_PRUNE } else { 0 };
    clear | prune
}

fn scan_stats(scan: &abi::Scan) -> ScanStats {
    ScanStats {
        visited: scan.visited,
        present: scan.found_present,
        young: scan.found_young,
        pruned: scan.pruned,
        leaves: scan.leaves,
    }
}

const NO_MODULE: &str =
    "build and load it as README.md says (`insmod tierscope.ko`), or use the lab: `make run`";
const ONE_RELEASE: &str = "build both from the same release (README.md), then `rmmod tierscope` and `insmod tierscope.ko`";
const RAISE: &str = "run as root, or with CAP_SYS_PTRACE and CAP_SYS_ADMIN";

/// The error of opening the device.
fn not_open(device: &str, error: &io::Error) -> Error {
    let what = format!("cannot open {device}");
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            let error = Error::new(ErrorKind::Missing, what);
            match signing::refusal(|path| std::fs::read_to_string(path).ok()) {
                Some(why) => error
                    .cause(format!("the kernel module is not loaded, and {why}"))
                    .remedy(signing::REMEDY),
                None => error.cause("the kernel module is not loaded").remedy(NO_MODULE),
            }
        }
        Some(libc::EPERM | libc::EACCES) => {
            Error::new(ErrorKind::Permission, what).cause(caps::missing()).remedy(RAISE)
        }
        Some(libc::EMFILE) => Error::new(ErrorKind::Other, what)
            .cause(error)
            .remedy("each process watched needs two files: raise the limit with `ulimit -n`"),
        _ => Error::new(ErrorKind::Io, what).cause(error).remedy("see `dmesg`"),
    }
}

/// The error of a process that uses the memory of another one which this program watches: no target
/// of its own.
fn watched_already(pid: u32) -> Error {
    Error::new(ErrorKind::NoTarget, format!("cannot {}", attach_to(pid)))
        .cause("this program watches its memory already, as that of another process")
        .remedy("watch only one of the processes that share their memory")
}

/// The error of a space that has a session of `owner`, a process, or 0 if it cannot be named.
fn busy(pid: u32, owner: u32) -> Error {
    let owner = match owner {
        0 => "a process of another pid namespace".into(),
        owner => format!("process {owner}"),
    };
    Error::new(ErrorKind::Busy, format!("cannot {}", attach_to(pid)))
        .cause(format!(
            "{owner} watches it, and each would clear ACCESSED bits that the other needs"
        ))
        .remedy("end that one, or count what each loses with --share-bits")
}

fn other_version(theirs: u32) -> Error {
    let ours = abi::ABI_VERSION;
    Error::new(ErrorKind::Version, "cannot talk to the kernel module")
        .cause(format!("it speaks version {theirs} of the interface, this program version {ours}"))
        .remedy(ONE_RELEASE)
}

/// The error of a call that the module refuses; `what` completes "cannot ...".
fn refused(what: &str, error: &io::Error) -> Error {
    let what = format!("cannot {what}");
    match error.raw_os_error() {
        Some(libc::ESRCH) => Error::new(ErrorKind::NoTarget, what)
            .cause("there is no such process, or it is ending")
            .remedy("check the pid with `ps`"),
        Some(libc::EPERM | libc::EACCES) => {
            Error::new(ErrorKind::Permission, what).cause(caps::missing()).remedy(RAISE)
        }
        Some(libc::EPROTO | libc::ENOTTY) => Error::new(ErrorKind::Version, what)
            .cause("the kernel module speaks another version of the interface")
            .remedy(ONE_RELEASE),
        Some(libc::EOPNOTSUPP) => Error::new(ErrorKind::Missing, what)
            .cause("this kernel or its hardware does not set ACCESSED bits as requested")
            .remedy("see SUPPORT.md for the kernels and levels that do"),
        Some(libc::EINVAL) => Error::new(ErrorKind::Usage, what)
            .cause("the kernel module rejects the request as invalid")
            .remedy("give the pid of a process (not of a thread or kernel thread)"),
        _ => Error::new(ErrorKind::Other, what).cause(error).remedy("see `dmesg`"),
    }
}
