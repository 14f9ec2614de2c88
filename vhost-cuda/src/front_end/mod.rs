// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The side of the front-end: the virtio device, its queues, the guest's memory, and requests as they come from a guest.

pub mod backend;
pub mod device;
pub mod events;
pub mod memory;
pub mod migration;
pub mod request;
pub mod ring;
pub mod sigbus;
