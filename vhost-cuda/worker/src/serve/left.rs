// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a guest thread between two calls, when the session leaves for another worker.

use vhost_cuda_common::link::Frame;

use super::lane::{Lane, LeftLane, Waiting};
use crate::call::ThreadState;
use crate::gpu::{CudaError, Driver};
use crate::memory::window::Area;
use crate::objects::jit::JitLogs;
use crate::run::new_lane::NewLane;
use crate::run::order::Place;

/// The place of a lane that another worker has left.
#[derive(Debug)]
pub struct LeftPlace {
    area: Area,
    place: Place,
    consumed: u64,
}

impl LeftPlace {
    /// The lane in a shared area, of which `consumed` bytes were consumed. `None` if the area is too small, or no record can begin there.
    pub fn new(area: Area, place: Place, consumed: u64) -> Option<Self> {
        NewLane::can_take_up(&area, consumed).then_some(Self { area, place, consumed })
    }

    /// Takes the lane up: writes to guest memory.
    pub fn take_up(self) -> Option<NewLane> {
        NewLane::take_up(&self.area, self.place, self.consumed)
    }
}

/// The state of a guest thread.
#[derive(Debug, Default)]
pub struct Left {
    /// Its number.
    pub number: u32,
    /// Its lane, and the number of it.
    pub lane: Option<LeftLane>,
    /// The number of its lane, if it has one.
    pub lane_number: Option<u32>,
    /// The first error of posted calls, until it is reported.
    pub deferred: Option<CudaError>,
    /// The latest logs of the just-in-time compiler.
    pub jit: JitLogs,
    /// The mode of captures that it has set for itself (`cuThreadExchangeStreamCaptureMode`).
    pub capture_mode: Option<i32>,
    /// Requests that wait for its lane.
    pub waits: Vec<Waiting>,
    /// Its requests that were not executed, in their order.
    pub frames: Vec<Frame>,
}

impl Left {
    /// Copies the state of a thread, which may go on here.
    pub fn new(
        number: u32,
        thread: &ThreadState,
        lane: Option<&Lane>,
        waits: Vec<Waiting>,
        frames: Vec<Frame>,
    ) -> Self {
        Self {
            number,
            lane: lane.map(Lane::left),
            lane_number: thread.lane,
            deferred: thread.deferred,
            jit: thread.jit.clone(),
            capture_mode: None,
            waits,
            frames,
        }
    }

    /// Gives the calling thread this state. Returns its lane.
    pub fn restore(self, gpu: &Driver, thread: &mut ThreadState, lane: Option<NewLane>) -> Option<Lane> {
        thread.number = self.number;
        thread.deferred = self.deferred;
        thread.jit = self.jit;
        thread.lane = self.lane_number;
        if let Some(mode) = self.capture_mode
            && let Err(error) = gpu.exchange_capture_mode(mode)
        {
            log::error!("the mode of captures of a thread cannot be set again: {error}");
        }
        lane.zip(self.lane).map(|(lane, at)| Lane::resume(lane, &at))
    }
}

/// Returns a copy of a call's frame.
pub fn copy_of(frame: &Frame) -> Frame {
    Frame {
        header: frame.header,
        payload: frame.payload.clone(),
        in_entries: frame.in_entries.clone(),
        out_entries: frame.out_entries.clone(),
        file: None,
    }
}
