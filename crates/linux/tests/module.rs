//! The module's client against a fake kernel: versions, refusals, batches, interrupted calls.

mod fake;

use std::time::Duration;

use fake::Fake;
use tierscope_core::{AccessedSet, ErrorKind, Level, Range, ScanMode, SpaceId};
use tierscope_linux::abi;
use tierscope_linux::module::{Attachment, Presence, Sharing};

/// Attaches to this process; the fake does not access its memory.
fn attached(fake: &Fake) -> Attachment {
    fake.module().unwrap().attach(std::process::id()).unwrap()
}

fn probes(addresses: &[u64]) -> Vec<abi::Probe> {
    let op = abi::OP_TEST_AND_CLEAR;
    addresses.iter().map(|a| abi::Probe { addr: *a, level: 1, op, ..Default::default() }).collect()
}

fn refusal(set: impl FnOnce(&mut fake::Kernel)) -> (ErrorKind, String) {
    let fake = Fake::default();
    set(&mut fake.0.borrow_mut());
    let refused = fake.module().and_then(|module| module.attach(std::process::id()));
    let error = refused.err().expect("it has to refuse");
    (error.kind(), error.to_string())
}

#[test]
fn another_version_is_named_with_both_numbers() {
    let (kind, text) = refusal(|kernel| kernel.abi = 7);
    assert_eq!(kind, ErrorKind::Version);
    let ours = format!("version {}", abi::ABI_VERSION);
    assert!(text.contains("version 7") && text.contains(&ours) && text.contains("same release"));
}

#[test]
fn refusals_have_kind_cause_and_remedy() {
    let (kind, text) = refusal(|kernel| kernel.open = Some(libc::ENOENT));
    assert_eq!(kind, ErrorKind::Missing);
    assert!(text.contains("not loaded") && text.contains("insmod") && text.contains("make run"));
    assert_eq!(refusal(|kernel| kernel.open = Some(libc::EPERM)).0, ErrorKind::Permission);
    assert_eq!(refusal(|kernel| kernel.attach = Some(libc::EPERM)).0, ErrorKind::Permission);
    assert_eq!(refusal(|kernel| kernel.attach = Some(libc::ESRCH)).0, ErrorKind::NoTarget);
    let (kind, text) = refusal(|kernel| kernel.attach = Some(libc::EOPNOTSUPP));
    assert!(kind == ErrorKind::Missing && text.contains("SUPPORT.md"), "{text}");
}

// The first session holds the process alone; the second one is refused by name of the first.
#[test]
fn a_second_session_is_refused_with_the_first_ones_pid() {
    let fake = Fake::default();
    let first = attached(&fake);
    fake.0.borrow_mut().owner = 4711;
    let attach = || fake.module().unwrap().attach(std::process::id());
    let error = attach().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let text = error.to_string();
    assert!(text.contains("process 4711 watches it") && text.contains("--share-bits"), "{text}");
    fake.0.borrow_mut().owner = 0;
    let text = attach().err().unwrap().to_string();
    assert!(text.contains("a process of another pid namespace watches it"), "{text}");
    drop(first);
    assert!(attach().is_ok());
}

// Two sessions share a process of three young pages. The first one clears two of them, which become
// young again, and the second one all three: 3 and 2 bits are lost to them.
#[test]
fn sessions_that_share_count_the_bits_of_the_others() {
    let (fake, pid) = (Fake::default(), std::process::id());
    let shared = || fake.module().unwrap().with_sharing(Sharing::Shared).attach(pid).unwrap();
    let (mut one, mut other) = (attached(&fake), shared());
    let touch = |pages: &[u64]| {
        pages.iter().for_each(|page| fake.0.borrow_mut().touch(pid, page << 12));
    };
    touch(&[1, 2, 3]);
    assert_eq!(one.probe(&mut probes(&[0x1000, 0x2000])), Ok(Presence::Here));
    assert_eq!((one.cleared_by_others(), other.cleared_by_others()), (0, 0));
    touch(&[1, 2]);
    let (range, mut set) = (Range::new(SpaceId(0), 0x1000, 0x4000), AccessedSet::default());
    let clear = ScanMode { clear: true, ..ScanMode::default() };
    other.scan(&range, Level::PTE, clear, &mut set).unwrap();
    assert_eq!((set.young_count(), other.cleared_by_others()), (3, 2));
    assert_eq!(one.presence(), Ok(Presence::Here));
    assert_eq!(one.cleared_by_others(), 3);
    // What was cleared before ATTACH does not count as lost.
    let mut third = shared();
    assert_eq!(third.presence(), Ok(Presence::Here));
    assert_eq!(third.cleared_by_others(), 0);
}

#[test]
fn an_unused_pid_is_no_target() {
    let error = Fake::default().module().unwrap().attach(u32::MAX).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NoTarget);
}

// The fake accepts four probes per call, and is interrupted after two: calls of 4 (2 done), 2 and
// 1.
#[test]
fn a_batch_is_split_and_continues_after_an_interrupt() {
    let fake = Fake::default();
    let pid = std::process::id();
    let mut attachment = attached(&fake);
    for page in [1, 2, 5] {
        fake.0.borrow_mut().touch(pid, page << 12);
    }
    fake.0.borrow_mut().interrupted = true;
    let mut batch = probes(&[0x1000, 0x1000, 0x2000, 0x3000, 0x5000]);
    assert_eq!(attachment.probe(&mut batch), Ok(Presence::Here));
    let states: Vec<_> = batch.iter().map(|p| p.state).collect();
    let (young, old, absent) = (abi::STATE_YOUNG, abi::STATE_OLD, abi::STATE_ABSENT);
    assert_eq!(states, [young, old, young, absent, young]);
    assert_eq!(fake.0.borrow().batches, [4, 2, 1]);
}

#[test]
fn an_ended_space_is_no_error() {
    let fake = Fake::default();
    let mut attachment = attached(&fake);
    assert_eq!(attachment.presence(), Ok(Presence::Here));
    fake.0.borrow_mut().end(std::process::id());
    assert_eq!(attachment.presence(), Ok(Presence::Gone));
    assert_eq!(attachment.probe(&mut probes(&[0])), Ok(Presence::Gone));
    let mut set = AccessedSet::default();
    let range = Range::new(SpaceId(0), 0, 4096);
    assert_eq!(attachment.scan(&range, Level::PTE, ScanMode::default(), &mut set), Ok(None));
    assert_eq!((set.entries(), set.young_count()), (1, 0));
}

// A scan of 200 pages is interrupted after every word of 64.
#[test]
fn a_scan_continues_after_interrupts() {
    let fake = Fake::default();
    let mut attachment = attached(&fake);
    for page in [0, 63, 64, 130, 199] {
        fake.0.borrow_mut().touch(std::process::id(), page << 12);
    }
    fake.0.borrow_mut().interrupted = true;
    let mut set = AccessedSet::default();
    let mode = ScanMode { clear: true, present: true, ..ScanMode::default() };
    let range = Range::new(SpaceId(9), 5, 200 << 12);
    let stats = attachment.scan(&range, Level::PTE, mode, &mut set).unwrap().unwrap();
    assert_eq!((stats.visited, stats.young, stats.present), (200, 5, 5));
    let young: Vec<u64> = (0..200).filter(|page| set.is_young(*page)).collect();
    assert_eq!(young, [0, 63, 64, 130, 199]);
    assert_eq!(set.present, set.young);
    assert_eq!(set.range, Range::new(SpaceId(9), 0, 200 << 12));
    let again = attachment.scan(&range, Level::PTE, mode, &mut set).unwrap().unwrap();
    assert_eq!((again.young, again.present), (0, 5));
}

// The fake's flush interval is 1 ms: a flush that is too early is retried after a tenth of it.
#[test]
fn a_flush_that_is_too_early_waits() {
    let fake = Fake::default();
    let mut attachment = attached(&fake);
    fake.0.borrow_mut().flush = vec![libc::EAGAIN, libc::EINTR, libc::EAGAIN];
    assert_eq!(attachment.flush(), Ok(Some(2)));
    assert_eq!(fake.0.borrow().flushed, [std::process::id()]);
    fake.0.borrow_mut().flush = vec![libc::EAGAIN; 100];
    assert!(attachment.flush().is_err(), "it does not wait for ever");
    fake.0.borrow_mut().end(std::process::id());
    assert_eq!(attachment.flush(), Ok(None));
}

// A histogram of 98 lock holds below 10 ns and one below 1280 ns; the longest took 4200 ns.
#[test]
fn percentiles_of_lock_holds() {
    let holds = attached(&Fake::default()).stats().unwrap().mmap_holds;
    assert_eq!(holds.count(), 100);
    assert_eq!(holds.percentile(0.5), Duration::from_nanos(10));
    assert_eq!(holds.percentile(0.98), Duration::from_nanos(10));
    assert_eq!(holds.percentile(0.99), Duration::from_nanos(1280));
    assert_eq!(holds.percentile(1.0), Duration::from_nanos(4200));
    assert_eq!(abi::Holds::default().percentile(0.99), Duration::ZERO);
}
