// SPDX-License-Identifier: GPL-2.0-only

//! Counts what happens, for `/sys/class/misc/virtio-cuda/statistics` (README.md says what the files mean). Calls
//! that go through lanes never come here; the others cost far more than a counter.

use crate::linux::bindings as glue;
use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// What is counted.
/// In the order of `enum virtio_cuda_statistic`.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Statistic {
    /// Requests put into a ring.
    Requests,
    /// Notifications of the device: with a virtual machine, exits to the VMM.
    Kicks,
    /// Interrupts of the device that found something.
    Interrupts,
    /// Pages pinned.
    PinnedPages,
    /// Nanoseconds in pinning pages.
    PinNs,
    /// Nanoseconds in unpinning them.
    UnpinNs,
    /// Nanoseconds between sending a call with pages and its caller's going on with the answer.
    BulkWaitNs,
}

impl Statistic {
    /// Counts `more`. For any context.
    pub(crate) fn add(self, more: u64) {
        // SAFETY: Adds to a counter that is always there.
        unsafe { glue::virtio_cuda_count(self as c_uint, more) };
    }
}

/// Measures a time.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant<Monotonic>);

impl Stopwatch {
    /// Starts.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Counts the nanoseconds since the start.
    pub(crate) fn count(self, as_what: Statistic) {
        as_what.add(self.0.elapsed().as_nanos().try_into().unwrap_or(0));
    }
}
