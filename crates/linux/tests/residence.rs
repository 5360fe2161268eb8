//! The live machine knows which memory of a real process is resident.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use tierscope_core::{
    Clock as _, Error, ErrorKind, Ports as _, Region, Snapshot, Target as _, footprint,
};
use tierscope_linux::{LiveMachine, Selection};

// A process that has echoed a line and waits for more: its regions, narrowed to its extents, have
// about as many bytes as it has resident memory by /proc/PID/status. The kernel rounds that by some
// pages for each CPU; a quarter, or 256 KiB, are allowed.
#[test]
fn narrowed_regions_are_as_large_as_resident_memory() {
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let selection = Selection::Process { pid: child.id(), children: false };
    let module = Err(Error::new(ErrorKind::Other, "no module in this test"));
    let mut machine = LiveMachine::open(&selection, module).unwrap();
    let mappings = machine.mappings(Duration::ZERO).unwrap();
    let residence = loop {
        let residence = machine.residence().unwrap();
        if residence.spaces.iter().any(|of| of.extents.is_some()) {
            break residence;
        }
        let soon = machine.now() + Duration::from_millis(1);
        machine.wait(soon);
    };
    let region = |range| Region::sampled(range, 0.0, 40);
    let regions = mappings.mappings.iter().map(|mapping| region(mapping.range)).collect();
    let mut snapshot = Snapshot { regions, ..Snapshot::default() };
    footprint::fit(&mut snapshot, &mappings, &residence);
    drop(child.stdin.take());
    child.wait().unwrap();
    let (found, resident) =
        (snapshot.regions.iter().map(Region::bytes).sum::<u64>(), residence.spaces[0].bytes);
    assert!(found < mappings.bytes(), "{found} of {} mapped", mappings.bytes());
    assert!(found.abs_diff(resident) <= (resident / 4).max(256 << 10), "{found}, {resident}");
    eprintln!("{found} bytes in regions, {resident} resident, {} mapped", mappings.bytes());
}
