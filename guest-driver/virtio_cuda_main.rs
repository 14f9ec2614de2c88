// SPDX-License-Identifier: GPL-2.0-only

//! `virtio_cuda`: transports the calls of CUDA programs from `/dev/virtio-cuda` to a virtio-cuda device.
//!
//! The driver does not interpret CUDA calls. It pins the pages that they refer to, queues the calls, and manages the
//! lifetimes of sessions and memory. README.md lists the files.

mod device;
mod error;
mod file;
mod limits;
mod linux;
mod memory;
mod request;
mod session;
// Kbuild compiles this module, without Cargo, so it cannot depend on the crate `virtio-cuda-protocol`. It compiles that crate's
// ABI files, which name nothing else of the crate.
#[allow(dead_code, unreachable_pub)]
#[path = "../protocol/src/transport.rs"]
mod transport;
#[allow(dead_code, unreachable_pub)]
#[path = "../protocol/src/uapi.rs"]
mod uapi;

use crate::linux::{
    chardev,
    virtio, //
};
use kernel::prelude::*;

module! {
    type: VirtioCuda,
    name: "virtio_cuda",
    authors: ["The vhost-cuda authors"],
    description: "virtio-cuda guest driver",
    license: "GPL v2",
    alias: ["virtio:d0000003Fv*"],
}

/// The loaded module. Its fields are dropped in their order.
struct VirtioCuda {
    _chardev: chardev::Registration,
    _driver: virtio::Registration,
    _hub: device::hub::Hub,
}

impl kernel::Module for VirtioCuda {
    fn init(module: &'static ThisModule) -> Result<Self> {
        // SAFETY: The kernel calls `init` once for a loaded module, and the hub is the first thing made here.
        let hub = unsafe { device::hub::Hub::new() }?;
        // SAFETY: `init` runs once, so no other registration of the driver exists.
        let driver = unsafe { virtio::Registration::new::<device::Device>(module) }?;
        let chardev =
            // SAFETY: `init` runs once, so no other registration of the device file exists.
            unsafe { chardev::Registration::new::<file::CudaFile>(c"virtio-cuda", 0o666, module) }?;
        Ok(Self {
            _chardev: chardev,
            _driver: driver,
            _hub: hub,
        })
    }
}
