//! Outcome of every byte that was ordered to move.

use std::collections::BTreeMap;
use std::fmt;

use tierscope_core::Failure;

/// Why bytes were not moved or reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Another process maps the page, too (EACCES).
    Shared,
    /// Pinned, locked, under writeback, or in use at the time (EBUSY and similar).
    Busy,
    /// The destination has no free memory beyond its reserve, or none at all (ENOMEM).
    NoRoom,
    /// The process has ended (ESRCH).
    Gone,
    /// We lack the permission (EPERM).
    Permission,
    /// The destination is offline or not allowed for this process (ENODEV, EACCES of the call,
    /// EINVAL).
    Offline,
    /// The page moved twice within the time of the ping-pong limiter.
    PingPong,
    /// The kill switch is on.
    Switched,
    /// It is not known whether the kill switch is on.
    SwitchUnreadable,
    /// There is no such tier.
    UnknownTier,
    /// Too many orders waited already.
    TooMany,
    /// The mover was stopped before the action was completed.
    Stopped,
    /// A dry run moves nothing.
    DryRun,
    /// Locked into memory, or of a kind that is never paged out: hugetlb, device memory.
    Locked,
    /// Swap is full.
    NoSwap,
    /// The action is not supported by this mover (split, collapse) or by the kernel.
    Unsupported,
    /// Another error, by its errno.
    Other(i32),
}

impl Cause {
    /// All causes that have a name.
    pub const NAMED: [Cause; 16] = [
        Cause::Shared,
        Cause::Busy,
        Cause::NoRoom,
        Cause::Gone,
        Cause::Permission,
        Cause::Offline,
        Cause::PingPong,
        Cause::Switched,
        Cause::SwitchUnreadable,
        Cause::UnknownTier,
        Cause::TooMany,
        Cause::Stopped,
        Cause::DryRun,
        Cause::Locked,
        Cause::NoSwap,
        Cause::Unsupported,
    ];

    /// Cause of a page's status in move_pages() (`errno` above 0).
    pub(crate) fn of_page(errno: i32) -> Self {
        match errno {
            libc::EACCES => Cause::Shared,
            libc::EBUSY | libc::EAGAIN => Cause::Busy,
            libc::ENOMEM => Cause::NoRoom,
            other => Self::of_call(other),
        }
    }

    /// Cause of a failed system call.
    pub(crate) fn of_call(errno: i32) -> Self {
        match errno {
            libc::ESRCH => Cause::Gone,
            libc::EPERM => Cause::Permission,
            libc::ENOMEM => Cause::NoRoom,
            libc::ENODEV | libc::EACCES | libc::EINVAL => Cause::Offline,
            other => Cause::Other(other),
        }
    }

    /// The failure that is reported to policies.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Cause::Shared => Failure::Shared,
            Cause::Busy | Cause::PingPong | Cause::TooMany | Cause::Locked | Cause::Other(_) => {
                Failure::Busy
            }
            Cause::NoRoom | Cause::NoSwap => Failure::NoRoom,
            Cause::Gone => Failure::Gone,
            Cause::Permission
            | Cause::Switched
            | Cause::SwitchUnreadable
            | Cause::Stopped
            | Cause::DryRun => Failure::Permission,
            Cause::Offline | Cause::UnknownTier | Cause::Unsupported => Failure::Unsupported,
        }
    }
}

/// Text for users, also a key in JSON.
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
            Cause::SwitchUnreadable => "kill switch cannot be read",
            Cause::UnknownTier => "no such tier",
            Cause::TooMany => "too many orders waiting",
            Cause::Stopped => "stopped before its turn",
            Cause::DryRun => "dry run",
            Cause::Locked => "locked, or of a kind that stays",
            Cause::NoSwap => "swap is full",
            Cause::Unsupported => "not supported live",
            Cause::Other(errno) => return write!(f, "error {errno}"),
        })
    }
}

/// Accounts for every submitted byte exactly once: [`Account::submitted`] is the sum of the fields
/// from `waiting` to `failed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Ordered to move so far.
    pub submitted: u64,
    /// Waiting in the queue.
    pub waiting: u64,
    /// Moved to a faster tier.
    pub promoted: u64,
    /// Moved to a slower tier.
    pub demoted: u64,
    /// Reclaimed: resident before, and not afterwards.
    pub reclaimed: u64,
    /// Already in the requested place.
    pub already: u64,
    /// No page was mapped there.
    pub absent: u64,
    /// Not moved, by cause.
    pub failed: BTreeMap<Cause, u64>,

    /// In addition to `submitted`: the parts of huge pages that were moved along with an ordered
    /// part.
    pub carried: u64,
    /// Of `promoted` and `demoted`: second moves within the time of the ping-pong limiter.
    pub ping_pong: u64,
    /// Of `demoted`: promoted by us within the same time. Includes pages that were not accessed
    /// before their demotion, which cannot be distinguished on a live machine; so this is neither
    /// an upper nor a lower bound.
    pub returned: u64,
    /// Of `reclaimed`: refaulted later.
    pub refaulted: u64,
    /// Actions completed.
    pub actions: u64,
    /// Calls of move_pages(2) or process_madvise(2) that moved or reclaimed pages, or tried to.
    pub calls: u64,
}

impl Account {
    /// Bytes moved, including those moved along as parts of huge pages.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.promoted + self.demoted + self.carried
    }

    /// Bytes that were not moved.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Whether every submitted byte is accounted for exactly once.
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
    fn causes_have_distinct_names() {
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
