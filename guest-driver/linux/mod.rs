// SPDX-License-Identifier: GPL-2.0-only

//! Safe faces for the kernel's C: where most of the unsafe code lives. Nothing in here knows of sessions or
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
