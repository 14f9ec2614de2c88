// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hand-off through a lane with both ends in one thread: the work of each side, without waiting.

use std::hint::black_box;

use virtio_cuda_ring::layout::Header;
use virtio_cuda_ring::{Consumer, Kind, LANE_BYTES, LaneMemory, Producer};

use super::Work;

/// Both ends of a lane. Its memory is never freed.
fn lane() -> (Producer, Consumer) {
    let layout = std::alloc::Layout::from_size_align(LANE_BYTES, 4096).expect("a valid layout");
    // SAFETY: the layout is not empty.
    let base = unsafe { std::alloc::alloc_zeroed(layout) };
    assert!(!base.is_null());
    // SAFETY: room for a header, aligned to a page, used by nobody yet.
    unsafe { base.cast::<Header>().write(Header::default()) };
    // SAFETY: LANE_BYTES bytes that are never freed.
    let memory = unsafe { LaneMemory::new(base) };
    let consumer = Consumer::set_up(memory.clone());
    (Producer::new(memory), consumer)
}

fn post(bytes: usize) -> Work {
    let ((mut producer, mut consumer), payload) = (lane(), vec![7; bytes]);
    let (mut contents, mut number) = (Vec::new(), 0);
    Box::new(move || {
        number += 1;
        assert!(producer.must_wait(payload.len()).is_none());
        black_box(producer.push(Kind::Post, number, &[black_box(&payload)]));
        let record = consumer.next(&mut contents).expect("a sound lane").expect("a record");
        black_box((record, &contents));
        consumer.release();
    })
}

/// A call without reply, of the size of a launch.
pub fn post_short() -> Work {
    post(200)
}

/// A call without reply that carries a page.
pub fn post_long() -> Work {
    post(4096 + 48)
}

/// A call with its reply.
pub fn call_and_reply() -> Work {
    let (mut producer, mut consumer) = lane();
    let (mut contents, mut number, mut room) = (Vec::new(), 0, [0; 256]);
    Box::new(move || {
        number += 1;
        assert!(producer.must_wait(64).is_none());
        black_box(producer.push(Kind::Wait, number, &[black_box(&[7; 64])]));
        let record = consumer.next(&mut contents).expect("a sound lane").expect("a record");
        consumer.release();
        consumer.reply(record.number, black_box(&[0; 24]));
        assert_eq!(producer.reply(number, &mut room), Some(24));
        black_box(&room);
    })
}
