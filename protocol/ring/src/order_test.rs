// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

use super::*;
use crate::layout::Header;

/// An order with two lanes; their memory lives as long as the test process. Only its header is used.
fn two() -> (Order, [&'static Header; 2]) {
    let order = Order::new(4, 2);
    let lanes = [(); 2].map(|()| {
        let header: &'static Header = Box::leak(Box::default());
        // SAFETY: the header lives for good; nothing behind it is used.
        let memory = unsafe { LaneMemory::new(std::ptr::from_ref(header).cast_mut().cast()) };
        order.add(&memory).expect("a lane");
        header
    });
    (order, lanes)
}

fn post(order: &Order, lane: u32, bytes: u64, marks: &[usize]) -> Vec<Position> {
    let turn = order.begin(Some(lane), marks);
    let after = turn.dependencies().to_vec();
    turn.publish(bytes, &[0]);
    after
}

const FIRST: Position = Position { lane: 0, bytes: 64 };

#[test]
fn records_come_after_posted_ones_that_use_the_same_thing() {
    let (order, lanes) = two();
    assert!(post(&order, 0, 64, &[1, 2]).is_empty());
    assert!(post(&order, 0, 96, &[3]).is_empty(), "its own lane is in order");
    assert!(post(&order, 1, 32, &[0]).is_empty(), "another thing");
    let mut wait = order.begin(Some(1), &[]);
    wait.after(2);
    assert_eq!(wait.dependencies(), [FIRST]);
    wait.after(3);
    assert_eq!(wait.dependencies(), [Position { lane: 0, bytes: 96 }], "one per lane");
    drop(wait);
    // Those who use what both used come after the later one, which comes after the earlier one.
    assert_eq!(post(&order, 1, 80, &[2, 2, 1]), [FIRST]);
    let mut third = order.begin(None, &[]);
    third.after(1);
    assert_eq!(third.dependencies(), [Position { lane: 1, bytes: 80 }]);
    drop(third);
    lanes[1].head.0.store(80, Ordering::Relaxed);
    let mut third = order.begin(None, &[]);
    third.after(1);
    assert!(third.dependencies().is_empty(), "what is done is not waited for");
}

#[test]
fn groups_are_waited_for_as_a_whole() {
    let (order, lanes) = two();
    post(&order, 0, 64, &[]);
    let mut turn = order.begin(Some(1), &[]);
    turn.after_group(1);
    assert!(turn.dependencies().is_empty());
    turn.after_group(0);
    assert_eq!(turn.dependencies(), [FIRST]);
    drop(turn);
    // The next thread's records begin where those of the last one ended.
    lanes[0].head.0.store(0, Ordering::Relaxed);
    order.restart(0, 64);
    let mut turn = order.begin(Some(1), &[]);
    turn.after_group(0);
    assert!(turn.dependencies().is_empty());
}

#[test]
fn a_record_that_was_not_sent_leaves_no_trace() {
    let (order, _) = two();
    post(&order, 0, 64, &[1]);
    drop(order.begin(Some(1), &[1]));
    assert_eq!(post(&order, 1, 32, &[1]), [FIRST]);
}

#[test]
fn there_is_an_end_to_lanes() {
    let (order, _) = two();
    let header: &'static Header = Box::leak(Box::default());
    // SAFETY: the header lives for good; nothing behind it is used.
    let memory = unsafe { LaneMemory::new(std::ptr::from_ref(header).cast_mut().cast()) };
    let numbers: Vec<_> = std::iter::from_fn(|| order.add(&memory)).collect();
    assert_eq!(numbers, (2..MAX_LANES as u32).collect::<Vec<_>>());
}
