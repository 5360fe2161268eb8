//! Parser of `/proc/PID/stat` (fs/proc/array.c: `do_task_stat`).

use std::time::Duration;

use tierscope_core::Result;

use super::{Proc, malformed, read_whole};

/// `PF_KTHREAD` of include/linux/sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Fields of a process's stat file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name of the program, truncated to 15 bytes by the kernel. Bytes that are not UTF-8 become
    /// U+FFFD.
    pub comm: String,
    /// State: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, …
    pub state: char,
    /// Process id of the parent.
    pub parent: u32,
    /// Whether it is a kernel thread.
    pub kernel_thread: bool,
    /// User time of all its threads, in clock ticks.
    pub user_ticks: u64,
    /// System time of all its threads, in clock ticks.
    pub system_ticks: u64,
    /// Start time in clock ticks after boot; pid and start time identify a process. An exec does
    /// not change it.
    pub started: u64,
}

impl Stat {
    /// Whether the process has ended: it is a zombie or dead.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// User and system time.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        // USER_HZ is 100 on every architecture that our kernel module supports
        // (include/asm-generic/param.h): part of the ABI, not of the configuration.
        const NANOS_PER_TICK: u64 = 10_000_000;
        let ticks = self.user_ticks.saturating_add(self.system_ticks);
        Duration::from_nanos(ticks.saturating_mul(NANOS_PER_TICK))
    }
}

impl Proc {
    /// Reads the stat file of process `pid`; `None` if it is gone.
    ///
    /// # Errors
    /// If it cannot be read or parsed.
    pub fn stat(&self, pid: u32) -> Result<Option<Stat>> {
        let path = self.path(pid, "stat");
        let Some(text) = read_whole(&path)? else { return Ok(None) };
        parse_stat(&text).map(Some).map_err(|item| malformed(&path, 1, item, &text))
    }
}

/// Parses a stat file. The name is in parentheses and may contain any byte, parentheses and spaces
/// included: it ends at the last `)`.
///
/// # Errors
/// The first item that is missing or malformed.
pub fn parse_stat(text: &[u8]) -> Result<Stat, &'static str> {
    let open = text.iter().position(|b| *b == b'(').ok_or("name")?;
    let close = text.iter().rposition(|b| *b == b')').filter(|at| *at > open).ok_or("name")?;
    let fields = std::str::from_utf8(&text[close + 1..]).map_err(|_| "state")?;
    // proc(5) counts from 1; the state, first after the name, is field 3.
    let field = |number: usize| fields.split_ascii_whitespace().nth(number - 3);
    let count = |number, item| field(number).and_then(|f| f.parse::<u64>().ok()).ok_or(item);
    Ok(Stat {
        comm: String::from_utf8_lossy(&text[open + 1..close]).into_owned(),
        state: field(3).and_then(|f| f.chars().next()).ok_or("state")?,
        parent: field(4).and_then(|f| f.parse().ok()).ok_or("ppid")?,
        kernel_thread: count(9, "flags")? & KERNEL_THREAD != 0,
        user_ticks: count(14, "utime")?,
        system_ticks: count(15, "stime")?,
        started: count(22, "starttime")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(comm: &str) -> String {
        format!("42 ({comm}) S 7 42 42 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 98765 1000 10 0")
    }

    #[test]
    fn a_name_may_contain_any_bytes() {
        for comm in ["cat", "a b", "(sd-pam)", ") R 1 (", ""] {
            let stat = parse_stat(line(comm).as_bytes()).unwrap();
            assert_eq!(stat.comm, comm);
            assert_eq!((stat.state, stat.parent, stat.started), ('S', 7, 98765));
            // CPU time: 150 + 50 ticks of 10 ms
            assert_eq!(stat.cpu_time(), Duration::from_secs(2));
            assert!(!stat.kernel_thread && !stat.has_ended());
        }
    }

    #[test]
    fn kernel_threads_and_zombies() {
        let flags = line("kswapd0").replace("4194560", "2129984");
        assert!(parse_stat(flags.as_bytes()).unwrap().kernel_thread);
        assert!(parse_stat(line("x").replace(" S ", " Z ").as_bytes()).unwrap().has_ended());
    }

    #[test]
    fn the_missing_item_is_named() {
        assert_eq!(parse_stat(b"1 cat S"), Err("name"));
        assert_eq!(parse_stat(b"1 )(cat"), Err("name"));
        assert_eq!(parse_stat(b"1 (cat)"), Err("state"));
        assert_eq!(parse_stat(b"1 (cat) S x"), Err("ppid"));
        assert_eq!(parse_stat(b"1 (cat) S 1 2 3 4 5 6 7"), Err("utime"));
    }

    #[test]
    fn reads_this_process() {
        let stat = Proc::default().stat(std::process::id()).unwrap().unwrap();
        assert!(!stat.kernel_thread && !stat.has_ended() && stat.started > 0);
        assert_eq!(Proc::default().stat(u32::MAX), Ok(None));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_stat(&bytes);
        }

        #[test]
        fn any_name_is_parsed_back(comm in "[ -~]{0,15}") {
            prop_assert_eq!(parse_stat(line(&comm).as_bytes()).unwrap().comm, comm);
        }
    }
}
