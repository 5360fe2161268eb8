//! What became of every byte that was ordered to move.

use std::collections::BTreeMap;
use std::fmt;

use tierscope_core::Failure;

/// Why bytes were not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Other processes map the page too (EACCES).
    Shared,
    /// Pinned, locked, under write-back, or in use at that moment (EBUSY and the like).
    Busy,
    /// The destination has no memory left above what stays free, or none at all (ENOMEM).
    NoRoom,
    /// The process has ended (ESRCH).
    Gone,
    /// We may not (EPERM).
    Permission,
    /// The destination is offline, or not for this process (ENODEV, EACCES of the call, EINVAL).
    Offline,
    /// It moved twice within the time of the ping-pong limiter.
    PingPong,
    /// The kill switch is there.
    Switched,
    /// We were asked to stop before its turn came.
    Stopped,
    /// Nothing is moved in a dry run.
    DryRun,
    /// Locked into memory, or of a kind that is never given back: huge-page pools, device memory.
    Locked,
    /// Swap is full.
    NoSwap,
    /// This mover cannot do it: splitting, collapsing; or the kernel cannot.
    Unsupported,
    /// Another error of the kernel's, by its number.
    Other(i32),
}

impl Cause {
    /// All that have a name of their own.
    pub const NAMED: [Cause; 13] = [
        Cause::Shared,
        Cause::Busy,
        Cause::NoRoom,
        Cause::Gone,
        Cause::Permission,
        Cause::Offline,
        Cause::PingPong,
        Cause::Switched,
        Cause::Stopped,
        Cause::DryRun,
        Cause::Locked,
        Cause::NoSwap,
        Cause::Unsupported,
    ];

    /// What a page's status says (`errno` above 0).
    pub(crate) fn of_page(errno: i32) -> Self {
        match errno {
            libc::EACCES => Cause::Shared,
            libc::EBUSY | libc::EAGAIN => Cause::Busy,
            libc::ENOMEM => Cause::NoRoom,
            other => Self::of_call(other),
        }
    }

    /// What the error of a call says.
    pub(crate) fn of_call(errno: i32) -> Self {
        match errno {
            libc::ESRCH => Cause::Gone,
            libc::EPERM => Cause::Permission,
            libc::ENOMEM => Cause::NoRoom,
            libc::ENODEV | libc::EACCES | libc::EINVAL => Cause::Offline,
            other => Cause::Other(other),
        }
    }

    /// As policies are told.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Cause::Shared => Failure::Shared,
            Cause::Busy | Cause::PingPong | Cause::Locked | Cause::Other(_) => Failure::Busy,
            Cause::NoRoom | Cause::NoSwap => Failure::NoRoom,
            Cause::Gone => Failure::Gone,
            Cause::Permission | Cause::Switched | Cause::Stopped | Cause::DryRun => {
                Failure::Permission
            }
            Cause::Offline | Cause::Unsupported => Failure::Unsupported,
        }
    }
}

/// For people, and as a key in JSON.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Shared => "shared with other processes",
            Cause::Busy => "busy",
            Cause::NoRoom => "no room",
            Cause::Gone => "target gone",
            Cause::Permission => "not permitted",
            Cause::Offline => "node offline or not allowed",
            Cause::PingPong => "moved twice within the limit",
            Cause::Switched => "kill switch",
            Cause::Stopped => "stopped before its turn",
            Cause::DryRun => "dry run",
            Cause::Locked => "locked, or of a kind that stays",
            Cause::NoSwap => "swap is full",
            Cause::Unsupported => "not supported live",
            Cause::Other(errno) => return write!(f, "error {errno}"),
        })
    }
}

/// Every byte that was submitted, once: [`Account::submitted`] is the sum of what follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Ordered so far.
    pub submitted: u64,
    /// In the queue.
    pub waiting: u64,
    /// Moved to a faster tier.
    pub promoted: u64,
    /// Moved to a slower tier.
    pub demoted: u64,
    /// Given back: was in memory before, and is not any more.
    pub reclaimed: u64,
    /// Was where it was to be.
    pub already: u64,
    /// No page was there.
    pub absent: u64,
    /// Was not moved.
    pub failed: BTreeMap<Cause, u64>,

    /// Besides: what belongs to huge pages of which a part was ordered. Not in `submitted`.
    pub carried: u64,
    /// Of `promoted` and `demoted`: for the second time within the time of the ping-pong limiter.
    pub ping_pong: u64,
    /// Of `demoted`: promoted by us within the same time. Pages that nobody touched before they went back are
    /// among them, and live nobody can tell which; so it is neither more nor less than that.
    pub returned: u64,
    /// Of `reclaimed`: found in memory again later.
    pub refaulted: u64,
    /// Actions that ended.
    pub actions: u64,
    /// Calls of move_pages(2) or process_madvise(2) that moved or gave back, or tried to.
    pub calls: u64,
}

impl Account {
    /// Bytes moved, what was carried along included.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.promoted + self.demoted + self.carried
    }

    /// Bytes not moved.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Whether every byte submitted is accounted for once.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let ended = self.promoted + self.demoted + self.reclaimed + self.already;
        let ended = ended + self.absent + self.failures();
        self.submitted == self.waiting + ended
    }

    pub(crate) fn fail(&mut self, cause: Cause, bytes: u64) {
        if bytes > 0 {
            *self.failed.entry(cause).or_default() += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_have_names_of_their_own() {
        let mut names: Vec<String> = Cause::NAMED.iter().map(ToString::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Cause::NAMED.len());
        assert_eq!(Cause::of_page(libc::EACCES), Cause::Shared);
        assert_eq!(Cause::of_call(libc::EACCES), Cause::Offline);
        assert_eq!(Cause::of_page(libc::ESRCH), Cause::Gone);
        assert_eq!(Cause::Other(5).to_string(), "error 5");
    }
}
