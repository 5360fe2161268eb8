//! Tests of the chapter on results as the scenario `tier` writes them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::in_turns::{COMPARED, Turns};
use super::results::{Phase, Run, fullest_second, requested_share};
use super::ycsb::{AGAINST, rows as ycsb_rows};
use super::*;

fn file(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).unwrap();
}

/// Writes results of a run with phases of twelve seconds: 160 reads in each of the first six
/// seconds, 240 in the others.
fn run(dir: &Path) {
    let interval = |n: u64| {
        let operations = if n > 6 { 240 } else { 160 };
        format!("{{\"at\":{n}.0,\"operations\":{operations},\"p95_us\":{}.0}}", 100 + n)
    };
    let intervals: Vec<String> = (1..=12).map(interval).collect();
    let load = format!("{{\"operations_per_second\":190,\"intervals\":[{}]}}", intervals.join(","));
    let nodes = "{\"at\":0.0,\"nodes\":{\"1\":100}}\n{\"at\":1.0,\"nodes\":{\"0\":60,\"1\":40}}\n\
                 {\"at\":2.0,\"nodes\":{\"0\":96,\"1\":4}}\n";
    for phase in ["first", "second"] {
        file(dir, &format!("{phase}.json"), &load);
        file(dir, &format!("{phase}-nodes.txt"), nodes);
    }
    let sight = |n: u64| {
        format!(
            "{{\"at\":{n}.5,\"migrated\":{},\"near_misses\":{},\"far_misses\":{},\"near\":{},\"far\":{}}}\n",
            n / 2,
            30 * n,
            10 * n,
            20 + n / 5,
            80 - n / 5
        )
    };
    file(dir, "watched.txt", &(0..30).map(sight).collect::<String>());
    file(dir, "check.json", "{\"checked\":100,\"bytes\":9}");
    let account = "{\"ended\":\"stopped\",\"profiler_cpu_share\":0.02,\"account\":{\"adds_up\":true,\
                   \"promoted\":4096,\"demoted\":0,\"failed\":{\"busy\":8192}}}";
    file(dir, "account.json", account);
}

#[test]
fn files_of_a_run_become_figures() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path());
    let run = Run::read(dir.path()).unwrap();
    // Seconds 3 to 12 of the phase: four with 160 reads and six with 240.
    assert_eq!((run.first.rate, run.first.p95_us), (208.0, 107.0));
    assert_eq!((run.first.share, run.first.over_time), (Some(0.96), [Some(0.0), Some(0.6)]));
    assert_eq!((run.misses, run.promoted, run.failed), (0.75, 4096.0, 8192.0));
    let bases = [("static", 104.0), ("the kernel's", 416.0)];
    let rows = run.rows(("redis", JUDGED), 4096.0, &bases, "x");
    let held = |what: &str| {
        rows.iter().find(|row| row.name.contains(what)).map(|row| (row.value, row.holds))
    };
    assert_eq!(held("promoted, of both"), Some((0.5, true)));
    assert_eq!(held("over static"), Some((2.0, true)));
    assert_eq!(held("over the kernel's"), Some((0.5, true)), "turns are held to a bar");
    assert_eq!(held("30 s after shift"), Some((0.96, true)));
}

#[test]
fn turns_are_compared_by_their_medians() {
    let names = COMPARED.repeat(3);
    let places = turns(&names);
    assert_eq!(places[..4], ["static", "kernel", JUDGED, "static.2"]);
    assert_eq!(places[8], format!("{JUDGED}.3"));
    let dir = tempfile::tempdir().unwrap();
    run(dir.path());
    let base = Run::read(dir.path()).unwrap();
    let of = |whole| Run { second: Phase { whole, ..base.second }, ..base.clone() };
    // Ratios over static: 3, 0.5 and 1.6; over the kernel's: 0.75, 1/9 and 4.
    let rates = [1.0, 4.0, 3.0, 2.0, 9.0, 1.0, 5.0, 2.0, 8.0];
    let runs = rates.map(of);
    let turns = Turns { server: "redis", names: &names, runs: &runs, hot: 4096.0, command: "x" };
    let rows = turns.rows();
    let figure = |what: &str| {
        let row = rows.iter().find(|row| row.name.ends_with(what)).expect(what);
        (row.value, row.holds)
    };
    assert_eq!(figure("a second over static, median of turns, after shift"), (1.6, true));
    assert_eq!(figure("a second over the kernel's, median of turns, after shift"), (0.75, false));
    assert_eq!(figure("static: reads a second, turn 3, after shift"), (5.0, true));
    assert_eq!(figure("in the end of each").0, base.checked);
}

// Rates: ours 12 and 16, the kernel's 8 and 10, its DAMON's 14 and 6. Our slowest is compared
// with their fastest.
#[test]
fn our_slowest_turn_is_compared_with_the_kernel_s_fastest() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path());
    let base = Run::read(dir.path()).unwrap();
    let names = AGAINST.repeat(2);
    let runs: Vec<Run> = [7.0, 8.0, 14.0, 12.0, 9.0, 10.0, 6.0, 16.0]
        .map(|whole| Run { second: Phase { whole, ..base.second }, ..base.clone() })
        .into();
    let rows = ycsb_rows(&names, &runs, "x");
    let figure = |what: &str| {
        let row = rows.iter().find(|row| row.name.ends_with(what)).expect(what);
        (row.value, row.holds)
    };
    assert_eq!(figure("its slowest turn over kernel's fastest"), (1.2, true));
    assert_eq!(figure("its slowest turn over kernel-damon's fastest"), (12.0 / 14.0, false));
    assert_eq!(figure("kernel-damon: operations a second, turn 2"), (6.0, true));
}

#[test]
fn pages_moved_by_the_kernel_s_damon_are_read() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path());
    // 725 ticks in 29 s.
    file(dir.path(), "damon.txt", "ticks 725\npromoted 8192\ndemoted 4096\n");
    let run = Run::read(dir.path()).unwrap();
    assert_eq!((run.promoted, run.demoted, run.cpu), (8192.0, 4096.0, Some(0.25)));
}

// One turn each, with 10, 20, 30, 40 and 50 reads a second.
#[test]
fn ours_is_compared_with_each_peer_of_the_newest_kernel() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path());
    let base = Run::read(dir.path()).unwrap();
    let names = ["static", "kernel", "kernel-damon", "kernel-damon-goals", JUDGED];
    let runs: Vec<Run> = [10.0, 20.0, 30.0, 40.0, 50.0]
        .map(|whole| Run { second: Phase { whole, ..base.second }, ..base.clone() })
        .into();
    let rows = peers::rows(&names, &runs, "x");
    let figure = |what: &str| {
        rows.iter().find(|row| row.name.ends_with(what)).map(|row| (row.value, row.holds))
    };
    let over = |other: &str| figure(&format!("reads a second over {other} after shift"));
    assert_eq!(over("kernel-damon-goals"), Some((1.25, true)));
    assert_eq!(over("static"), Some((5.0, true)));
    assert_eq!(figure("kernel: hot bytes on node 0 in the end after start"), Some((0.96, true)));
}

#[test]
fn parameters_of_a_case_apply() {
    let mut scenario = Scenario::load("tier").unwrap();
    assert_eq!(set_number(&scenario, "keys").unwrap(), 1200.0);
    scenario.assign("keys=100").unwrap();
    let bytes = hot_bytes(&scenario).unwrap();
    assert!((bytes - 100.0 * 65000.0 * 0.1).abs() < 1e-6, "{bytes}");
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("hot-region");
    fs::create_dir(&policy).unwrap();
    run(&policy);
    scenario.assign("policies=hot-region").unwrap();
    check(dir.path(), &scenario).unwrap();
    scenario.assign("keys=101").unwrap();
    let error = check(dir.path(), &scenario).unwrap_err().to_string();
    assert!(error.contains("100 of 101 values"), "{error}");
}

// 4 pages from 10.4 to 10.9 and 3 more until 11.5, which are 1.1 s apart; the 8 pages until 13
// may have taken longer than a second.
#[test]
fn the_fullest_second_is_found() {
    let sights = |counts: &[(f64, u64)]| -> Vec<Value> {
        let sight =
            |(at, migrated): &(f64, u64)| serde_json::json!({ "at": at, "migrated": migrated });
        counts.iter().map(sight).collect()
    };
    let counts = [(10.0, 5), (10.4, 5), (10.9, 9), (11.5, 12), (13.0, 20)];
    assert_eq!(fullest_second(&sights(&counts)).unwrap(), 4.0);
    let counts = [(1.0, 5), (1.5, 6), (1.9, 9), (2.2, 20)];
    assert_eq!(fullest_second(&sights(&counts)).unwrap(), 14.0);
    assert!(fullest_second(&sights(&counts[..1])).is_err());
}

// From the twentieth second on, 24 and 25 of 100 pages are on node 0.
#[test]
fn a_share_is_judged_once_it_has_settled() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path());
    let run = Run::read(dir.path()).unwrap();
    assert!((run.off(0.25).unwrap() - 0.01).abs() < 1e-9);
    assert_eq!(requested_share("hot-region:hits=3,share=0.25"), Some(0.25));
    assert_eq!(requested_share("hot-region"), None);
}

#[test]
fn an_account_that_does_not_add_up_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path());
    let text = fs::read_to_string(dir.path().join("account.json")).unwrap();
    file(dir.path(), "account.json", &text.replace("true", "false"));
    assert!(Run::read(dir.path()).unwrap_err().to_string().contains("does not add up"));
}

#[test]
fn the_kernel_s_moves_are_read_from_its_counters() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path());
    fs::remove_file(dir.path().join("account.json")).unwrap();
    let counts =
        |up: u64| format!("pgpromote_success {up}\npgdemote_kswapd 1\npgdemote_direct {up}\n");
    file(dir.path(), "vmstat-before.txt", &counts(5));
    file(dir.path(), "vmstat-after.txt", &counts(8));
    let run = Run::read(dir.path()).unwrap();
    assert_eq!((run.promoted, run.demoted), (3.0 * 4096.0, 3.0 * 4096.0));
}
