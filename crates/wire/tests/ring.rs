//! The ring against a queue as its oracle, in one thread and with a thread at each end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tierscope_core::{ErrorKind, Level, Lost, Time};
use tierscope_wire::ring::{HEADER_WORDS, bytes_for};
use tierscope_wire::{Consumer, Drained, Producer, RawAccess, Reader, TlbMiss};

fn memory(bytes: usize) -> Vec<AtomicU64> {
    (0..bytes / 8).map(|_| AtomicU64::new(!0)).collect()
}

fn miss(number: u64) -> TlbMiss {
    let address = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let entry = address & !7;
    TlbMiss { time: Time(number), address, entry, level: Level::PTE, root: 0x1000, cpu: 3 }
}

#[test]
fn a_full_ring_counts_its_losses() {
    let memory = memory(bytes_for::<TlbMiss>(4));
    let mut producer = Producer::create(&memory).expect("there is room");
    let mut consumer = Consumer::attach(&memory).expect("it is a ring");
    let taken: Vec<bool> = (0..6).map(|n| producer.push(&miss(n))).collect();
    assert_eq!(taken, [true, true, true, true, false, false]);
    let mut out = Vec::new();
    let drained = consumer.drain(&mut out).expect("it is whole");
    assert_eq!(out, [0, 1, 2, 3].map(miss));
    assert_eq!(drained, Drained { lost: Lost(2), done: false });
    assert!(producer.push(&miss(6)), "there is room again");
    drop(producer);
    out.clear();
    let drained = consumer.drain(&mut out).expect("it is whole");
    assert_eq!((out, drained), (vec![miss(6)], Drained { lost: Lost(0), done: true }));
}

#[test]
fn each_end_sees_the_other_detach() {
    let memory = memory(bytes_for::<TlbMiss>(1));
    let producer = Producer::<TlbMiss>::create(&memory).expect("there is room");
    assert_eq!(producer.reader(), Reader::None);
    let consumer = Consumer::<TlbMiss>::attach(&memory).expect("it is a ring");
    assert_eq!(producer.reader(), Reader::Attached);
    drop(consumer);
    assert_eq!(producer.reader(), Reader::Gone);
}

#[test]
fn a_second_consumer_continues_after_the_first() {
    let memory = memory(bytes_for::<TlbMiss>(2));
    let mut producer = Producer::create(&memory).expect("there is room");
    for number in 0..3 {
        producer.push(&miss(number));
    }
    let mut out = Vec::new();
    let mut first = Consumer::<TlbMiss>::attach(&memory).expect("it is a ring");
    assert_eq!(first.drain(&mut out).expect("it is whole").lost, Lost(1));
    drop(first);
    producer.push(&miss(3));
    let mut second = Consumer::attach(&memory).expect("it is a ring");
    assert_eq!(second.drain(&mut out).expect("it is whole").lost, Lost(0), "told already");
    assert_eq!(out, [0, 1, 3].map(miss));
}

#[test]
fn other_memory_is_no_ring() {
    let small = memory(bytes_for::<TlbMiss>(1) - 8);
    let error = Producer::<TlbMiss>::create(&small).expect_err("too small");
    assert!(error.to_string().contains("416 bytes"), "{error}");
    let memory = memory(bytes_for::<TlbMiss>(4));
    let error = Consumer::<TlbMiss>::attach(&memory).expect_err("nobody made one");
    assert_eq!(error.kind(), ErrorKind::Data);
    let _producer = Producer::<TlbMiss>::create(&memory).expect("there is room");
    let error = Consumer::<RawAccess>::attach(&memory).expect_err("other records");
    assert_eq!(error.kind(), ErrorKind::Version);
    let error = Consumer::<TlbMiss>::attach(&memory[..HEADER_WORDS + 4]).expect_err("cut off");
    assert!(error.to_string().contains("4 records fit where 1 do"), "{error}");
}

#[test]
fn a_corrupt_head_is_noticed() {
    let memory = memory(bytes_for::<TlbMiss>(4));
    let _producer = Producer::<TlbMiss>::create(&memory).expect("there is room");
    let mut consumer = Consumer::<TlbMiss>::attach(&memory).expect("it is a ring");
    memory[16].store(5, Ordering::Release);
    let error = consumer.drain(&mut Vec::new()).expect_err("four records fit");
    assert!(error.to_string().contains("head 5 and tail 0"), "{error}");
    memory[16].store(1, Ordering::Release);
    let error = consumer.drain(&mut Vec::new()).expect_err("record 0 was never written");
    assert!(error.to_string().contains("record 0 makes no sense"), "{error}");
}

#[test]
fn two_threads_lose_only_counted_records() {
    const COUNT: u64 = 300_000;
    let memory = memory(bytes_for::<TlbMiss>(256));
    let producer = Producer::create(&memory).expect("there is room");
    let mut consumer = Consumer::<TlbMiss>::attach(&memory).expect("it is a ring");
    let (mut out, mut lost) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let mut producer = producer;
        scope.spawn(move || {
            for number in 0..COUNT {
                producer.push(&miss(number));
            }
        });
        loop {
            let drained = consumer.drain(&mut out).expect("it is whole");
            lost += drained.lost.0;
            if drained.done {
                break;
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(out.len() as u64 + lost, COUNT);
    assert!(out.iter().all(|record| *record == miss(record.time.0)), "no record is torn");
    assert!(out.is_sorted_by(|a, b| a.time < b.time), "in order, none twice");
}

proptest! {
    /// Any order of pushes and drains behaves like a bounded queue.
    #[test]
    fn equals_a_bounded_queue(
        steps in prop::collection::vec(0u8..4, 0..300),
        log2 in 0u32..5,
    ) {
        let memory = memory(bytes_for::<TlbMiss>(1 << log2));
        let mut producer = Producer::create(&memory).expect("there is room");
        let mut consumer = Consumer::<TlbMiss>::attach(&memory).expect("it is a ring");
        let (mut queue, mut lost) = (VecDeque::new(), 0);
        for (number, step) in steps.into_iter().enumerate() {
            if step > 0 {
                let record = miss(number as u64);
                let fits = queue.len() < 1 << log2;
                prop_assert_eq!(producer.push(&record), fits);
                if fits { queue.push_back(record) } else { lost += 1 }
            } else {
                let mut out = Vec::new();
                let drained = consumer.drain(&mut out).expect("it is whole");
                prop_assert_eq!(out, queue.drain(..).collect::<Vec<_>>());
                prop_assert_eq!(drained.lost, Lost(std::mem::take(&mut lost)));
            }
        }
    }
}
