// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The front-end side: the virtio device, its queues, the guest's memory, and the guest's requests.

pub mod backend;
pub mod device;
pub mod events;
pub mod memory;
pub mod migration;
pub mod relay;
pub mod request;
pub mod ring;
pub mod sigbus;
