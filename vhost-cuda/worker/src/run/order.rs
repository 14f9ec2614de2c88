// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of records across the lanes of a process.
//!
//! A guest thread that has posted a record (for which no thread waits) may notify another thread, whose next record
//! must then come after it if both use the same thing. The guest knows the things (`guest-lib/client/src/touched.rs`)
//! and puts a record before that one, `session_order`, which waits here until the other lane has reached that position.
//! Records of lanes that share nothing never wait for each other.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

use virtio_cuda_ring::Progress;
use virtio_cuda_ring::layout::{HEAD_BYTES, RECORDS_BYTES};

use super::MAX_LANES;

/// The time to watch for another lane before sleeping: its executor is awake or being woken.
const WATCH: Duration = Duration::from_micros(50);
/// Looks between two at the clock.
const LOOKS: u32 = 32;

/// The reason for which a lane is not waited for.
#[derive(Debug, thiserror::Error)]
pub enum Unawaited {
    /// The lane cannot reach the position with the records that fit into it.
    #[error("lane {lane} will not come to position {position}")]
    NeverComes {
        /// The lane.
        lane: u32,
        /// The position.
        position: u64,
    },
    /// The session leaves this worker, and the other one waits.
    #[error("the session leaves")]
    Left,
}

/// The progress of one lane.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot {
    /// True if a thread has it.
    used: AtomicBool,
    /// True once it was set up.
    known: AtomicBool,
    progress: Progress,
}

/// The progress of all lanes of a session.
#[derive(Debug)]
pub struct Order {
    slots: Box<[Slot]>,
    /// True while nobody waits for a lane, because the session leaves this worker.
    left: AtomicBool,
}

impl Default for Order {
    fn default() -> Self {
        Self { slots: (0..MAX_LANES).map(|_| Slot::default()).collect(), left: AtomicBool::new(false) }
    }
}

impl Order {
    fn slot(&self, lane: u32) -> Option<&Slot> {
        self.slots.get(usize::try_from(lane).ok()?)
    }

    /// Takes lane number `lane` for a thread, whose first record begins at `begins`. Returns `None` if there is no such lane,
    /// another thread has it, or its position is beyond `begins` already.
    pub fn take(&'static self, lane: u32, begins: u64) -> Option<Place> {
        let slot = self.slot(lane)?;
        // Half of all numbers is left for the records to come.
        let fits = begins.is_multiple_of(HEAD_BYTES as u64) && begins <= u64::MAX / 2;
        if !fits || slot.used.swap(true, Ordering::AcqRel) {
            return None;
        }
        let place = Place { slot, begins };
        if begins < slot.progress.done() {
            return None;
        }
        slot.progress.advance(begins);
        slot.known.store(true, Ordering::Release);
        Some(place)
    }

    /// Waits until lane number `lane` has reached `position`.
    ///
    /// A guest that never sends the record waits until its session ends, and blocks only itself. There is no time limit,
    /// since a process or a virtual machine may be stopped while its executor has much to do.
    pub fn wait_for(&self, lane: u32, position: u64) -> Result<(), Unawaited> {
        if position == 0 {
            return Ok(());
        }
        let never = || Unawaited::NeverComes { lane, position };
        let slot = self.slot(lane).filter(|slot| slot.known.load(Ordering::Acquire)).ok_or_else(never)?;
        let done = slot.progress.done();
        if done >= position {
            return Ok(());
        }
        if position - done > RECORDS_BYTES as u64 {
            return Err(never());
        }
        let begun = Instant::now();
        while begun.elapsed() < WATCH {
            for _ in 0..LOOKS {
                if slot.progress.done() >= position {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        slot.progress.sleep_until(position, || self.left.load(Ordering::Relaxed));
        if slot.progress.done() >= position { Ok(()) } else { Err(Unawaited::Left) }
    }

    /// Ends all waits for lanes, or lets them begin again: whether the session leaves this worker.
    pub fn set_left(&self, left: bool) {
        self.left.store(left, Ordering::Relaxed);
        // See `Progress::sleep_until`.
        fence(Ordering::SeqCst);
        self.slots.iter().for_each(|slot| slot.progress.wake());
    }

    /// Returns the position that each lane has reached, as far as lanes were set up.
    pub fn positions(&self) -> Vec<(u32, u64)> {
        let known = |(slot, lane): (&Slot, u32)| {
            slot.known.load(Ordering::Acquire).then(|| (lane, slot.progress.done()))
        };
        self.slots.iter().zip(0..).filter_map(known).collect()
    }

    /// Notes the position that a lane has reached in another worker. Returns false if there is no such lane, or it cannot be there.
    pub fn restore(&self, lane: u32, position: u64) -> bool {
        let is_possible = position.is_multiple_of(HEAD_BYTES as u64) && position <= u64::MAX / 2;
        let slot = self.slot(lane).filter(|slot| is_possible && !slot.known.load(Ordering::Acquire));
        slot.is_some_and(|slot| {
            slot.progress.advance(position);
            !slot.known.swap(true, Ordering::AcqRel)
        })
    }

    /// Takes a lane whose position was restored, for the thread that had it. Returns `None` if it is not there, or another thread has it. `consumed`
    /// is the part of the position since the thread has it.
    pub fn take_again(&'static self, lane: u32, consumed: u64) -> Option<Place> {
        let slot = self.slot(lane).filter(|slot| slot.known.load(Ordering::Acquire))?;
        let begins = slot.progress.done().checked_sub(consumed)?;
        (!slot.used.swap(true, Ordering::AcqRel)).then_some(Place { slot, begins })
    }
}

/// The place of a thread's lane in the order.
#[derive(Debug)]
pub struct Place {
    slot: &'static Slot,
    begins: u64,
}

impl Place {
    /// Notes that the lane has consumed `consumed` bytes since it was set up. A sequentially consistent fence and [`Self::wake`]
    /// must follow.
    pub fn set(&self, consumed: u64) {
        self.slot.progress.set(self.begins.saturating_add(consumed));
    }

    /// Wakes the executors that wait for the lane.
    pub fn wake(&self) {
        self.slot.progress.wake();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.slot.used.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> &'static Order {
        Box::leak(Box::default())
    }

    fn come_to(place: &Place, consumed: u64) {
        place.set(consumed);
        fence(Ordering::SeqCst);
        place.wake();
    }

    #[test]
    fn a_record_waits_for_the_lane_that_it_names_and_no_other() {
        let order = order();
        let (first, _second) = (order.take(0, 0).unwrap(), order.take(1, 0).unwrap());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| order.wait_for(0, 64));
            come_to(&first, 48);
            std::thread::sleep(WATCH * 100);
            assert!(!waits.is_finished());
            come_to(&first, 64);
            waits.join().unwrap().unwrap();
        });
        order.wait_for(0, 16).unwrap();
    }

    #[test]
    fn positions_that_cannot_come_are_not_waited_for() {
        let order = order();
        let place = order.take(3, 160).unwrap();
        for (lane, position) in [
            (3, 176 + RECORDS_BYTES as u64),
            (3, u64::MAX),
            (2, 16),
            (MAX_LANES as u32, 16),
            (u32::MAX, u64::MAX),
        ] {
            assert!(order.wait_for(lane, position).is_err(), "{lane}: {position}");
        }
        order.wait_for(3, 160).unwrap();
        order.wait_for(u32::MAX, 0).unwrap();
        drop(place);
    }

    #[test]
    fn lanes_go_on_in_another_worker() {
        let order = order();
        let place = order.take(0, 160).unwrap();
        come_to(&place, 48);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| order.wait_for(0, 224));
            order.set_left(true);
            assert!(matches!(waits.join().unwrap(), Err(Unawaited::Left)));
        });
        assert_eq!(order.positions(), [(0, 208)]);
        let next = self::order();
        assert!(next.restore(0, 208) && !next.restore(0, 208) && !next.restore(MAX_LANES as u32, 16));
        assert!(!next.restore(1, 8) && !next.restore(1, u64::MAX - 15));
        assert!(next.take_again(0, 224).is_none() && next.take_again(1, 0).is_none());
        let place = next.take_again(0, 48).unwrap();
        assert!(next.take_again(0, 48).is_none(), "another thread has it");
        next.wait_for(0, 208).unwrap();
        come_to(&place, 64);
        next.wait_for(0, 224).unwrap();
    }

    #[test]
    fn a_lane_belongs_to_one_thread_and_goes_on_where_it_ended() {
        let order = order();
        let place = order.take(5, 0).unwrap();
        assert!(order.take(5, 1 << 20).is_none(), "another thread has it");
        come_to(&place, 320);
        drop(place);
        for begins in [0, 304, 328, u64::MAX, u64::MAX - 15] {
            assert!(order.take(5, begins).is_none(), "{begins}");
        }
        let place = order.take(5, 320).unwrap();
        come_to(&place, 16);
        order.wait_for(5, 336).unwrap();
        assert!(order.take(MAX_LANES as u32, 0).is_none());
    }
}
