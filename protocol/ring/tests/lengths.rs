// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Every length near a limit, at every position near the ring's end. A record is accepted if it lies in the published
//! bytes and before the end of the ring; otherwise the lane is corrupt.
#![cfg(not(loom))]

mod common;

use virtio_cuda_ring::layout::{HEAD_BYTES, RECORDS_BYTES, RECORDS_OFFSET};
use virtio_cuda_ring::{Consumer, LaneMemory};

const RING: u64 = RECORDS_BYTES as u64;
const HEAD: u64 = HEAD_BYTES as u64;
const POST: u64 = 2;

const SKIP: u64 = 3;

/// A lane whose memory the test writes as a hostile producer does.
struct Lane {
    consumer: Consumer,
    base: *mut u8,
}

impl Lane {
    fn put(&self, at: usize, word: u64) {
        // SAFETY: a word of the lane, which is never freed; the only thread that uses it is this one.
        unsafe { self.base.add(at).cast::<u64>().write_volatile(word) };
    }

    /// A record of `bytes` bytes at the position of the consumer, and `there` bytes that were put in.
    fn offer(&self, kind: u64, bytes: u64, there: u64) {
        let at = RECORDS_OFFSET + (self.consumer.consumed() % RING) as usize;
        self.put(at, bytes | kind << 32);
        self.put(0, self.consumer.consumed().wrapping_add(there));
    }

    /// A new lane in `memory` that has come to `position`.
    fn at((memory, base): &(LaneMemory, *mut u8), position: u64) -> Self {
        let mut lane = Self { consumer: Consumer::set_up(memory.clone()), base: *base };
        while lane.consumer.consumed() < position {
            let all = (position - lane.consumer.consumed()).min(RING / 2);
            lane.offer(SKIP, all - HEAD, all);
            assert_eq!(lane.consumer.next(&mut Vec::new()), Ok(None));
        }
        lane
    }
}

#[test]
fn a_record_is_taken_out_if_it_lies_in_what_was_put_in() {
    let (mut contents, memory) = (Vec::new(), common::lane());
    for position in [0, HEAD, RING / 2, RING - 2 * HEAD, RING - HEAD, RING, RING + HEAD] {
        let left = RING - position % RING;
        let mut there: Vec<u64> = (0..6).chain([7, 8, 15, 17]).map(|heads| heads * HEAD).collect();
        there.extend([left, left + HEAD, left.saturating_sub(HEAD), RING, RING + HEAD, u64::MAX, 1, 15, 17]);
        let mut lengths: Vec<u64> = (0..=5 * HEAD).collect();
        let near = [left, RING / 2, RING, u64::from(u32::MAX)];
        lengths.extend(
            near.iter()
                .flat_map(|&edge| edge.saturating_sub(33)..=edge.saturating_add(17).min(u32::MAX.into())),
        );
        for &there in &there {
            for &bytes in &lengths {
                // The consumer remembers the producer's values, so a lane can be used for one attempt only.
                let mut lane = Lane::at(&memory, position);
                lane.offer(POST, bytes, there);
                let good = there <= RING && there % HEAD == 0;
                let fits = bytes + HEAD <= there.min(left);
                let taken = lane.consumer.next(&mut contents);
                let what = format!("position {position}, {there} there, {bytes} long");
                match taken {
                    Ok(None) => assert_eq!(there, 0, "{what}"),
                    Ok(Some(_)) => {
                        assert!(good && fits && contents.len() as u64 == bytes, "{what}");
                    }
                    Err(_) => assert!(!(good && (fits || there == 0)), "{what}"),
                }
            }
        }
    }
}
