//! Processes of the target that cannot be watched: they are left out, and counted. Any process of a
//! cgroup can fork until there are no descriptors left; that must not end the recording of others.

use std::collections::BTreeSet;

use rustix::process::{Resource, getrlimit};
use tierscope_core::{Error, ErrorKind, Result};

/// Descriptors that are not used for processes: files of /proc, of the recording, connections.
const RESERVE: u64 = 64;

/// The processes left out.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Their pids at the last refresh, and those at the refresh in progress.
    known: BTreeSet<u32>,
    now: BTreeSet<u32>,
    /// Number of processes left out so far.
    count: u64,
    /// Why the first one was.
    first: Option<Error>,
}

impl LeftOut {
    /// Leaves out a process that cannot be watched for this reason.
    pub(crate) fn add(&mut self, pid: u32, why: Error) {
        self.now.insert(pid);
        self.count += u64::from(!self.known.contains(&pid));
        self.first.get_or_insert(why);
    }

    /// Ends a refresh.
    pub(crate) fn settle(&mut self) {
        self.known = std::mem::take(&mut self.now);
    }

    /// Why no process is watched, if one was left out.
    pub(crate) fn reason(&self) -> Option<Error> {
        self.first.clone()
    }

    /// A sentence with the number of processes left out, the first reason and its remedy.
    pub(crate) fn warning(&self) -> Option<String> {
        let why = self.first.as_ref()?;
        let what = if self.count == 1 { "process is" } else { "processes are" };
        Some(format!("{} {what} left out: {why}", self.count))
    }
}

/// Checks that descriptors remain if a process takes `descriptor` and one more: the kernel gives
/// out the lowest number that is free.
pub(crate) fn check_room(pid: u32, descriptor: i32) -> Result<()> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    match descriptor.unsigned_abs() as u64 + RESERVE < limit {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Other, format!("cannot watch process {pid}"))
            .cause(format!("only {limit} files may be open at a time"))
            .remedy("each process takes two: raise the limit with `ulimit -Hn`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(pid: u32) -> Error {
        Error::new(ErrorKind::Permission, format!("cannot watch process {pid}"))
            .cause("not permitted")
            .remedy("run as root")
    }

    // Process 7 is left out at three refreshes, 8 at the first, 9 at the last: three processes.
    #[test]
    fn each_process_counts_once() {
        let mut out = LeftOut::default();
        assert_eq!(out.warning(), None);
        for pids in [&[7, 8][..], &[7], &[7, 9]] {
            pids.iter().for_each(|pid| out.add(*pid, why(*pid)));
            out.settle();
        }
        let text = "3 processes are left out: cannot watch process 7: not permitted; run as root";
        assert_eq!(out.warning().as_deref(), Some(text));
        assert_eq!(out.reason(), Some(why(7)));
    }

    // A limit of n leaves 64 of the numbers below n.
    #[test]
    fn descriptors_are_kept_in_reserve() {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 30) as i32;
        assert_eq!(check_room(7, limit - 65), Ok(()));
        let error = check_room(7, limit - 64).unwrap_err().to_string();
        assert!(
            error.contains(&format!("only {limit} files")) && error.contains("ulimit"),
            "{error}"
        );
    }
}
