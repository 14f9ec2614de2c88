// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lanes, as a hostile process writes them: positions, heads and contents of records, at any time, and the order of
//! lanes in them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use vhost_cuda_choices::Choices;
use virtio_cuda_ring::layout::{HEAD_BYTES, RECORDS_BYTES, RECORDS_OFFSET};
use virtio_cuda_ring::{Consumer, LANE_BYTES, LaneMemory, MAX_REPLY_BYTES};

use super::super::run::MAX_LANES;
use super::super::run::order::{Order, Place};

/// A lane that the process and its executor share: pages, in words.
struct Memory(Box<[AtomicU64]>);

/// The words that were written to it, by offset. They must be cleared.
#[derive(Default)]
struct Written(Vec<(usize, usize)>);

thread_local! {
    static MEMORY: Memory = Memory((0..LANE_BYTES / 8 + 512).map(|_| AtomicU64::new(0)).collect());
}

impl Memory {
    /// Returns the index of the first word of the lane's first page.
    fn start(&self) -> usize {
        (self.0.as_ptr() as usize).next_multiple_of(4096) / 8 - self.0.as_ptr() as usize / 8
    }

    fn write(&self, written: &mut Written, at: usize, bytes: &[u8]) {
        let first = self.start() + (at % LANE_BYTES) / 8;
        let words = bytes.len().div_ceil(8).min(self.start() + LANE_BYTES / 8 - first);
        for (word, bytes) in self.0[first..first + words].iter().zip(bytes.chunks(8)) {
            let mut value = [0; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        written.0.push((first, words));
    }
}

/// An input is a list of writes of the process and steps of the executor.
pub fn run(data: &[u8]) {
    MEMORY.with(|memory| {
        let mut written = Written::default();
        lane(memory, &mut written, &mut Choices::of(data));
        // The first page contains the executor's writes, and so does the room for replies.
        for word in &memory.0[memory.start()..memory.start() + 80] {
            word.store(0, Ordering::Relaxed);
        }
        for (first, words) in written.0 {
            memory.0[first..first + words].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
    });
    if data.first().is_some_and(|first| *first >= 0xc0) {
        order(&mut Choices::of(&data[1..]));
    }
}

fn lane(memory: &Memory, written: &mut Written, choices: &mut Choices<'_>) {
    let base = memory.0[memory.start()..].as_ptr().cast_mut().cast();
    // SAFETY: as many bytes, on a page, that live longer than the consumer; they are atomics.
    let mut consumer = Consumer::set_up(unsafe { LaneMemory::new(base) });
    let mut contents = Vec::new();
    while choices.more() {
        match choices.byte() & 7 {
            0 => {
                let tail = choices.number() & !(HEAD_BYTES as u64 - 1);
                memory.write(written, 0, &consumer.consumed().wrapping_add(tail).to_le_bytes());
            }
            1 => memory.write(written, 0, &choices.number().to_le_bytes()),
            // A record where the executor reads the next one.
            2 | 3 => {
                let at = RECORDS_OFFSET + (consumer.consumed() % RECORDS_BYTES as u64) as usize;
                let kind = choices.byte() & 3;
                let head = choices.number() & 0xffff_ffff | u64::from(kind) << 32;
                let record = [head.to_le_bytes(), choices.number().to_le_bytes()].concat();
                memory.write(written, at, &record);
                let length = (choices.byte() & 63).into();
                memory.write(written, at + HEAD_BYTES, choices.bytes(length));
            }
            4 => {
                let at = (choices.number() as usize) & !7;
                let length = (choices.byte() & 31).into();
                memory.write(written, at, choices.bytes(length));
            }
            5 => {
                let length = choices.number() as usize % (MAX_REPLY_BYTES + 1);
                consumer.reply(choices.number(), &vec![7; length]);
                consumer.set_deferred_error(choices.byte() & 1 != 0);
            }
            6 if consumer.sleep() => consumer.wake(),
            _ => {
                let (before, more) = (consumer.consumed(), consumer.has_more());
                match consumer.next(&mut contents) {
                    Ok(Some(_)) => {
                        assert!(contents.len() <= RECORDS_BYTES - HEAD_BYTES && more);
                        consumer.release();
                        let bytes = consumer.consumed() - before;
                        assert!(bytes >= contents.len() as u64 && bytes <= 2 * RECORDS_BYTES as u64);
                        assert!(bytes.is_multiple_of(HEAD_BYTES as u64));
                    }
                    Ok(None) => {}
                    // The session ends.
                    Err(_) => return,
                }
            }
        }
    }
}

/// Takes lanes, advances them and waits for them, unless that would sleep, because no other thread would wake this
/// one.
fn order(choices: &mut Choices<'_>) {
    let order: &'static Order = Box::leak(Box::default());
    let mut places: HashMap<u32, (u64, Place)> = HashMap::new();
    // The position that each lane has reached.
    let mut done: HashMap<u32, u64> = HashMap::new();
    while choices.more() {
        let lane = match choices.byte() {
            few @ 0..=0xef => u32::from(few & 7),
            _ => choices.number() as u32,
        };
        match choices.byte() & 3 {
            0 => {
                let begins = choices.number();
                let taken = order.take(lane, begins);
                let good = (lane as usize) < MAX_LANES
                    && begins.is_multiple_of(HEAD_BYTES as u64)
                    && begins <= u64::MAX / 2
                    && !places.contains_key(&lane);
                assert!(good || taken.is_none(), "lane {lane} is taken at {begins}");
                if let Some(place) = taken {
                    assert!(done.insert(lane, begins).unwrap_or(0) <= begins, "positions only grow");
                    places.insert(lane, (0, place));
                }
            }
            1 => {
                if let (Some((consumed, place)), Some(done)) = (places.get_mut(&lane), done.get_mut(&lane)) {
                    let more = choices.number() % (1 << 20);
                    *consumed += more;
                    *done += more;
                    place.set(*consumed);
                    place.wake();
                    assert!(order.wait_for(lane, *done).is_ok());
                }
            }
            2 => drop(places.remove(&lane)),
            _ => {
                let position = match choices.byte() & 1 {
                    0 => choices.number(),
                    _ => done.get(&lane).copied().unwrap_or(0).wrapping_add(choices.number()),
                };
                let ahead = done.get(&lane).map(|done| position.saturating_sub(*done));
                match ahead {
                    Some(ahead) if ahead > 0 && ahead <= RECORDS_BYTES as u64 => {}
                    Some(0) => assert!(order.wait_for(lane, position).is_ok()),
                    _ => assert_eq!(order.wait_for(lane, position).is_ok(), position == 0),
                }
            }
        }
    }
    drop(places);
    // SAFETY: the box that was leaked above; the places in it are gone.
    drop(unsafe { Box::from_raw(std::ptr::from_ref(order).cast_mut()) });
}
