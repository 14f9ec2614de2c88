// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The transport without a virtual machine: this process is the vhost-user front-end of a daemon (virtio-user in
//! DPDK's terms). One process is one "machine" with one session; its "RAM" is a memfd.

mod adopted;
mod exchange;
pub mod forks;
mod handshake;
mod mappings;
mod memory;
mod pages;
mod queue;
mod scattered;
mod session;
mod staging;

pub use session::VirtioUser;

/// The variable that names the daemon's socket and selects this transport.
pub const SOCKET_VARIABLE: &str = "VIRTIO_CUDA_SOCKET";
