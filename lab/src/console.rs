//! Scans a kernel console for messages that a healthy kernel never prints.

/// One kernel complaint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Category of the complaint, in the kernel's words.
    pub kind: &'static str,
    /// Index of its first line, from 0.
    pub line: usize,
}

/// A breakpoint that no handler claims. The kernel patches its own code using breakpoints; QEMU
/// before 8.1 may execute one from a stale translation (fixed by "accel/tcg: Always lock pages
/// before translation").
const STALE_BREAKPOINT: &str = "unclaimed breakpoint";

/// Substrings of complaints, their categories, and the kernel sources that print them.
const MARKS: &[(&str, &str)] = &[
    ("Kernel panic - not syncing", "panic"), // kernel/panic.c
    ("BUG: sleeping function called", "sleeping in atomic"), // kernel/sched/core.c
    ("BUG: scheduling while atomic", "scheduling in atomic"), // kernel/sched/core.c
    ("BUG: Bad page", "bad page"),           // mm/page_alloc.c, mm/memory.c
    ("pgtable-generic.c:", "bad page table"), // mm/pgtable-generic.c
    ("BUG: Bad rss-counter", "bad rss counter"), // kernel/fork.c
    ("BUG: non-zero pgtables_bytes", "page-table leak"), // kernel/fork.c
    ("BUG: KASAN", "KASAN"),                 // mm/kasan/report.c
    ("BUG: ", "bug"),                        // arch/x86/mm/fault.c and others
    ("kernel BUG at", "bug"),                // lib/bug.c
    ("int3: 0000", STALE_BREAKPOINT),        // arch/x86/kernel/traps.c, exc_int3
    ("Oops: ", "oops"),                      // arch/x86/kernel/dumpstack.c
    ("general protection fault", "general protection fault"), // arch/x86/kernel/traps.c
    ("WARNING: possible", "lockdep"),        // kernel/locking/lockdep.c
    ("WARNING: ", "warning"),                // kernel/panic.c
    ("self-detected stall", "RCU stall"),    // kernel/rcu/tree_stall.h
    ("rcu_preempt detected stalls", "RCU stall"), // kernel/rcu/tree_stall.h
    ("rcu_sched detected stalls", "RCU stall"), // kernel/rcu/tree_stall.h
    ("soft lockup", "soft lockup"),          // kernel/watchdog.c
    ("hard LOCKUP", "hard lockup"),          // kernel/watchdog_perf.c
    ("blocked for more than", "hung task"),  // kernel/hung_task.c
    ("Out of memory: Killed", "out of memory"), // mm/oom_kill.c
    ("unchecked MSR access", "bad MSR access"), // arch/x86/mm/extable.c
    ("Unable to mount root fs", "no root file system"), // init/do_mounts.c
];

/// Scans a console line by line.
#[derive(Debug, Default)]
pub struct Scanner {
    lines: Vec<String>,
    findings: Vec<Finding>,
}

impl Scanner {
    /// Scans the next line.
    pub fn line(&mut self, text: &str) {
        if let Some(kind) = judge(text) {
            self.findings.push(Finding { kind, line: self.lines.len() });
        }
        self.lines.push(text.to_owned());
    }

    /// All complaints so far, in order.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The rest of the last line with `mark` before the first complaint; None: neither was seen.
    pub fn marked(&self, mark: &str) -> Option<&str> {
        let first = self.findings.first()?;
        let before = self.lines[..first.line].iter().rev();
        before.filter_map(|line| line.split_once(mark)).map(|(_, rest)| rest.trim()).next()
    }

    /// Whether the kernel panicked: no more output will follow.
    pub fn panicked(&self) -> bool {
        self.findings.iter().any(|f| f.kind == "panic")
    }

    /// Whether the first complaint is the emulator's bug described at `STALE_BREAKPOINT`.
    pub fn emulator_fault(&self) -> bool {
        self.findings.first().is_some_and(|first| first.kind == STALE_BREAKPOINT)
    }

    /// The first complaint with up to `after` lines that follow it; empty if there is none.
    pub fn excerpt(&self, after: usize) -> &[String] {
        match self.findings.first() {
            Some(first) => &self.lines[first.line..self.lines.len().min(first.line + after + 1)],
            None => &[],
        }
    }

    /// The last `n` lines, for kernels that hang without a complaint.
    pub fn tail(&self, n: usize) -> &[String] {
        &self.lines[self.lines.len().saturating_sub(n)..]
    }
}

fn judge(line: &str) -> Option<&'static str> {
    MARKS.iter().find(|(mark, _)| line.contains(mark)).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Scanner {
        let mut scanner = Scanner::default();
        text.lines().for_each(|line| scanner.line(line));
        scanner
    }

    #[test]
    fn a_clean_boot_has_no_findings() {
        let console = scan(
            "[    0.000000] Linux version 6.12\n[    2.1] tierscope: loaded, abi 1\n[    2.2] warning: an old habit\n",
        );
        assert!(console.findings().is_empty());
        assert!(console.excerpt(5).is_empty());
    }

    #[test]
    fn every_kind_is_found_by_the_kernels_own_words() {
        let cases = [
            ("[ 1.0] Kernel panic - not syncing: Fatal exception", "panic"),
            ("[ 1.0] BUG: unable to handle page fault for address: 00000000deadbeef", "bug"),
            ("[ 1.0] Oops: 0002 [#1] PREEMPT SMP PTI", "oops"),
            ("[ 3.1] int3: 0000 [#1] PREEMPT SMP NOPTI", STALE_BREAKPOINT),
            ("[ 27.1] Oops: int3: 0000 [#2] PREEMPT SMP NOPTI", STALE_BREAKPOINT),
            ("[ 1.0] WARNING: CPU: 1 PID: 9 at mm/memory.c:1 f+0x1/0x2", "warning"),
            ("[ 1.0] WARNING: possible circular locking dependency detected", "lockdep"),
            ("[ 1.0] rcu: INFO: rcu_preempt self-detected stall on CPU", "RCU stall"),
            ("[ 1.0] INFO: task prober:77 blocked for more than 120 seconds.", "hung task"),
            ("[ 1.0] BUG: non-zero pgtables_bytes on freeing mm: 4096", "page-table leak"),
            ("[ 1.0] mm/pgtable-generic.c:27: bad pgd 000000005ee1c52f(47)", "bad page table"),
            ("[ 1.0] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!", "bug"),
        ];
        for (line, kind) in cases {
            assert_eq!(judge(line), Some(kind), "{line}");
        }
    }

    #[test]
    fn only_a_first_complaint_about_a_breakpoint_is_the_emulators() {
        assert!(scan("fine\nOops: int3: 0000 [#1]\nOops: 0002 [#2]\n").emulator_fault());
        assert!(!scan("Oops: 0002 [#1]\nOops: int3: 0000 [#2]\n").emulator_fault());
        assert!(!scan("fine\n").emulator_fault());
    }

    #[test]
    fn a_complaint_is_put_down_to_the_mark_before_it() {
        let text = "[ 1.0] lab: job 00\n[ 2.0] lab: job 01\nBUG: x\n[ 9.0] lab: job 02\nBUG: y\n";
        assert_eq!(scan(text).marked("lab: job "), Some("01"));
        assert_eq!(scan("[ 1.0] lab: job 00\n").marked("lab: job "), None);
        assert_eq!(scan("BUG: x\n").marked("lab: job "), None);
    }

    #[test]
    fn the_excerpt_begins_at_the_first_complaint() {
        let console = scan("fine\nBUG: Bad page map\nCPU: 0\nCall Trace:\nmore\n");
        assert_eq!(console.excerpt(2), ["BUG: Bad page map", "CPU: 0", "Call Trace:"]);
        assert_eq!(console.tail(1), ["more"]);
        assert!(!console.panicked());
    }
}
