// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The ends of a copy between the device and pageable host memory.

use virtio_cuda_client::protocol::DevicePtr;
use virtio_cuda_client::transport::UserMemory;

/// The direction and the ends of such a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From the host to the device.
    ToDevice {
        /// The destination.
        dst: DevicePtr,
        /// The source.
        src: UserMemory,
    },
    /// From the device to the host.
    FromDevice {
        /// The destination.
        dst: UserMemory,
        /// The source.
        src: DevicePtr,
    },
}

impl Transfer {
    /// Returns a transfer from host memory at `src`.
    pub fn to_device(dst: u64, src: u64, bytes: usize) -> Self {
        Self::ToDevice { dst: DevicePtr(dst), src: UserMemory { address: src as usize, bytes } }
    }

    /// Returns a transfer to host memory at `dst`.
    pub fn from_device(dst: u64, src: u64, bytes: usize) -> Self {
        Self::FromDevice { dst: UserMemory { address: dst as usize, bytes }, src: DevicePtr(src) }
    }

    /// Returns whether the source is in host memory.
    pub fn is_to_device(self) -> bool {
        matches!(self, Self::ToDevice { .. })
    }

    /// Returns the end in host memory.
    pub fn host(self) -> UserMemory {
        match self {
            Self::ToDevice { src, .. } => src,
            Self::FromDevice { dst, .. } => dst,
        }
    }

    /// Returns the end in device memory.
    pub fn device(self) -> DevicePtr {
        match self {
            Self::ToDevice { dst, .. } => dst,
            Self::FromDevice { src, .. } => src,
        }
    }

    /// Returns destination and source as GPU addresses; `host` is the GPU address of the host memory.
    pub fn on_gpu(self, host: DevicePtr) -> (DevicePtr, DevicePtr) {
        match self {
            Self::ToDevice { dst, .. } => (dst, host),
            Self::FromDevice { src, .. } => (host, src),
        }
    }

    /// Returns the part of `bytes` bytes from `offset` on. It must lie within the transfer.
    pub fn piece(self, offset: usize, bytes: usize) -> Self {
        let host = |host: UserMemory| UserMemory { address: host.address + offset, bytes };
        let device = |device: DevicePtr| DevicePtr(device.0 + offset as u64);
        match self {
            Self::ToDevice { dst, src } => Self::ToDevice { dst: device(dst), src: host(src) },
            Self::FromDevice { dst, src } => Self::FromDevice { dst: host(dst), src: device(src) },
        }
    }
}
