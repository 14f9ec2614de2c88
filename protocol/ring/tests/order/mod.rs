// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The order between lanes in every interleaving.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use virtio_cuda_ring::{Consumer, Kind, Order, Position, Producer, Progress};

use super::common::lane;

/// Bytes of a record with 16 bytes.
const RECORD: u64 = 32;

/// Puts a posted record into lane `own`. Returns the positions that it follows.
fn post(order: &Order, own: u32, producer: &mut Producer, marks: &[usize]) -> Vec<Position> {
    let turn = order.begin(Some(own), marks);
    let after = turn.dependencies().to_vec();
    let _ = producer.push(Kind::Post, 1, &[&[7; 16]]);
    turn.publish(order.begins(own) + producer.produced(), &[0]);
    after
}

/// An order with two marks, one group and two lanes, and the ends of those.
fn two_lanes() -> (Arc<Order>, [(Producer, Consumer); 2]) {
    let order = Order::new(2, 1);
    let lanes = [0, 1].map(|number| {
        let (memory, _) = lane();
        assert_eq!(order.add(&memory), Some(number));
        let consumer = Consumer::set_up(memory.clone());
        (Producer::new(memory), consumer)
    });
    (Arc::new(order), lanes)
}

#[test]
fn of_two_records_that_share_things_one_comes_after_the_other() {
    loom::model(|| {
        let (order, [(mut first, _a), (mut second, _b)]) = two_lanes();
        let theirs = order.clone();
        let other = loom::thread::spawn(move || post(&theirs, 1, &mut second, &[1, 0]));
        let mine = post(&order, 0, &mut first, &[0, 1]);
        let others = other.join().unwrap();
        let ends = [0, 1].map(|lane| Position { lane, bytes: RECORD });
        // Neither none, which loses the order, nor both, which is a circle.
        assert!((mine.is_empty() && others == [ends[0]]) || (mine == [ends[1]] && others.is_empty()));
        // The next record waits for the last one of both.
        let mut third = order.begin(None, &[]);
        third.after(0);
        assert_eq!(third.dependencies(), [ends[usize::from(mine.is_empty())]]);
    });
}

#[test]
fn what_has_returned_comes_before_what_begins() {
    loom::model(|| {
        let (order, [(mut first, mut consumer), (mut second, _b)]) = two_lanes();
        let returned = Arc::new(AtomicU32::new(0));
        let (theirs, tells) = (order.clone(), returned.clone());
        let other = loom::thread::spawn(move || {
            post(&theirs, 0, &mut first, &[0]);
            tells.store(1, Ordering::Release);
            // Its executor.
            let mut contents = Vec::new();
            assert!(consumer.next(&mut contents).unwrap().is_some());
            tells.store(2, Ordering::SeqCst);
            consumer.release();
        });
        let seen = returned.load(Ordering::Acquire);
        let mut group = order.begin(Some(1), &[]);
        group.after_group(0);
        let by_group = group.dependencies().to_vec();
        drop(group);
        let by_mark = post(&order, 1, &mut second, &[0]);
        // Unless it was done meanwhile.
        if seen == 1 && returned.load(Ordering::SeqCst) == 1 {
            assert_eq!(by_group, [Position { lane: 0, bytes: RECORD }]);
            assert_eq!(by_mark, by_group);
        }
        other.join().unwrap();
    });
}

#[test]
fn the_next_thread_of_a_lane_is_waited_for() {
    loom::model(|| {
        let (order, [(first, _a), _]) = two_lanes();
        drop(first);
        let (memory, _) = lane();
        assert_eq!(order.add(&memory), Some(2));
        // The thread that had it has posted a record, which is done.
        let mut consumer = Consumer::set_up(memory.clone());
        let mut producer = Producer::new(memory.clone());
        post(&order, 2, &mut producer, &[0]);
        assert!(consumer.next(&mut Vec::new()).unwrap().is_some());
        consumer.release();
        let theirs = order.clone();
        let other = loom::thread::spawn(move || {
            let begins = theirs.begins(2) + producer.produced();
            let consumer = Consumer::set_up(memory.clone());
            theirs.restart(2, begins);
            post(&theirs, 2, &mut Producer::new(memory), &[1]);
            consumer
        });
        // The first record may count as not done for a moment, the second one must.
        let mut turn = order.begin(Some(1), &[]);
        turn.after(1);
        assert!(
            turn.dependencies().is_empty()
                || turn.dependencies() == [Position { lane: 2, bytes: 2 * RECORD }]
        );
        drop(turn);
        other.join().unwrap();
        let mut turn = order.begin(Some(1), &[]);
        turn.after(0);
        assert!(turn.dependencies().is_empty());
        turn.after(1);
        assert_eq!(turn.dependencies(), [Position { lane: 2, bytes: 2 * RECORD }]);
    });
}

#[test]
fn nobody_misses_how_far_a_lane_has_come() {
    loom::model(|| {
        let progress = Arc::new(Progress::default());
        let theirs = progress.clone();
        let other = loom::thread::spawn(move || {
            theirs.advance(16);
            theirs.advance(32);
        });
        // A lost wake-up is a deadlock, which loom reports.
        progress.sleep_until(32, || false);
        assert_eq!(progress.done(), 32);
        other.join().unwrap();
    });
}
