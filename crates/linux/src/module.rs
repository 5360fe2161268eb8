//! Client of the kernel module.
//!
//! [`Module::open`] agrees on the ABI; [`Module::attach`] binds to one address space. Errors carry
//! cause and remedy; a space that ended (exit or exec) is an answer, [`Presence::Gone`].

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

/// The kernel module, present and of our version.
pub struct Module {
    device: Box<dyn Device>,
    info: abi::Info,
    page: SelfTestPage,
}

/// Whether an address space is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Presence {
    /// It is.
    Here,
    /// Its process exited or executed another program.
    Gone,
}

impl Module {
    /// Opens `/dev/tierscope` and agrees on the ABI.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] without module, [`ErrorKind::Permission`] without capability,
    /// [`ErrorKind::Version`] if the module speaks another ABI.
    pub fn open() -> Result<Self> {
        Self::open_on(Box::new(CharDevice::default()))
    }

    /// As [`Module::open`], on another device.
    ///
    /// # Errors
    /// As [`Module::open`].
    pub fn open_on(device: Box<dyn Device>) -> Result<Self> {
        let mut channel = device.open().map_err(|e| not_open(&device.name(), &e))?;
        let mut info = abi::Info { size: size_of::<abi::Info>() as u32, ..Default::default() };
        let answer = channel.info(&mut info);
        if info.abi != abi::ABI_VERSION && info.abi != 0 {
            return Err(other_version(info.abi));
        }
        answer.map_err(|e| refused("ask the kernel module what it is", &e))?;
        Ok(Self { device, info, page: SelfTestPage::new()? })
    }

    /// Facts of the running kernel.
    #[must_use]
    pub fn info(&self) -> &abi::Info {
        &self.info
    }

    /// Levels, and those at which the hardware is said to set ACCESSED. An [`Attachment`] knows
    /// which of them were proven.
    #[must_use]
    pub fn radix(&self) -> Radix {
        Radix { levels: self.info.levels as u8, proven: level_set(self.info.hardware_levels) }
    }

    /// Least time between two flushes of one [`Attachment`].
    #[must_use]
    pub fn flush_interval(&self) -> Duration {
        Duration::from_micros(self.info.flush_interval_us.into())
    }

    /// Attaches to the address space of process `pid`.
    ///
    /// # Errors
    /// [`ErrorKind::NoTarget`] if there is no such process or it has no memory of its own,
    /// [`ErrorKind::Permission`] without capability.
    pub fn attach(&self, pid: u32) -> Result<Attachment> {
        let pidfd = PidFd::open(pid).map_err(|e| refused(&attach_to(pid), &e))?;
        self.attach_as(pid, &pidfd)
    }

    /// As [`Module::attach`], to the very process behind `pidfd`: opened before and still good
    /// after, it proves that no other process took the pid over in between.
    ///
    /// # Errors
    /// As [`Module::attach`].
    pub fn attach_as(&self, pid: u32, pidfd: &PidFd) -> Result<Attachment> {
        let mut channel = self.device.open().map_err(|e| not_open(&self.device.name(), &e))?;
        let mut attach = abi::Attach {
            size: size_of::<abi::Attach>() as u32,
            pid: pid as i32,
            selftest_addr: self.page.touched(),
            ..Default::default()
        };
        channel.attach(&mut attach).map_err(|e| refused(&attach_to(pid), &e))?;
        if !pidfd.holds_its_pid() {
            let reused = io::Error::from_raw_os_error(libc::ESRCH);
            return Err(refused(&attach_to(pid), &reused));
        }
        let proven = level_set(attach.proven_levels);
        let max_probes = self.info.max_probes.max(1) as usize;
        Ok(Attachment { channel, proven, max_probes, flush_interval: self.flush_interval() })
    }
}

fn attach_to(pid: u32) -> String {
    format!("attach to process {pid}")
}

/// One address space, watched through a file descriptor of its own.
pub struct Attachment {
    channel: Box<dyn Channel>,
    proven: LevelSet,
    max_probes: usize,
    flush_interval: Duration,
}

/// Parts of the interval between flushes in which one that came too soon is tried again …
const FLUSH_PARTS: u32 = 10;
/// … and how many of them, at most: a sleep is never too short.
const FLUSH_TRIES: u32 = FLUSH_PARTS + 2;

impl Attachment {
    /// Levels whose ACCESSED bits the self-test saw set by hardware.
    #[must_use]
    pub fn proven(&self) -> LevelSet {
        self.proven
    }

    /// Judges a batch in the order given; answers are in `probes`. Any size: what is more than
    /// the module takes at once goes in parts.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if a level is not proven, [`ErrorKind::Usage`] for an address or a
    /// level that makes no sense.
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

    /// Judges every entry of `level` in `range` into `set`, which is made to fit; its space is
    /// that of `range`. `None` if the address space is gone.
    ///
    /// # Errors
    /// As [`Attachment::probe`].
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

    /// Has the CPUs that run the process drop its translations, and waits for none of them; gives
    /// how many were asked, and `None` if the address space is gone. Too soon after the last flush
    /// it sleeps until it may: never longer than [`Module::flush_interval`] and a little.
    ///
    /// # Errors
    /// If the module refuses, which it has no reason to.
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

    /// What was done through this attachment, and how long locks were held for it.
    ///
    /// # Errors
    /// If the module refuses, which it has no reason to.
    pub fn stats(&mut self) -> Result<abi::Stats> {
        let mut stats = abi::Stats { size: size_of::<abi::Stats>() as u32, ..Default::default() };
        self.channel.stats(&mut stats).map_err(|e| refused("read statistics", &e))?;
        Ok(stats)
    }

    /// Whether the address space is still there: a look at an address that nothing changes.
    ///
    /// # Errors
    /// As [`Attachment::probe`].
    pub fn presence(&mut self) -> Result<Presence> {
        let level = self.proven.highest_first().last().unwrap_or(Level::PTE);
        self.probe(&mut [abi::Probe { level: level.number(), ..Default::default() }])
    }
}

impl abi::Stats {
    /// The time that `share` (0..=1) of all lock holds stayed below: the upper edge of their
    /// bucket, at most a quarter above the truth. Zero if there were none.
    #[must_use]
    pub fn hold_percentile(&self, share: f64) -> Duration {
        let total: u64 = self.holds.iter().sum();
        let rank = (share * total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reached = self.holds.iter().position(|holds| {
            seen += holds;
            seen >= rank
        });
        reached.map_or(Duration::ZERO, |bucket| {
            Duration::from_nanos(hold_bucket_end(bucket).min(self.hold_ns_max))
        })
    }
}

/// Nanoseconds at which a bucket of lock holds ends, exclusive (`TIERSCOPE_HOLD_BUCKETS`).
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

/// The device does not open.
fn not_open(device: &str, error: &io::Error) -> Error {
    let what = format!("cannot open {device}");
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => Error::new(ErrorKind::Missing, what)
            .cause("the kernel module is not loaded")
            .remedy(NO_MODULE),
        Some(libc::EPERM | libc::EACCES) => {
            Error::new(ErrorKind::Permission, what).cause(caps::missing()).remedy(RAISE)
        }
        Some(libc::EMFILE) => Error::new(ErrorKind::Other, what)
            .cause(error)
            .remedy("each process watched needs two files: raise the limit with `ulimit -n`"),
        _ => Error::new(ErrorKind::Io, what).cause(error).remedy("see `dmesg`"),
    }
}

fn other_version(theirs: u32) -> Error {
    let ours = abi::ABI_VERSION;
    Error::new(ErrorKind::Version, "cannot talk to the kernel module")
        .cause(format!("it speaks version {theirs} of the interface, this program version {ours}"))
        .remedy(ONE_RELEASE)
}

/// The module refuses a call; `what` completes "cannot …".
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
            .cause("this kernel or its hardware does not set ACCESSED bits as asked for")
            .remedy("see SUPPORT.md for the kernels and levels that do"),
        Some(libc::EINVAL) => Error::new(ErrorKind::Usage, what)
            .cause("the kernel module takes the request for invalid")
            .remedy("give the pid of a process (not of a thread or kernel thread)"),
        _ => Error::new(ErrorKind::Other, what).cause(error).remedy("see `dmesg`"),
    }
}
