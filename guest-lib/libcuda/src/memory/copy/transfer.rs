// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The ends of a copy between the device and host memory that it does not reach.

use virtio_cuda_client::protocol::DevicePtr;
use virtio_cuda_client::transport::UserMemory;

/// See the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From the host.
    ToDevice {
        /// The destination.
        dst: DevicePtr,
        /// The source.
        src: UserMemory,
    },
    /// To the host.
    FromDevice {
        /// The destination.
        dst: UserMemory,
        /// The source.
        src: DevicePtr,
    },
}

impl Transfer {
    /// From host memory at `src`.
    pub fn to_device(dst: u64, src: u64, bytes: usize) -> Self {
        Self::ToDevice { dst: DevicePtr(dst), src: UserMemory { address: src as usize, bytes } }
    }

    /// To host memory at `dst`.
    pub fn from_device(dst: u64, src: u64, bytes: usize) -> Self {
        Self::FromDevice { dst: UserMemory { address: dst as usize, bytes }, src: DevicePtr(src) }
    }

    /// Returns whether the source is in host memory.
    pub fn is_to_device(self) -> bool {
        matches!(self, Self::ToDevice { .. })
    }

    /// The end in host memory.
    pub fn host(self) -> UserMemory {
        match self {
            Self::ToDevice { src, .. } => src,
            Self::FromDevice { dst, .. } => dst,
        }
    }

    /// The end in device memory.
    pub fn device(self) -> DevicePtr {
        match self {
            Self::ToDevice { dst, .. } => dst,
            Self::FromDevice { src, .. } => src,
        }
    }

    /// The destination and the source on the GPU, where `host` is its address of the host memory.
    pub fn on_gpu(self, host: DevicePtr) -> (DevicePtr, DevicePtr) {
        match self {
            Self::ToDevice { dst, .. } => (dst, host),
            Self::FromDevice { src, .. } => (host, src),
        }
    }

    /// The part of `bytes` bytes from `offset` on, both of which lie in the transfer.
    pub fn piece(self, offset: usize, bytes: usize) -> Self {
        let host = |host: UserMemory| UserMemory { address: host.address + offset, bytes };
        let device = |device: DevicePtr| DevicePtr(device.0 + offset as u64);
        match self {
            Self::ToDevice { dst, src } => Self::ToDevice { dst: device(dst), src: host(src) },
            Self::FromDevice { dst, src } => Self::FromDevice { dst: host(dst), src: device(src) },
        }
    }
}
