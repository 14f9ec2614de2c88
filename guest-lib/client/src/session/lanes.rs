// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The lanes of a session, which its threads use in turn ([`crate::lane`]).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use cuda_environment::speed;
use virtio_cuda_ring::{LaneMemory, Producer};

use super::pace::Pace;
use crate::ClientError;
use crate::touched::ORDER;

/// Maximum number of lanes per process.
pub const MAX_LANES: u32 = 64;

/// The guest's end of a lane.
#[derive(Debug)]
pub struct Lane {
    /// The memory in common with the executor.
    pub memory: LaneMemory,
    /// The end of the ring in it.
    pub producer: Producer,
    /// The speed at which it empties.
    pub pace: Pace,
    /// The tag of the memory.
    pub tag: u64,
    /// Its number for the order between lanes.
    pub index: u32,
    /// The number of its last record.
    pub last: u64,
}

/// The lanes of a session.
#[derive(Debug, Default)]
pub struct Lanes {
    /// Boxed: a thread holds its lane's address.
    #[allow(clippy::vec_box)]
    idle: Mutex<Vec<Box<Lane>>>,
    made: AtomicU32,
    most: u32,
    off: AtomicBool,
}

impl Lanes {
    /// Lanes, unless the environment says otherwise, for a session that may have `outstanding` requests.
    ///
    /// A thread that waits for its lane has a request outstanding, and may be waiting for the wake-up by another thread. So
    /// each lane needs a request that nothing else takes.
    pub fn new(outstanding: u32) -> Self {
        let most = if speed::has_lanes() { MAX_LANES.min(outstanding.saturating_sub(1) / 2) } else { 0 };
        Self { most, ..Self::default() }
    }

    /// Returns the number of requests that are reserved for lanes: one for each, and one for the thread that wakes executors.
    pub fn requests(&self) -> u32 {
        self.most + u32::from(self.most > 0)
    }

    /// Returns a lane that no thread uses. `share` maps the memory of a new one, for good, and returns it with its tag.
    pub fn take(&self, share: impl FnOnce() -> Result<(LaneMemory, u64), ClientError>) -> Option<Box<Lane>> {
        if self.off.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(idle) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Some(idle);
        }
        if self.made.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.made.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        match share() {
            Ok((memory, tag)) => Some(Box::new(Lane {
                index: ORDER.add(&memory)?,
                last: 0,
                producer: Producer::new(memory.clone()),
                pace: Pace::default(),
                memory,
                tag,
            })),
            Err(error) => {
                log::info!("No lane, calls go through the request queue: {error}");
                self.switch_off();
                None
            }
        }
    }

    /// No thread gets a lane from now on.
    pub fn switch_off(&self) {
        self.off.store(true, Ordering::Relaxed);
    }

    /// Leaves a lane to the next thread.
    pub fn give_back(&self, lane: Box<Lane>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
    }
}
