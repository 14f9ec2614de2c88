// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lane between the call that sets it up, or the worker that has left it, and the executor that takes it up.

use virtio_cuda_ring::{Consumer, LANE_BYTES, LaneMemory};

use super::order::Place;
use crate::memory::window::Area;

/// A lane that no executor of this worker serves yet.
#[derive(Debug)]
pub struct NewLane {
    /// The executor's end.
    pub consumer: Consumer,
    /// The memory of the lane.
    pub memory: LaneMemory,
    /// Its place among the session's lanes.
    pub place: Place,
    /// The tag of its area.
    pub tag: u64,
}

impl NewLane {
    /// Sets up the lane in a shared area. The area stays mapped until the session ends. Returns `None` if it is too small.
    pub fn set_up(area: &Area, place: Place) -> Option<Self> {
        let memory = memory(area)?;
        Some(Self { consumer: Consumer::set_up(memory.clone()), memory, place, tag: area.tag })
    }

    /// Returns whether [`Self::take_up`] can take a lane up. Does not write to it.
    pub fn can_take_up(area: &Area, consumed: u64) -> bool {
        memory(area).is_some() && Consumer::is_position(consumed)
    }

    /// Takes up a lane that an executor of another worker has left after `consumed` bytes. Returns `None` if the area is too small, or no record can
    /// begin there.
    pub fn take_up(area: &Area, place: Place, consumed: u64) -> Option<Self> {
        let memory = memory(area)?;
        let consumer = Consumer::resume(memory.clone(), consumed).ok()?;
        Some(Self { consumer, memory, place, tag: area.tag })
    }
}

/// Returns the memory of a lane in a shared area, which stays mapped until the session ends. `None` if the area is too small.
fn memory(area: &Area) -> Option<LaneMemory> {
    if !area.shared || area.bytes < LANE_BYTES as u64 {
        return None;
    }
    // SAFETY: a shared area is mapped, readable and writable, until the process ends (no request takes it
    // away), page aligned, and at least that long.
    Some(unsafe { LaneMemory::new(area.base as *mut u8) })
}
