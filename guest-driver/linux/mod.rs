// SPDX-License-Identifier: GPL-2.0-only

//! Safe interfaces to the kernel's C functions, with most of the unsafe code. Nothing here depends on sessions or
//! requests.

pub(crate) mod bindings;
pub(crate) mod chardev;
pub(crate) mod chunks;
pub(crate) mod irqlock;
pub(crate) mod statistics;
pub(crate) mod task;
pub(crate) mod virtio;
pub(crate) mod virtqueue;
pub(crate) mod wait;
pub(crate) mod workqueue;
