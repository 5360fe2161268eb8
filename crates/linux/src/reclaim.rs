//! Destinations of reclaim: swap, zswap, and the limits of a cgroup; and reclaim by the kernel
//! through a cgroup's `memory.reclaim`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

/// Destination of reclaimed pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// Compressed in memory by zswap; pages that it rejects go to its backing swap device.
    Zswap,
    /// A swap device or file.
    Swap,
}

/// Swap space of this machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Total swap space.
    pub total: u64,
    /// Free swap space.
    pub free: u64,
    /// Whether zswap is enabled.
    pub zswap: bool,
}

/// The kernel's files about swap, below a root that tests replace.
#[derive(Clone, Debug)]
pub struct Swap {
    root: PathBuf,
}

impl Default for Swap {
    fn default() -> Self {
        Self::below("/")
    }
}

impl Swap {
    /// The files below another root.
    #[must_use]
    pub fn below(root: impl AsRef<Path>) -> Self {
        Self { root: root.as_ref().to_owned() }
    }

    fn text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.root.join(path)).ok()?.trim().to_owned())
    }

    /// Swap space of this machine, if the destination is available.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`]: no swap is on, or zswap is off or not built in.
    pub fn check(&self, into: Into) -> Result<Room> {
        let meminfo = self.text("proc/meminfo").unwrap_or_default();
        let of = |key: &str| field(&meminfo, key).unwrap_or(0);
        let zswap = self.text("sys/module/zswap/parameters/enabled");
        let on = zswap.as_deref().is_some_and(|on| matches!(on, "Y" | "1"));
        let room = Room { total: of("SwapTotal:"), free: of("SwapFree:"), zswap: on };
        let refuse = |cause: &str, remedy: &str| {
            Err(Error::new(ErrorKind::Missing, "cannot reclaim memory").cause(cause).remedy(remedy))
        };
        if room.total == 0 {
            return refuse(
                "no swap is on: anonymous pages cannot be written out",
                "`swapon` a device or file; zswap needs one behind it, too",
            );
        }
        match (into, zswap) {
            (Into::Zswap, None) => refuse(
                "this kernel has no zswap (CONFIG_ZSWAP)",
                "reclaim to the swap device with --into swap, or use a kernel that has it",
            ),
            (Into::Zswap, Some(_)) if !on => refuse(
                "zswap is off",
                "echo Y > /sys/module/zswap/parameters/enabled; or --into swap",
            ),
            _ => Ok(room),
        }
    }
}

impl Room {
    /// Checks that `wanted` bytes fit: a page in zswap occupies a slot of the swap device, too.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if they do not fit.
    pub fn check(&self, wanted: u64) -> Result<()> {
        if wanted <= self.free {
            return Ok(());
        }
        let mib = |bytes: u64| bytes >> 20;
        Err(Error::new(ErrorKind::Usage, format!("cannot reclaim {} MiB", mib(wanted)))
            .cause(format!("{} MiB of swap are free", mib(self.free)))
            .remedy("set a smaller --target, or add swap"))
    }
}

/// A value of a table like /proc/meminfo, in bytes.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// A cgroup from which the kernel reclaims memory of its own choice (`memory.reclaim`, Linux 5.19).
#[derive(Clone, Debug)]
pub struct Reclaimable {
    dir: PathBuf,
}

/// Result of a reclaim request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimResult {
    /// Decrease of the cgroup's memory in bytes.
    pub reclaimed: u64,
    /// Whether the kernel reclaimed less than requested.
    pub short: bool,
}

impl Reclaimable {
    /// Opens a cgroup's directory.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`]: the memory controller is not enabled there, the kernel has no
    /// `memory.reclaim`, or the cgroup may not swap.
    pub fn open(dir: &Path) -> Result<Self> {
        let what = || format!("cannot reclaim memory of cgroup {}", dir.display());
        let has = |name: &str| dir.join(name).exists();
        if !dir.is_dir() {
            return Err(Error::new(ErrorKind::NoTarget, what())
                .cause("there is no such cgroup")
                .remedy("give its directory, as /sys/fs/cgroup/NAME"));
        }
        if !has("memory.current") {
            return Err(Error::new(ErrorKind::Missing, what())
                .cause("the memory controller is not enabled in it")
                .remedy("echo +memory > cgroup.subtree_control of the cgroup above it"));
        }
        if !has("memory.reclaim") {
            return Err(Error::new(ErrorKind::Missing, what())
                .cause("the kernel has no memory.reclaim (Linux 5.19)")
                .remedy("choose another policy, which pages out process by process"));
        }
        Self { dir: dir.to_owned() }.checked()
    }

    fn checked(self) -> Result<Self> {
        match self.number("memory.swap.max") {
            Some(0) => {
                let what = format!("cannot reclaim memory of cgroup {}", self.dir.display());
                Err(Error::new(ErrorKind::Missing, what)
                    .cause("it may not swap: its memory.swap.max is 0")
                    .remedy("echo max > memory.swap.max in it"))
            }
            _ => Ok(self),
        }
    }

    fn number(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.dir.join(name)).ok()?.trim().parse().ok()
    }

    /// Bytes charged to the cgroup.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.number("memory.current").unwrap_or(0)
    }

    /// Bytes of the cgroup in swap, including zswap.
    #[must_use]
    pub fn swapped(&self) -> u64 {
        self.number("memory.swap.current").unwrap_or(0)
    }

    /// Bytes that the cgroup may still swap; `None` without a limit.
    #[must_use]
    pub fn swap_left(&self) -> Option<u64> {
        Some(self.number("memory.swap.max")?.saturating_sub(self.swapped()))
    }

    /// PSI: share of the last ten seconds in which some task of the cgroup stalled on memory;
    /// `None` without PSI.
    #[must_use]
    pub fn stalled(&self) -> Option<f64> {
        crate::mover::kernel::parse_pressure(
            &fs::read_to_string(self.dir.join("memory.pressure")).ok()?,
        )
    }

    /// Refaults from swap since the cgroup was created (`workingset_refault_anon` of memory.stat),
    /// in bytes.
    #[must_use]
    pub fn refaults(&self) -> u64 {
        let text = fs::read_to_string(self.dir.join("memory.stat")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("workingset_refault_anon "));
        line.and_then(|pages| pages.trim().parse::<u64>().ok()).map_or(0, |pages| pages * 4096)
    }

    /// Requests the kernel to reclaim `bytes` bytes.
    ///
    /// # Errors
    /// If the kernel refuses the request; reclaiming too little is not an error.
    pub fn reclaim(&self, bytes: u64) -> Result<ReclaimResult> {
        let before = self.current();
        let file = OpenOptions::new().write(true).open(self.dir.join("memory.reclaim"));
        let written = file.and_then(|mut file| file.write_all(bytes.to_string().as_bytes()));
        let short = match written {
            Ok(()) => false,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => true,
            Err(error) => {
                let what = format!("cannot reclaim memory of cgroup {}", self.dir.display());
                return Err(Error::new(ErrorKind::Other, what)
                    .cause(error)
                    .remedy("run as root, and check that the cgroup is still there"));
            }
        };
        Ok(ReclaimResult { reclaimed: before.saturating_sub(self.current()), short })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "SwapTotal: 2048 kB\nSwapFree: 1024 kB\n");
    const ZSWAP: &str = "sys/module/zswap/parameters/enabled";

    #[test]
    fn missing_swap_is_refused() {
        for (files, into, cause) in [
            (vec![("proc/meminfo", "SwapTotal: 0 kB\n")], Into::Swap, "no swap is on"),
            (vec![], Into::Zswap, "no swap is on"),
            (vec![MEMINFO], Into::Zswap, "no zswap"),
            (vec![MEMINFO, (ZSWAP, "N\n")], Into::Zswap, "zswap is off"),
        ] {
            let dir = machine(&files);
            let error = Swap::below(dir.path()).check(into).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Missing);
            let text = error.to_string();
            assert!(text.contains(cause) && text.contains("; "), "{text}");
        }
        let dir = machine(&[MEMINFO, (ZSWAP, "Y\n")]);
        let room = Swap::below(dir.path()).check(Into::Zswap).unwrap();
        assert_eq!(room, Room { total: 2 << 20, free: 1 << 20, zswap: true });
        assert!(room.check(1 << 20).is_ok());
        let error = room.check(2 << 20).unwrap_err().to_string();
        assert!(error.contains("cannot reclaim 2 MiB: 1 MiB of swap are free"), "{error}");
    }

    #[test]
    fn a_cgroup_without_reclaim_is_refused() {
        let refused = |files: &[(&str, &str)]| {
            let dir = machine(files);
            Reclaimable::open(dir.path()).unwrap_err().to_string()
        };
        assert!(refused(&[("x", "")]).contains("memory controller is not enabled"));
        assert!(refused(&[("memory.current", "1")]).contains("no memory.reclaim"));
        let files = [("memory.current", "1"), ("memory.reclaim", ""), ("memory.swap.max", "0\n")];
        assert!(refused(&files).contains("may not swap"));
        assert!(Reclaimable::open(Path::new("/no/such")).is_err());
    }

    #[test]
    fn a_request_is_written_in_bytes() {
        let dir = machine(&[
            ("memory.current", "8192\n"),
            ("memory.reclaim", ""),
            ("memory.swap.max", "max\n"),
            ("memory.stat", "anon 5\nworkingset_refault_anon 3\n"),
            ("memory.pressure", "some avg10=5.00 avg60=0.00 avg300=0.00 total=9\n"),
        ]);
        let cgroup = Reclaimable::open(dir.path()).unwrap();
        assert_eq!(cgroup.reclaim(4096).unwrap(), ReclaimResult { reclaimed: 0, short: false });
        let written = fs::read_to_string(dir.path().join("memory.reclaim")).unwrap();
        assert_eq!((&*written, cgroup.refaults()), ("4096", 3 * 4096));
        assert_eq!((cgroup.stalled(), cgroup.swap_left()), (Some(0.05), None));
    }
}
