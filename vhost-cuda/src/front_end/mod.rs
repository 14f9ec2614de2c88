// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The front-end side: the virtio device of a machine, and what its VMM asks.

pub mod backend;
pub mod device;
pub mod events;
pub mod migration;
pub mod patient;
pub mod relay;
pub mod sigbus;
