// SPDX-License-Identifier: GPL-2.0-only

//! Counters for `/sys/class/misc/virtio-cuda/statistics` (README.md documents the files). Calls through lanes are not
//! counted here; the others cost far more than a counter.

use crate::linux::bindings as glue;
use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// The counters, in the order of `enum virtio_cuda_statistic`.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Statistic {
    /// Requests added to a ring.
    Requests,
    /// Notifications sent to the device: with a virtual machine, exits to the VMM.
    Kicks,
    /// Interrupts of the device that had used buffers.
    Interrupts,
    /// Pages pinned.
    PinnedPages,
    /// Nanoseconds in pinning pages.
    PinNs,
    /// Nanoseconds in unpinning pages.
    UnpinNs,
    /// Nanoseconds from sending a call with pages until its caller continues with the reply.
    BulkWaitNs,
}

impl Statistic {
    /// Adds `more` to the counter. For any context.
    pub(crate) fn add(self, more: u64) {
        // SAFETY: Adds to a counter that is always there.
        unsafe { glue::virtio_cuda_count(self as c_uint, more) };
    }
}

/// Measures a duration.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant<Monotonic>);

impl Stopwatch {
    /// Starts the measurement.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Adds the nanoseconds since the start to a counter.
    pub(crate) fn count(self, as_what: Statistic) {
        as_what.add(self.0.elapsed().as_nanos().try_into().unwrap_or(0));
    }
}
