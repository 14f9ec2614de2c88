// SPDX-License-Identifier: Apache-2.0 OR MIT

//! What may be sent without waiting for the answer.
//!
//! CUDA lets a call that only queues work return before the work is done; its own errors, though, it returns at
//! once. So a call is posted only when it cannot fail for a reason that the program can cause: its objects are
//! known here, its addresses lie in memory that is known here, a kernel was launched in that shape before. Every
//! other call waits, and answers what the device answers. What then still fails in the device (its memory runs
//! out, the context breaks) is told by the next call that waits, as CUDA's asynchronous errors are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::{LAUNCH_COOPERATIVE, LaunchShape, StreamId};

use crate::context::table::current;
use crate::entry::Api;
use crate::memory::ranges::DeviceRange;

/// Handles up to this one are CUDA's own default streams.
const LAST_DEFAULT_STREAM: u64 = 2;
/// Bounds of a grid (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
const MAX_GRID: [u32; 3] = [i32::MAX as u32, u16::MAX as u32, u16::MAX as u32];
/// Shapes that are remembered of each function.
const MAX_SHAPES: usize = 8;

impl Api {
    /// Whether work for the stream that the program calls `stream` may be posted: it is known and of the current
    /// context, nothing captures, and no variable has to be carried to and fro around the work.
    pub fn may_post(&self, stream: u64) -> bool {
        let context = self.current();
        let known = stream <= LAST_DEFAULT_STREAM
            || self.driver.streams.get(stream).is_ok_and(|stream| stream.context == context);
        let plain = !self.driver.memory.shadows.any.load(Ordering::Acquire) && !self.driver.captures.any();
        known && context != 0 && plain
    }

    /// To be called at the end of a call that has queued a launch, a copy or a fill in `stream`. With
    /// `CUDA_LAUNCH_BLOCKING=1` it waits for the work, whose errors are then this call's.
    pub fn end_asynchronous(&self, stream: StreamId) -> Result<(), CudaError> {
        if self.driver.environment.launch_blocking && !self.captures(stream) {
            self.wait_for_stream(stream)?;
            self.synchronized();
        }
        Ok(())
    }

    /// Whether nothing is there to be waited for.
    pub fn is_idle(&self) -> bool {
        self.driver.session.is_idle() && !self.driver.captures.any()
    }

    /// Whether `bytes` bytes from `address` on, as the GPU has them, are memory of the program's for certain.
    pub fn owns(&self, address: u64, bytes: u64) -> bool {
        let ranges = &self.driver.memory.ranges;
        let device = |range: DeviceRange| range.reachable && bytes <= range.bytes - (address - range.start);
        ranges.device(address).is_some_and(device)
            || ranges.host_of(address, bytes).is_some_and(|range| range.device_address == range.start)
    }
}

/// Shapes in which a function was launched and the device had nothing against it.
#[derive(Debug, Default)]
pub struct ProvenShapes(Mutex<Vec<(u64, LaunchShape)>>);

impl ProvenShapes {
    fn key(shape: LaunchShape) -> (u64, LaunchShape) {
        // The grid matters where blocks depend on each other; else its bounds are the same for all functions.
        let grid = if shape.flags & LAUNCH_COOPERATIVE != 0 || shape.cluster != [0; 3] {
            shape.grid
        } else {
            [0; 3]
        };
        (current(), LaunchShape { grid, ..shape })
    }

    /// Whether a launch of that shape cannot be refused.
    pub fn contains(&self, shape: LaunchShape) -> bool {
        let grid_fits = shape.grid.iter().zip(MAX_GRID).all(|(&blocks, most)| (1..=most).contains(&blocks));
        grid_fits && self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&Self::key(shape))
    }

    /// Notes a launch that was accepted.
    pub fn add(&self, shape: LaunchShape) {
        let mut shapes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Self::key(shape);
        if !shapes.contains(&key) {
            shapes.truncate(MAX_SHAPES - 1);
            shapes.insert(0, key);
        }
    }

    /// The function's attributes have changed.
    pub fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// What is known of an event's latest record.
#[derive(Debug, Default)]
pub struct Reached {
    records: AtomicU64,
    /// The latest record that was found reached, counting from 1; an event that was never recorded counts as
    /// reached, but the device is asked once.
    reached: AtomicU64,
}

impl Reached {
    /// To be called before the event is recorded: what was known is void.
    pub fn record(&self) {
        self.records.fetch_add(1, Ordering::SeqCst);
    }

    /// The latest record, before the device is asked whether it is reached.
    pub fn latest(&self) -> u64 {
        self.records.load(Ordering::SeqCst) + 1
    }

    /// The record that was the latest when the device was asked is reached.
    pub fn set(&self, latest: u64) {
        self.reached.fetch_max(latest, Ordering::SeqCst);
    }

    /// Whether the latest record is known to be reached.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst) == self.latest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_proven_for_every_grid_unless_blocks_depend_on_each_other() {
        let shapes = ProvenShapes::default();
        let shape = LaunchShape { grid: [4, 1, 1], block: [256, 1, 1], ..Default::default() };
        assert!(!shapes.contains(shape));
        shapes.add(shape);
        assert!(shapes.contains(LaunchShape { grid: [1 << 20, 7, 9], ..shape }));
        assert!(!shapes.contains(LaunchShape { grid: [1, 0, 1], ..shape }));
        assert!(!shapes.contains(LaunchShape { grid: [1, 1 << 16, 1], ..shape }));
        assert!(!shapes.contains(LaunchShape { block: [512, 1, 1], ..shape }));
        let cooperative = LaunchShape { flags: LAUNCH_COOPERATIVE, ..shape };
        shapes.add(cooperative);
        assert!(shapes.contains(cooperative));
        assert!(!shapes.contains(LaunchShape { grid: [5, 1, 1], ..cooperative }));
        shapes.forget();
        assert!(!shapes.contains(shape));
    }

    #[test]
    fn an_answer_that_a_record_overtakes_is_void() {
        let reached = Reached::default();
        assert!(!reached.is_reached());
        let asked = reached.latest();
        reached.set(asked);
        assert!(reached.is_reached());
        let asked = reached.latest();
        reached.record();
        reached.set(asked);
        assert!(!reached.is_reached());
        reached.set(reached.latest());
        assert!(reached.is_reached());
    }
}
