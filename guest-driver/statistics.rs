// SPDX-License-Identifier: GPL-2.0-only

//! Counts what happens, for `/sys/class/misc/virtio-cuda/statistics` (README.md says what the files mean). Calls
//! that go through lanes never come here; the others cost far more than a counter.

use crate::bindings as glue;
use kernel::{
    bindings,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// The attributes of the device file's `struct device`.
pub(crate) fn groups() -> *mut *const bindings::attribute_group {
    // SAFETY: Returns the address of a static.
    unsafe { glue::virtio_cuda_groups() }
}

/// What is counted.
#[derive(Clone, Copy)]
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
        let which = match self {
            Self::Requests => glue::virtio_cuda_statistic_VIRTIO_CUDA_REQUESTS,
            Self::Kicks => glue::virtio_cuda_statistic_VIRTIO_CUDA_KICKS,
            Self::Interrupts => glue::virtio_cuda_statistic_VIRTIO_CUDA_INTERRUPTS,
            Self::PinnedPages => glue::virtio_cuda_statistic_VIRTIO_CUDA_PINNED_PAGES,
            Self::PinNs => glue::virtio_cuda_statistic_VIRTIO_CUDA_PIN_NS,
            Self::UnpinNs => glue::virtio_cuda_statistic_VIRTIO_CUDA_UNPIN_NS,
            Self::BulkWaitNs => glue::virtio_cuda_statistic_VIRTIO_CUDA_BULK_WAIT_NS,
        };
        // SAFETY: Adds to a counter that is always there.
        unsafe { glue::virtio_cuda_count(which, more) };
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
