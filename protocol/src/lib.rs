// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The virtio-cuda ABI, in two halves that do not know each other:
//!
//! * [`transport`] and [`uapi`]: the virtio device and `/dev/virtio-cuda`. Known to the guest driver
//!   (which compiles the very same files), the guest library and the device.
//! * [`cuda`]: the CUDA call table. Known to the guest library and the device only; the driver carries
//!   calls as opaque payloads.
//!
//! A shipped number or layout never changes; `golden/` holds a snapshot that the tests compare.

#![no_std]
#![forbid(unsafe_code)]

pub mod cuda;
pub mod transport;
pub mod uapi;
