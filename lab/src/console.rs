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

/// A complaint as a kernel prints it.
#[derive(Debug)]
pub struct Mark {
    /// Substring of its first line; the comment names the source that prints it.
    pub text: &'static str,
    /// Its category.
    pub kind: &'static str,
    /// What shows that it is found.
    pub fires: Fires,
}

/// What makes a kernel print a complaint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fires {
    /// This fault of the scenario `faults`.
    By(&'static str),
    /// Kernel parameters of a machine without a job.
    AtBoot(&'static str),
    /// Nothing that the lab can do, for a reason.
    Not(&'static str),
}

use Fires::{AtBoot, By, Not};

const fn mark(text: &'static str, kind: &'static str, fires: Fires) -> Mark {
    Mark { text, kind, fires }
}

const RACE: &str = "BUG: KCSAN";

/// All complaints; of those in a line the first counts.
pub const MARKS: &[Mark] = &[
    mark("Kernel panic - not syncing", "panic", By("panic")), // kernel/panic.c
    mark("BUG: sleeping function called", "sleeping in atomic", By("sleep")), // kernel/sched/core.c
    // kernel/sched/core.c
    mark("BUG: scheduling while atomic", "scheduling in atomic", By("schedule")),
    mark("BUG: Bad page", "bad page", By("bad-page")), // mm/page_alloc.c, mm/memory.c
    mark("pgtable-generic.c:", "bad page table", By("bad-pmd")), // mm/pgtable-generic.c
    mark("BUG: Bad rss-counter", "bad rss counter", By("rss")), // kernel/fork.c
    mark("BUG: non-zero pgtables_bytes", "page-table leak", By("pgtables")), // kernel/fork.c
    mark("BUG: KASAN", "KASAN", By("use-after-free")), // mm/kasan/report.c
    mark(RACE, "KCSAN", By("race")),                   // kernel/kcsan/report.c
    mark("page_table_check.c:", "page-table check", By("double-map")), // mm/page_table_check.c
    mark("suspected memory leaks", "memory leak", By("leak")), // mm/kmemleak.c
    mark("UBSAN: ", "UBSAN", By("shift")),             // lib/ubsan.c
    mark("BUG: ", "bug", By("null")),                  // arch/x86/mm/fault.c and others
    mark("kernel BUG at", "bug", By("freed-twice")),   // lib/bug.c
    mark("int3: 0000", STALE_BREAKPOINT, By("breakpoint")), // arch/x86/kernel/traps.c, exc_int3
    mark("Oops: ", "oops", By("null")),                // arch/x86/kernel/dumpstack.c
    // arch/x86/kernel/traps.c
    mark("general protection fault", "general protection fault", By("wild")),
    mark("WARNING: possible", "lockdep", By("lock-order")), // kernel/locking/lockdep.c
    mark("WARNING: ", "warning", By("warn")),               // kernel/panic.c
    mark("self-detected stall", "RCU stall", By("stall")),  // kernel/rcu/tree_stall.h
    mark("rcu_preempt detected stalls", "RCU stall", By("reader")), // kernel/rcu/tree_stall.h
    // kernel/rcu/tree_stall.h
    mark(
        "rcu_sched detected stalls",
        "RCU stall",
        Not("kernels with preemption, as all of kernels.toml are, call it rcu_preempt"),
    ),
    mark("soft lockup", "soft lockup", By("stall")), // kernel/watchdog.c
    mark("hard LOCKUP", "hard lockup", By("irqs-off")), // kernel/watchdog.c
    mark("blocked for more than", "hung task", By("hung")), // kernel/hung_task.c
    mark("Out of memory: Killed", "out of memory", By("out-of-memory")), // mm/oom_kill.c
    mark("unchecked MSR access", "bad MSR access", By("msr")), // arch/x86/mm/extable.c
    // init/do_mounts.c
    mark("Unable to mount root fs", "no root file system", AtBoot("rdinit=/none")),
];

/// Scans a console line by line.
#[derive(Debug, Default)]
pub struct Scanner {
    lines: Vec<String>,
    findings: Vec<Finding>,
    /// The report of a race that has not ended.
    race: Option<Race>,
    others_races: u32,
}

/// A report of a race.
#[derive(Debug, Clone, Copy)]
struct Race {
    /// Its first line.
    first: usize,
    /// The stack that is being read went through [`LOCKLESS`].
    lockless: bool,
}

/// Looks mappings up while they are changed, by the kernel's own protocol, as every page fault
/// does. Races beneath it are not its caller's. (mm/mmap_lock.c)
const LOCKLESS: &str = "lock_vma_under_rcu+";
/// In the first line of each of the two stacks of a report.
const STACK: &str = " bytes by ";
/// What is in the name of every function of our modules.
const OURS: &str = "[tierscope";
/// Ends a report of a race.
const RULE: &str = "==================";

impl Scanner {
    /// Scans the next line.
    pub fn line(&mut self, text: &str) {
        let here = self.lines.len();
        match judge(text) {
            Some(_) if text.contains(RACE) => {
                self.race = Some(Race { first: here, lockless: false });
            }
            Some(kind) => self.findings.push(Finding { kind, line: here }),
            None => {}
        }
        self.race = self.race.and_then(|race| self.race_goes_on(race, text));
        self.lines.push(text.to_owned());
    }

    /// Races that none of our functions takes part in are the kernel's own: they are counted only.
    fn race_goes_on(&mut self, mut race: Race, text: &str) -> Option<Race> {
        race.lockless = (race.lockless && !text.contains(STACK)) || text.contains(LOCKLESS);
        if text.contains(OURS) && !race.lockless {
            self.findings.push(Finding { kind: "KCSAN", line: race.first });
            return None;
        }
        let ends = text.contains(RULE);
        self.others_races += u32::from(ends);
        (!ends).then_some(race)
    }

    /// Number of races between functions of the kernel.
    pub fn others_races(&self) -> u32 {
        self.others_races
    }

    /// All lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
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
    MARKS.iter().find(|mark| line.contains(mark.text)).map(|mark| mark.kind)
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
            ("[ 1.0] BUG: KCSAN: data-race in f / g", "KCSAN"),
            ("[ 1.0] kernel BUG at mm/page_table_check.c:127!", "page-table check"),
            ("[ 1.0] UBSAN: shift-out-of-bounds in a.c:1:2", "UBSAN"),
            ("[ 1.0] kmemleak: 16 new suspected memory leaks (see /sys", "memory leak"),
            ("[ 1.0] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!", "bug"),
        ];
        for (line, kind) in cases {
            assert_eq!(judge(line), Some(kind), "{line}");
        }
    }

    #[test]
    fn races_count_that_one_of_our_functions_takes_part_in() {
        let report = |function: &str| {
            format!(
                "{RULE}\nBUG: KCSAN: data-race in f / {function}\nread to 0x0 of 4 bytes\n{RULE}\n"
            )
        };
        let kernels = scan(&(report("g") + &report("h")));
        assert_eq!((kernels.findings().len(), kernels.others_races()), (0, 2));
        let ours = scan(&(report("g") + &report("walk [tierscope]") + "BUG: x\n"));
        let kinds: Vec<&str> = ours.findings().iter().map(|finding| finding.kind).collect();
        assert_eq!((kinds, ours.others_races()), (vec!["KCSAN", "bug"], 1));
    }

    // A page fault looks a mapping up by the same function; the other stack is of no lookup.
    #[test]
    fn races_beneath_a_lockless_lookup_are_the_kernels() {
        let report = |stack: &str| {
            format!(
                "{RULE}\nBUG: KCSAN: data-race in f / mas_walk\nread to 0x0 of 8 bytes by task 7:\n \
                 mas_walk+0x1\n lock_vma_under_rcu+0x9d/0x500\n ts_hold_vma+0x1 [tierscope]\n\n\
                 write to 0x0 of 8 bytes by task 8:\n {stack}\n{RULE}\n"
            )
        };
        let kernels = scan(&report("f+0x1"));
        assert_eq!((kernels.findings().len(), kernels.others_races()), (0, 1));
        assert_eq!(scan(&report("f+0x1\n ts_walk+0x1 [tierscope]")).findings().len(), 1);
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
