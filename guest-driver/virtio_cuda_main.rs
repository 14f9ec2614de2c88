// SPDX-License-Identifier: GPL-2.0-only

//! `virtio_cuda`: carries the calls of CUDA programs from `/dev/virtio-cuda` to a virtio-cuda device.
//!
//! The driver knows no CUDA: calls are opaque. It pins the pages that they name, queues them, and keeps the
//! lifetimes right. README.md has the map of the files.

mod account;
mod bindings;
mod call;
mod calls;
mod chardev;
mod chunks;
mod device;
mod driver;
mod error;
mod event_queue;
mod events;
mod file;
mod hub;
mod irqlock;
mod kept;
mod link;
mod memory;
mod params;
mod places;
mod purpose;
mod queue;
mod reply;
mod request;
mod session;
mod span;
mod statistics;
mod task;
#[allow(dead_code, unreachable_pub)]
#[path = "../protocol/src/transport.rs"]
mod transport;
#[allow(dead_code, unreachable_pub)]
#[path = "../protocol/src/uapi.rs"]
mod uapi;
mod users;
mod virtio;
mod virtqueue;
mod wait;
mod watch;
mod workqueue;

use kernel::prelude::*;

module! {
    type: VirtioCuda,
    name: "virtio_cuda",
    authors: ["The vhost-cuda authors"],
    description: "virtio-cuda guest driver",
    license: "GPL v2",
    alias: ["virtio:d0000003Fv*"],
    params: {
        max_pinned_mib: u64 {
            default: 0,
            description: "Memory that one open file may pin, in MiB (0: half of the memory)",
        },
        max_outstanding: u32 {
            default: 64,
            description: "Calls that one open file may have outstanding",
        },
        max_shared_mib: u64 {
            default: 16,
            description: "Memory that one open file may share by mmap, in MiB",
        },
        max_user_sessions: u32 {
            default: 0,
            description: "Open files of one user other than root (0: half of the device's sessions)",
        },
        pinned_per_user_percent: u32 {
            default: 50,
            description: "Share of the memory that all files of one user together may have pinned",
        },
        pinned_percent: u32 {
            default: 75,
            description: "Share of the memory that all users together may keep pinned",
        },
        memlock_strict: u32 {
            default: 0,
            description: "1: a user may keep no more pinned than RLIMIT_MEMLOCK, whatever pinned_per_user_percent says",
        },
    },
}

/// The loaded module. The fields end in their order.
#[pin_data]
struct VirtioCuda {
    #[pin]
    _chardev: chardev::Registration<file::CudaFile>,
    #[pin]
    _driver: virtio::Registration,
    _hub: hub::Hub,
}

impl kernel::InPlaceModule for VirtioCuda {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // SAFETY: Once, before all else.
            _hub: unsafe { hub::Hub::new() }?,
            _driver <- virtio::Registration::new::<device::Device>(&driver::ID_TABLE, module),
            _chardev <- chardev::Registration::new(c"virtio-cuda", 0o666, module),
        })
    }
}
