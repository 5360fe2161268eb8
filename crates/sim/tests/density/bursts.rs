//! Accesses in bursts: sweeps over the hot memory, with pauses between them, in which none of its
//! pages is accessed.

use tierscope_workloads::file;

use super::sparse::{as_shipped, found, windows};
use super::*;

/// 32 MiB of a heap are swept in `on` microseconds, four accesses a page; then none of them is for
/// `off` microseconds. `others` accesses a second fall on the program's own 64 pages, all the time.
fn sweeps(on: u32, off: u32, others: u32) -> Workload {
    let hot = 4.0 * 8192.0 * 1e6 / f64::from(on);
    let phase = |name: &str, micros: u32, rate: f64| {
        let sum = rate + f64::from(others);
        let all = sum as u64;
        let mut text = format!(
            "[[phase]]\nname = \"{name}\"\ntime = \"{micros}us\"\nrate = {all}\n\
             [[phase.access]]\narea = \"code\"\npattern = \"random\"\nweight = {}\nhot = true\n",
            f64::from(others) / sum
        );
        if rate > 0.0 {
            text += &format!(
                "[[phase.access]]\narea = \"heap\"\nfrom = \"64MiB\"\nbytes = \"32MiB\"\n\
                 pattern = \"random\"\nweight = {}\nhot = true\n",
                rate / sum
            );
        }
        text
    };
    let areas = "name = \"sweeps\"\n[[area]]\nname = \"code\"\nbytes = \"256KiB\"\n\
                 [[area]]\nname = \"heap\"\nbytes = \"256MiB\"\n";
    let text = areas.to_owned() + &phase("sweep", on, hot) + &phase("pause", off, 0.0);
    file::parse("sweeps", &text).expect("a description")
}

/// KiB reported as hot, those of them that are, and unknown ones, per window from 10 seconds on,
/// ascending.
fn late(on: u32, off: u32, others: u32, seconds: u64) -> (u64, Vec<[u64; 3]>) {
    let mut machine = Machine::new(as_shipped(1), &sweeps(on, off, others)).expect("a machine");
    let snapshots = windows(&mut machine, "rates", 1, seconds);
    let truth = machine.hot_at(Time(0));
    let late = snapshots.iter().filter(|snapshot| snapshot.end.0 > 10 * SECOND);
    let mut found: Vec<_> = late.map(|s| found(s, &truth).map(|bytes| bytes >> 10)).collect();
    found.sort_unstable();
    (truth.bytes() >> 10, found)
}

// Sweeps from 10 to 100 times a second, next to a program's own few pages that are accessed up to a
// million times a second. In 95 % of the windows at least two thirds of the truth are found, and in
// half of them nine tenths; in 95 % at most 1.2 of it are reported.
#[test]
fn swept_memory_is_hot() {
    let cases = [(2000, 23000), (5000, 20000), (1000, 9000), (10000, 40000), (3000, 97000)];
    for (on, off) in cases {
        for others in [10_000, 1_000_000] {
            let (truth, windows) = late(on, off, others, 20);
            let at = |percent: usize| windows[(windows.len() - 1) * percent / 100];
            println!("{on} {off} {others}: {:?} {:?} {:?}", at(5), at(50), at(95));
            let [most, ..] = at(95);
            assert!(most * 10 <= truth * 12, "{on} {off} {others}: {most} of {truth} KiB");
            let least = [at(5)[1], at(50)[1]];
            let is_found = least[0] * 3 >= truth * 2 && least[1] * 10 >= truth * 9;
            assert!(is_found, "{on} {off} {others}: {least:?} of {truth} KiB");
        }
    }
}

// A program that works a fifth of the time, or 10 ms of 380. In half of the windows nine tenths of
// the truth are found; in nine tenths of them a third is found or unknown; and in 95 % at most 1.2
// of it are reported.
#[test]
fn memory_of_a_program_that_naps_is_hot() {
    for (on, off, others) in
        [(50_000, 200_000, 10_000), (200_000, 800_000, 10_000), (10_000, 370_000, 100_000)]
    {
        let (truth, windows) = late(on, off, others, 40);
        let at = |percent: usize| windows[(windows.len() - 1) * percent / 100];
        println!("{on} {off}: {:?} {:?} {:?} of {truth} KiB", at(10), at(50), at(95));
        let [most, ..] = at(95);
        assert!(most * 10 <= truth * 12, "{on} {off}: {most} of {truth} KiB");
        let mut seen: Vec<u64> =
            windows.iter().map(|[_, found, unknown]| found + unknown).collect();
        seen.sort_unstable();
        let least = seen[(seen.len() - 1) / 10];
        assert!(least * 3 >= truth && at(50)[1] * 10 >= truth * 9, "{on} {off}: {least} KiB");
    }
}

// Memory that is read once in ten seconds, as by a backup, is hot in few windows.
#[test]
fn a_single_sweep_does_not_make_memory_hot_for_long() {
    let (truth, windows) = late(10_000, 10_000_000, 100_000, 60);
    let hot = windows.iter().filter(|[hot, ..]| *hot > 1024).count();
    println!("{truth} KiB, {hot} of {} windows", windows.len());
    assert!(hot * 5 <= windows.len(), "{hot} of {} windows", windows.len());
}
