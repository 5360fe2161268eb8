//! Checks of the guarantees in `tierscope_filler.h`, one function each.

use std::fs;
use std::io;

use tierscope_core::{AccessedSet, Level, Range, ScanMode, SpaceId};
use tierscope_linux::abi;
use tierscope_linux::module::{Attachment, Module, Presence};

use crate::filled::{Fill, Filled, TABLE_BYTES};
use crate::{GIB, MIB, PAGE};

type Checked = Result<(), String>;

/// Size of the mapping: three level-2 tables, and a part of the fourth.
const BYTES: u64 = 3 * GIB + 6 * MIB;

/// Runs all checks.
pub(crate) fn check() -> Checked {
    let before = resident_pages()?;
    let filled = Filled::map_alone(BYTES).map_err(|e| format!("mmap: {e}"))?;
    refuses_nonsense(&filled)?;
    refuses_what_memory_cannot_hold()?;
    fills_in_parts(&filled)?;
    counts_what_is_resident(before, BYTES / PAGE)?;
    refuses_to_fill_twice(&filled)?;
    let mut bits = attach()?;
    all_is_old(&mut bits, &filled)?;
    touches_are_seen_at_every_level(&mut bits, &filled)?;
    aliases_are_two_megabytes_apart(&filled)?;
    taken_down_by_the_kernel_or_by_us(before, &filled)?;
    fills_around_holes(before, &filled)?;
    println!("all promises kept");
    Ok(())
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// Resident shared-memory pages of this process. Before v6.2 a thread caches its changes to the
/// counters for 64 page faults (`check_sync_rss_stat` in mm/memory.c), so this causes some faults
/// first.
fn resident_pages() -> Result<u64, String> {
    let mut fresh = vec![0u8; 128 * PAGE as usize];
    fresh.iter_mut().step_by(PAGE as usize).for_each(|byte| *byte = std::hint::black_box(1));
    let text = fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssShmem:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib / 4).ok_or_else(|| "no RssShmem in /proc/self/status".into())
}

/// Checks the number of resident pages. Per-CPU counters are summed in batches: a few dozen pages
/// may be missing.
fn counts_what_is_resident(before: u64, pages: u64) -> Checked {
    let now = resident_pages()?;
    let off = now.abs_diff(before + pages);
    ensure(off <= 256, || format!("resident: {before} + {pages} pages expected, {now} found"))
}

fn errno(answer: io::Result<()>) -> Option<i32> {
    answer.err().and_then(|error| error.raw_os_error())
}

fn refuses_nonsense(filled: &Filled) -> Checked {
    let (start, end) = (filled.start, filled.end);
    let cases = [
        (Fill::new(start + PAGE, end), libc::EINVAL, "unaligned"),
        (Fill::new(end, start), libc::EINVAL, "backwards"),
        (Fill { cursor: start - TABLE_BYTES, ..filled.all() }, libc::EINVAL, "cursor before start"),
        (Fill::new(start, !(TABLE_BYTES - 1)), libc::EINVAL, "the kernel's half"),
        (Fill::new(start - GIB, start - GIB + TABLE_BYTES), libc::EFAULT, "not ours"),
    ];
    for (mut fill, expected, what) in cases {
        let cursor = fill.cursor;
        let answer = errno(filled.fill(&mut fill));
        ensure(answer == Some(expected), || format!("{what}: {expected} expected: {answer:?}"))?;
        ensure(fill.cursor == cursor, || format!("{what}: the cursor moved"))?;
    }
    Ok(())
}

fn refuses_what_memory_cannot_hold() -> Checked {
    let huge = Filled::map(64 << 40).map_err(|e| format!("mmap of 64 TiB: {e}"))?;
    let mut fill = huge.all();
    let answer = errno(huge.fill(&mut fill));
    ensure(answer == Some(libc::ENOMEM), || format!("64 TiB: ENOMEM expected: {answer:?}"))?;
    ensure(fill.cursor == fill.start, || "64 TiB: it began".into())?;
    ensure(fill.needed >= 128 * GIB && fill.available < fill.needed, || format!("{fill:?}"))
}

fn fills_in_parts(filled: &Filled) -> Checked {
    let mut fill = Fill { budget: 1, ..filled.all() };
    let mut parts = 0;
    while fill.cursor < fill.end {
        filled.fill(&mut fill).map_err(|e| format!("fill: {e}: {fill:?}"))?;
        parts += 1;
    }
    ensure(parts >= 4, || format!("a budget of one byte is a GiB at most, {parts} parts"))
}

fn refuses_to_fill_twice(filled: &Filled) -> Checked {
    let mut fill = filled.all();
    let answer = errno(filled.fill(&mut fill));
    ensure(answer == Some(libc::EBUSY), || format!("twice: EBUSY expected: {answer:?}"))?;
    ensure(fill.cursor == fill.start, || "twice: the cursor moved".into())
}

fn attach() -> Result<Attachment, String> {
    let module = Module::open().map_err(|e| e.to_string())?;
    module.attach(std::process::id()).map_err(|e| e.to_string())
}

/// Levels whose entries belong to the mapping alone.
const LEVELS: [Level; 4] = [Level::PTE, Level::PMD, Level::PUD, Level::P4D];

fn scan(bits: &mut Attachment, filled: &Filled, level: Level) -> Result<AccessedSet, String> {
    let range = Range::new(SpaceId(0), filled.start, filled.end);
    let mode = ScanMode { present: true, ..ScanMode::default() };
    let mut set = AccessedSet::default();
    bits.scan(&range, level, mode, &mut set).map_err(|e| e.to_string())?;
    Ok(set)
}

fn all_is_old(bits: &mut Attachment, filled: &Filled) -> Checked {
    for level in LEVELS {
        let set = scan(bits, filled, level)?;
        let present: u64 = set.present.iter().map(|w| u64::from(w.count_ones())).sum();
        ensure(present == set.entries(), || {
            format!("{level:?}: {present} of {} present", set.entries())
        })?;
        let young = set.young_count();
        ensure(young == 0, || format!("{level:?}: {young} young before any touch"))?;
    }
    Ok(())
}

/// Some pages in different tables, at different offsets in them.
fn touched(filled: &Filled) -> Vec<u64> {
    let pages = (filled.end - filled.start) / PAGE;
    (0..pages).step_by(7 * 512 + 13).map(|page| filled.start + page * PAGE).collect()
}

fn touches_are_seen_at_every_level(bits: &mut Attachment, filled: &Filled) -> Checked {
    let touched = touched(filled);
    for at in &touched {
        // SAFETY: the address is in the mapping, which is filled.
        unsafe { std::ptr::read_volatile(*at as *const u8) };
    }
    for level in LEVELS {
        let set = scan(bits, filled, level)?;
        let index = |at: &u64| (at - set.range.start) >> level.shift();
        let mut expected: Vec<u64> = touched.iter().map(index).collect();
        expected.dedup();
        let young: Vec<u64> = (0..set.entries()).filter(|i| set.is_young(*i)).collect();
        ensure(young == expected, || {
            format!("{level:?}: {} young, {} touched", young.len(), expected.len())
        })?;
        println!(
            "level {}: {} of {} entries young, as touched",
            level.number(),
            young.len(),
            set.entries()
        );
    }
    probes_agree(bits, touched[touched.len() / 2])
}

/// Checks that test-and-clear finds each level young once, and reports the right kind of entry.
fn probes_agree(bits: &mut Attachment, at: u64) -> Checked {
    let probe = |level: u8| abi::Probe {
        addr: at,
        level,
        op: abi::OP_TEST_AND_CLEAR,
        ..Default::default()
    };
    for expected in [abi::STATE_YOUNG, abi::STATE_OLD] {
        let mut probes = [1, 2, 3, 4].map(probe);
        let here = bits.probe(&mut probes).map_err(|e| e.to_string())?;
        ensure(here == Presence::Here, || "this process is gone".into())?;
        for probe in probes {
            let kind = if probe.level == 1 { abi::KIND_PAGE } else { abi::KIND_TABLE };
            ensure(probe.state == expected && probe.kind == kind, || format!("{probe:?}"))?;
        }
    }
    Ok(())
}

fn aliases_are_two_megabytes_apart(filled: &Filled) -> Checked {
    let at = |offset: u64| (filled.start + offset) as *mut u64;
    // SAFETY: all addresses are in the filled mapping, and no other code uses it.
    let read = unsafe {
        at(GIB + 5 * PAGE).write_volatile(4711);
        [GIB + 3 * TABLE_BYTES + 5 * PAGE, 6 * PAGE].map(|offset| at(offset).read_volatile())
    };
    ensure(read == [4711, 0], || format!("aliases: {read:?}"))
}

/// Checks that the kernel's munmap frees the first GiB, and the device's own operation the rest.
fn taken_down_by_the_kernel_or_by_us(before: u64, filled: &Filled) -> Checked {
    unmap(filled.start, GIB)?;
    counts_what_is_resident(before, (BYTES - GIB) / PAGE)?;
    let mut rest = Fill::new(filled.start + GIB, filled.end);
    filled.empty(&mut rest).map_err(|e| format!("empty: {e}"))?;
    counts_what_is_resident(before, 0)
}

/// Checks that tables from which the kernel removed pages are filled up again.
fn fills_around_holes(before: u64, filled: &Filled) -> Checked {
    let (start, end) = (filled.start + GIB, filled.start + GIB + 8 * MIB);
    let fill = || filled.fill(&mut Fill::new(start, end)).map_err(|e| format!("refill: {e}"));
    fill()?;
    for table in (start..end).step_by(TABLE_BYTES as usize) {
        // SAFETY: these pages belong to this process, and their contents do not matter.
        let answer =
            unsafe { libc::madvise(table as *mut _, 17 * PAGE as usize, libc::MADV_DONTNEED) };
        ensure(answer == 0, || format!("madvise: {}", io::Error::last_os_error()))?;
    }
    counts_what_is_resident(before, 4 * (512 - 17))?;
    fill()?;
    counts_what_is_resident(before, 4 * 512)?;
    unmap(start, 8 * MIB)?;
    counts_what_is_resident(before, 0)
}

fn unmap(start: u64, bytes: u64) -> Checked {
    // SAFETY: a part of our own mapping that is not used again.
    let answer = unsafe { libc::munmap(start as *mut _, bytes as usize) };
    ensure(answer == 0, || format!("munmap: {}", io::Error::last_os_error()))
}
