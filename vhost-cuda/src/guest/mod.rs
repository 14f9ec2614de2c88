// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest writes, and what is written for it: its memory, its queues and its requests. Nothing else in the daemon reads or
//! writes at an address of a guest.

#[cfg(test)]
pub mod fixture;
pub mod memory;
pub mod request;
pub mod ring;
