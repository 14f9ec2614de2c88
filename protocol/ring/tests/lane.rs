// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Tests of the two sides of a lane, and of a producer that writes false data.

#![cfg(not(loom))]

mod common;

use common::lane;
use proptest::prelude::*;
use virtio_cuda_ring::layout::{RECORDS_BYTES, RECORDS_OFFSET};
use virtio_cuda_ring::{Consumer, Kind, LaneMemory, MAX_RECORD_BYTES, Producer, Record};

fn both() -> (Producer, Consumer, *mut u8) {
    let (memory, base) = lane();
    let consumer = Consumer::set_up(memory.clone());
    (Producer::new(memory), consumer, base)
}

#[test]
fn records_of_all_lengths_arrive_in_order_across_the_end_of_the_ring() {
    let (mut producer, mut consumer, _) = both();
    let mut contents = Vec::new();
    let lengths = [0, 1, 15, 16, 17, 4000, MAX_RECORD_BYTES, 3, MAX_RECORD_BYTES - 1];
    for number in 1..2000_u64 {
        let bytes = vec![number as u8; lengths[number as usize % lengths.len()]];
        assert_eq!(producer.must_wait(bytes.len()), None);
        let (first, second) = bytes.split_at(bytes.len() / 3);
        assert!(!producer.push(Kind::Post, number, &[first, second]));
        assert_eq!(consumer.next(&mut contents), Ok(Some(Record { kind: Kind::Post, number })));
        assert_eq!(contents, bytes);
        consumer.release();
        assert_eq!(consumer.next(&mut contents), Ok(None));
        assert!(producer.is_drained());
    }
}

#[test]
fn a_full_ring_says_how_far_the_consumer_must_come() {
    let (mut producer, mut consumer, _) = both();
    let mut pushed = 0;
    let needed = loop {
        if let Some(needed) = producer.must_wait(1000) {
            break needed;
        }
        pushed += 1;
        assert!(!producer.push(Kind::Post, pushed, &[&[1; 1000]]));
    };
    assert_eq!(pushed as usize, RECORDS_BYTES / 1024);
    let mut contents = Vec::new();
    while consumer.consumed() < needed {
        assert!(producer.must_wait(1000).is_some());
        consumer.next(&mut contents).unwrap().unwrap();
        consumer.release();
    }
    assert_eq!(producer.must_wait(1000), None);
}

#[test]
fn replies_are_found_by_their_number() {
    let (mut producer, mut consumer, _) = both();
    assert!(!producer.push(Kind::Wait, 7, &[b"question"]));
    let mut contents = Vec::new();
    assert_eq!(consumer.next(&mut contents), Ok(Some(Record { kind: Kind::Wait, number: 7 })));
    let mut room = [0; 4];
    assert_eq!(producer.reply(7, &mut room), None);
    consumer.reply(7, b"answer");
    assert_eq!(producer.reply(7, &mut room), Some(6), "the whole length, though the room is smaller");
    assert_eq!(&room, b"answ");
}

#[test]
fn only_the_first_record_after_sleep_wakes() {
    let (mut producer, mut consumer, _) = both();
    assert!(consumer.sleep());
    assert!(producer.push(Kind::Post, 1, &[b"x"]));
    assert!(!producer.push(Kind::Post, 2, &[b"x"]));
    assert!(!consumer.sleep(), "there is something to do");
    assert!(!producer.push(Kind::Post, 3, &[b"x"]));
    let mut contents = Vec::new();
    for _ in 0..3 {
        consumer.next(&mut contents).unwrap().unwrap();
        consumer.release();
    }
    assert!(consumer.sleep());
}

#[test]
fn a_second_consumer_takes_over() {
    let (memory, base) = lane();
    let mut first = Consumer::set_up(memory.clone());
    let mut producer = Producer::new(memory.clone());
    let mut contents = Vec::new();
    for number in 1..=3 {
        assert!(!producer.push(Kind::Wait, number, &[&[number as u8; 20]]));
    }
    first.next(&mut contents).unwrap().unwrap();
    first.reply(1, b"answer");
    first.release();
    let second = first.next(&mut contents).unwrap();
    first.put_back();
    assert_eq!(first.next(&mut contents).unwrap(), second, "it is there still");
    first.put_back();
    let consumed = first.consumed();
    // The process may write over the consumer's own words: the consumer does not read them back.
    // SAFETY: the lane is this test's own; the consumer's progress is the first word of the second line.
    unsafe { base.add(128).cast::<u64>().write_volatile(77) };
    let mut next = Consumer::resume(memory.clone(), consumed).unwrap();
    let mut room = [0; 6];
    assert_eq!(producer.reply(1, &mut room), Some(6), "the reply stays");
    for number in 2..=3 {
        assert_eq!(next.next(&mut contents), Ok(Some(Record { kind: Kind::Wait, number })));
        assert_eq!(contents, [number as u8; 20]);
        next.release();
    }
    assert!(next.next(&mut contents).unwrap().is_none() && producer.is_drained());
    for position in [1, 8, consumed + 1, u64::MAX, u64::MAX - 15, u64::MAX / 2 + 1] {
        assert!(Consumer::resume(memory.clone(), position).is_err(), "{position}");
    }
    // Nothing begins there: the producer's progress does not fit to it.
    for position in [0, u64::MAX / 2 - 15] {
        let mut lost = Consumer::resume(memory.clone(), position).unwrap();
        let records = std::iter::from_fn(|| {
            let record = lost.next(&mut contents).ok()??;
            lost.release();
            Some(record)
        });
        assert!(records.count() <= 3, "{position}");
    }
}

/// Lets the consumer read until it has had enough.
fn consume(memory: &LaneMemory, base: *mut u8, tail: u64, ring: &[u8]) {
    let mut consumer = Consumer::set_up(memory.clone());
    // SAFETY: the lane is this test's own; the tail is the first word of the header.
    unsafe {
        base.add(RECORDS_OFFSET).copy_from_nonoverlapping(ring.as_ptr(), ring.len().min(RECORDS_BYTES));
        base.cast::<u64>().write_volatile(tail);
    }
    let mut contents = Vec::new();
    // Each record takes at least its head.
    for _ in 0..=RECORDS_BYTES / 16 {
        match consumer.next(&mut contents) {
            Ok(Some(_)) => {
                assert!(contents.len() <= RECORDS_BYTES);
                consumer.release();
            }
            Ok(None) | Err(_) => return,
        }
    }
    panic!("more records than fit");
}

proptest! {
    #[test]
    fn a_producer_that_lies_is_found_out_or_understood(
        tail in prop_oneof![any::<u64>(), (0..=RECORDS_BYTES as u64 / 16).prop_map(|units| units * 16)],
        heads in prop::collection::vec((0u32..64, 0u32..5, any::<u64>()), 1..64),
    ) {
        let (memory, base) = lane();
        let mut ring = Vec::new();
        for (bytes, kind, number) in heads {
            ring.extend(bytes.to_ne_bytes());
            ring.extend(kind.to_ne_bytes());
            ring.extend(number.to_ne_bytes());
        }
        consume(&memory, base, tail, &ring);
    }
}
