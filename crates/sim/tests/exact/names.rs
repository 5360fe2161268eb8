//! Every workload that can be named in one line, on a small exact machine.

use tierscope_core::{Clock, Time};
use tierscope_sim::exact::Machine;
use tierscope_sim::experiment::Experiment;
use tierscope_workloads::work;

/// An experiment with two tiers of 256 MiB and one process.
fn experiment(workload: &str) -> tierscope_core::Result<Experiment> {
    let text = format!(
        "name = \"toy\"\nabout = \"a\"\nsource = \"b\"\ntime = \"2ms\"\nwindow = \"1ms\"\n\
         [[machine.tier]]\nname = \"dram\"\nsize = \"256MiB\"\n\
         [[machine.tier]]\nname = \"optane\"\nsize = \"256MiB\"\n\
         [[process]]\nworkload = \"{workload}\"\n"
    );
    Experiment::parse("toy.toml", &text)
}

/// Keys for a small workload, and for one of more than 512 MiB.
fn sizes(name: &str) -> [&'static str; 2] {
    match name {
        "bfs" | "sssp" | "pr" | "cc" | "bc" | "tc" | "graph500" => ["scale=8", "scale=25"],
        "gups" => ["table=1MiB", "table=1GiB"],
        "flexkvs" | "faster" | "silo" | "memcached" | "redis" => {
            ["keys=1000,ycsb=a,threads=2", "keys=1000000"]
        }
        "scattered" => ["space=8MiB,range=4KiB", "space=1GiB"],
        "stand-in-rubis" | "stand-in-specpower" | "stand-in-xalan" | "stand-in-lusearch" => {
            ["space=8MiB", "space=1GiB"]
        }
        // These have the size of the program that they replace.
        name if name.starts_with("stand-in-") => ["shrink=64", "shrink=1"],
        _ => ["space=8MiB", "space=1GiB"],
    }
}

#[test]
fn every_named_workload_runs_or_is_refused_as_too_large() {
    for name in work::names() {
        let [small, large] = sizes(name).map(|keys| format!("{name}:{keys}"));
        let experiment = experiment(&small).unwrap_or_else(|error| panic!("{small}: {error}"));
        let mut machine: Machine = Machine::new(&experiment.setup).expect("it is possible");
        experiment.start(&mut machine).unwrap_or_else(|error| panic!("{small}: {error}"));
        let end = Time(200_000);
        while machine.now() < end {
            machine.wait(end);
        }
        let account = machine.account();
        assert!(account.counts.accesses > 100, "{small}: {}", account.counts.accesses);
        assert_eq!((account.killed, account.done.len()), (0, 1), "{small}");
        let Err(error) = self::experiment(&large) else {
            assert!(large.ends_with("shrink=1"), "{large} fits");
            continue;
        };
        let error = error.to_string();
        assert!(error.starts_with("toy.toml:12:1: ") && error.contains("does not fit"), "{error}");
    }
}

// Ground truth of a described workload, and of programs with and without a description.
#[test]
fn hot_keys_of_a_store_are_known() {
    for (line, known) in [
        ("silo:keys=1000,dist=hotspot:keys=0.1:ops=0.95", 1),
        ("silo:keys=1000,ycsb=d", 0),
        ("bfs:scale=8", 0),
    ] {
        let experiment = experiment(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let mut machine: Machine = Machine::new(&experiment.setup).expect("it is possible");
        let truths = experiment.start(&mut machine).expect("it fits");
        assert_eq!(truths.len(), known, "{line}");
        assert!(truths.iter().all(|truth| truth.hot_at(Time(0)).bytes() > 0), "{line}");
    }
}
