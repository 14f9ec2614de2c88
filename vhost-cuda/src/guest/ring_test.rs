// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::thread;
use std::time::Duration;

use virtio_cuda_protocol::transport::{OP_CALL, REPLY_OK, RequestHeader};

use super::*;
use crate::guest::fixture::FixtureGuest;

const ROOM: u32 = 64;

fn taken(guest: &mut FixtureGuest) -> Chain {
    let header = RequestHeader { op: OP_CALL, session: 1, ..RequestHeader::default() };
    guest.request(header, &[], &[], &[], ROOM).1
}

/// Answers on another thread, which may have to wait.
fn answer_aside(chain: Chain) -> thread::JoinHandle<()> {
    let thread = thread::spawn(move || chain.complete(REPLY_OK, b"x"));
    thread::sleep(Duration::from_millis(20));
    thread
}

#[test]
fn a_paused_guest_gets_its_replies_when_it_runs_again() {
    let mut guest = FixtureGuest::new();
    let chain = taken(&mut guest);
    guest.stop();
    let answering = answer_aside(chain);
    assert!(guest.used().is_empty(), "a stopped queue was written");
    let vring = guest.vring.clone();
    vring.set_queue_ready(true);
    assert_eq!(guest.ring.resume(&vring), Start::Again);
    answering.join().unwrap();
    assert_eq!(guest.used(), [(0, 9)]);
}

#[test]
fn a_reset_voids_what_was_taken_before() {
    let mut guest = FixtureGuest::new();
    let chain = taken(&mut guest);
    guest.stop();
    let answering = answer_aside(chain);
    // The new driver begins at index 0, at the same position.
    guest.vring.set_queue_next_avail(0);
    guest.vring.set_queue_ready(true);
    assert_eq!(guest.ring.resume(&guest.vring), Start::Anew);
    answering.join().unwrap();
    assert!(guest.used().is_empty());
    assert!(guest.ring.unanswered(|_| None).is_empty());
}

#[test]
fn a_front_end_that_has_gone_is_not_waited_for() {
    let mut guest = FixtureGuest::new();
    let chain = taken(&mut guest);
    guest.stop();
    let answering = answer_aside(chain);
    guest.ring.abandon();
    answering.join().unwrap();
    assert!(guest.used().is_empty());
    guest.vring.set_queue_ready(true);
    assert_eq!(guest.ring.resume(&guest.vring), Start::Stopped);
}

#[test]
fn a_queue_that_is_not_ready_does_not_run() {
    let guest = FixtureGuest::new();
    guest.stop();
    assert_eq!(guest.ring.resume(&guest.vring), Start::Stopped);
    guest.ring.if_running(|_| panic!("it runs"));
}

#[test]
fn a_queue_is_not_stopped_while_its_thread_answers() {
    let mut guest = FixtureGuest::new();
    let chain = taken(&mut guest);
    // The queue's thread has noticed a kick and is taking chains.
    assert_eq!(guest.ring.resume(&guest.vring), Start::Running);
    let ring = guest.ring.clone();
    let stopping = thread::spawn(move || ring.stop(0));
    while guest.ring.goes_on() {
        thread::yield_now();
    }
    // It must pause, and can still answer chains that it has taken.
    chain.complete(REPLY_OK, &[]);
    assert!(!stopping.is_finished());
    assert_eq!(guest.used().len(), 1);
    guest.ring.pause();
    stopping.join().unwrap();
    guest.vring.set_queue_ready(false);
    assert_eq!(guest.ring.resume(&guest.vring), Start::Stopped);
}

#[test]
fn a_dropped_chain_is_answered_too() {
    let mut guest = FixtureGuest::new();
    drop(taken(&mut guest));
    assert_eq!(guest.used(), [(0, 8)]);
    assert_eq!(guest.reply(0), (REPLY_NO_RESOURCES, vec![]));
}

#[test]
fn chains_move_with_the_guest() {
    let mut source = FixtureGuest::new();
    let (first, second) = (taken(&mut source), taken(&mut source));
    first.complete(REPLY_OK, &[]);
    source.stop();
    let moved = source.ring.unanswered(|head| Some((100, u64::from(head))));
    assert_eq!(moved, [Unanswered { head: 2, session: 100, request: 2 }]);
    source.ring.abandon();
    drop(second);

    let destination = FixtureGuest::new();
    destination.stop();
    let ring = Arc::<Ring>::default();
    ring.inherit(moved.clone());
    assert!(ring.has_inherited());
    assert_eq!(ring.unanswered(|_| None), moved, "they move on, if the machine never runs here");
    destination.vring.set_queue_ready(true);
    assert_eq!(ring.resume(&destination.vring), Start::Again);
    assert_eq!(ring.take_inherited(), moved);
    assert!(ring.has_inherited(), "sessions may not go on before they have their chains");
    ring.taken_up();
    assert!(!ring.has_inherited());
}
