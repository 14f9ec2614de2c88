// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lane between the call that sets it up and the executor that takes it up.

use virtio_cuda_ring::{Consumer, LANE_BYTES, LaneMemory};

use super::order::Place;
use crate::memory::window::Area;

/// A lane from which nothing was taken yet.
#[derive(Debug)]
pub struct NewLane {
    /// The executor's end.
    pub consumer: Consumer,
    /// The memory of the lane.
    pub memory: LaneMemory,
    /// Its place among the session's lanes.
    pub place: Place,
}

impl NewLane {
    /// Sets up the lane in a shared area. The area stays mapped until the session ends. Returns `None` if it is too small.
    pub fn set_up(area: &Area, place: Place) -> Option<Self> {
        if !area.shared || area.bytes < LANE_BYTES as u64 {
            return None;
        }
        // SAFETY: a shared area is mapped, readable and writable, until the process ends (no request takes it
        // away), page aligned, and at least that long.
        let memory = unsafe { LaneMemory::new(area.base as *mut u8) };
        Some(Self { consumer: Consumer::set_up(memory.clone()), memory, place })
    }
}
