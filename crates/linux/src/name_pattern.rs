//! Patterns of names of processes: `redis*`.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use tierscope_core::Result;

use crate::proc::Proc;

/// A shell pattern (`*`, `?`, `[a-z]`) that a process's name has to match: either the name that the
/// kernel shows (`comm`, at most 15 bytes), or the last component of its program's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(CString);

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match CString::new(text) {
            Ok(pattern) if !text.is_empty() => Ok(Self(pattern)),
            _ => Err("no name matches it: give one like redis-server or 'postgres*'".into()),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string_lossy())
    }
}

impl NamePattern {
    /// Whether a name matches.
    fn matches(&self, name: &OsStr) -> bool {
        // A name of the kernel holds no NUL.
        let Ok(name) = CString::new(name.as_bytes()) else { return false };
        // SAFETY: both strings end with NUL and live until the call returns.
        unsafe { libc::fnmatch(self.0.as_ptr(), name.as_ptr(), 0) == 0 }
    }

    /// The user processes that match now.
    ///
    /// # Errors
    /// If the processes cannot be listed or read.
    pub(crate) fn processes(&self, proc: &Proc) -> Result<Vec<u32>> {
        let mut found = Vec::new();
        for pid in proc.pids()? {
            let called = proc.comm(pid)?.is_some_and(|comm| self.matches(&comm));
            let runs = || proc.program(pid).is_some_and(|program| self.matches(&program));
            if (called || runs()) && proc.is_user_process(pid)? {
                found.push(pid);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake_root::Root;

    fn matched(root: &Root, pattern: &str) -> Vec<u32> {
        pattern.parse::<NamePattern>().unwrap().processes(&root.proc()).unwrap()
    }

    // Process 2 is a thread of the kernel, 5 a zombie; 4 has given itself a name.
    #[test]
    fn a_pattern_is_compared_with_both_names() {
        let root = Root::new();
        root.process(2, "kworker/0:1", 'I').kernel_thread();
        root.process(3, "redis-server", 'S').program("/usr/bin/redis-check-rdb");
        root.process(4, "worker", 'S').program("/opt/app/redis-sentinel-of-ours");
        root.process(5, "redis-cli", 'Z');
        root.process(6, "postgres", 'S').program("/usr/lib/postgres (deleted)");
        assert_eq!(matched(&root, "redis*"), [3, 4]);
        assert_eq!(matched(&root, "redis-sentinel-of-????"), [4]);
        assert_eq!(matched(&root, "[pw]o*r*"), [4, 6]);
        assert_eq!(matched(&root, "postgres"), [6]);
        assert_eq!(matched(&root, "*"), [3, 4, 6]);
        assert_eq!(matched(&root, "redis"), []);
    }

    #[test]
    fn a_pattern_that_no_name_can_match_is_refused() {
        assert!("".parse::<NamePattern>().is_err() && "a\0b".parse::<NamePattern>().is_err());
        let pattern: NamePattern = "redis*".parse().unwrap();
        assert_eq!(pattern.to_string(), "redis*");
    }
}
