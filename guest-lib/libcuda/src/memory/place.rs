// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The kind of memory at an address, and the program's and the GPU's address of it.

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::FIRST_VARIABLE;

use crate::entry::Api;
use crate::state::memory::ranges::{HostKind, HostRange};

/// Programs have no memory below this address: Linux leaves it unmapped, so that accesses through null pointers, even
/// with an offset, fault.
const LOWEST_ADDRESS: u64 = 64 << 10;
/// The end of a program's addresses.
pub const HIGHEST_ADDRESS: u64 = 1 << 47;

/// The memory at one end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Device memory.
    Device(u64),
    /// Host memory that the GPU can access, at the same or another address.
    Pinned {
        /// The program's address.
        host: u64,
        /// The GPU's address.
        device: u64,
    },
    /// Other host memory.
    Pageable(u64),
}

impl Place {
    /// Returns the program's address of host memory.
    pub fn host(self) -> Option<u64> {
        match self {
            Self::Device(_) => None,
            Self::Pinned { host, .. } | Self::Pageable(host) => Some(host),
        }
    }

    /// Returns the GPU's address of memory that it can access.
    pub fn device(self) -> Option<u64> {
        match self {
            Self::Device(device) | Self::Pinned { device, .. } => Some(device),
            Self::Pageable(_) => None,
        }
    }

    /// Returns whether the GPU cannot access the memory.
    pub fn is_pageable(self) -> bool {
        matches!(self, Self::Pageable(_))
    }

    /// Returns the place `offset` bytes further in the same memory.
    pub fn at(self, offset: u64) -> Self {
        match self {
            Self::Device(device) => Self::Device(device + offset),
            Self::Pinned { host, device } => Self::Pinned { host: host + offset, device: device + offset },
            Self::Pageable(host) => Self::Pageable(host + offset),
        }
    }

    /// Refuses invalid addresses before the program's CPU accesses them.
    pub fn check(self, bytes: u64) -> Result<(), CudaError> {
        let (first, lowest, highest) = match self {
            // The worker knows its length.
            Self::Device(variable) if variable >= FIRST_VARIABLE => (variable, FIRST_VARIABLE, u64::MAX),
            Self::Device(device) => (device, 1, HIGHEST_ADDRESS),
            Self::Pinned { host, .. } | Self::Pageable(host) => (host, LOWEST_ADDRESS, HIGHEST_ADDRESS),
        };
        let end = first.checked_add(bytes);
        if first >= lowest && end.is_some_and(|end| end <= highest) {
            Ok(())
        } else {
            Err(CudaError::INVALID_VALUE)
        }
    }
}

impl Api {
    /// Returns the place for an address that the program passes as host memory.
    pub fn host_place(&self, address: u64, bytes: u64) -> Place {
        let holds = |range: &HostRange| bytes <= range.bytes - (address - range.start);
        // Mapped memory may continue in the next mapping.
        let found = self.driver.memory.ranges.host(address);
        match found.filter(|range| range.kind == HostKind::Mapped || holds(range)) {
            Some(range) if range.moves() => Place::Device(address),
            Some(range) if range.kind != HostKind::ManagedVariable => {
                Place::Pinned { host: address, device: range.device_address_of(address) }
            }
            _ => self.pageable_place(address),
        }
    }

    /// Returns the place for an address outside of all ranges of host memory. An address that this library reserved is
    /// device memory, even if the program passes it as host memory: NVIDIA's driver also decides by the address. All
    /// other memory is pageable.
    fn pageable_place(&self, address: u64) -> Place {
        if self.driver.memory.is_reserved(address) {
            Place::Device(address)
        } else {
            Place::Pageable(address)
        }
    }

    /// Returns the place for an address that the program passes as device memory: a GPU address, or the program's
    /// address of memory that both can access.
    pub fn device_place(&self, address: u64) -> Place {
        match self.driver.memory.ranges.host(address) {
            Some(range) if range.kind == HostKind::ManagedVariable || range.moves() => {
                Place::Device(range.device_address_of(address))
            }
            Some(range) => Place::Pinned { host: address, device: range.device_address_of(address) },
            None => match self.driver.memory.ranges.alias(address) {
                Some(range) if range.kind != HostKind::ManagedVariable => {
                    Place::Pinned { host: range.start + (address - range.device_address), device: address }
                }
                _ => Place::Device(address),
            },
        }
    }

    /// Like [`Self::device_place`], for calls in which the memory must be a device's: memory from a host pool is not.
    pub fn place_of_device(&self, address: u64) -> Place {
        match self.device_place(address) {
            Place::Pinned { host, .. } if self.driver.memory.is_of_local_pool(host) => Place::Device(0),
            place => place,
        }
    }

    /// Returns the place for an address of either kind, by the address alone.
    pub fn unified_place(&self, address: u64) -> Place {
        let ranges = &self.driver.memory.ranges;
        let known = ranges.host(address).is_some() || ranges.alias(address).is_some();
        if known || ranges.device(address).is_some() {
            self.device_place(address)
        } else {
            self.pageable_place(address)
        }
    }

    /// Refuses pinned memory that is shorter than `bytes`. The program may have meant device memory: the worker, which
    /// is not trusted, said that the address is also one of pinned memory.
    pub fn check_pinned(&self, place: Place, bytes: u64) -> Result<(), CudaError> {
        match place {
            Place::Pinned { host, .. } if self.driver.memory.ranges.host_of(host, bytes).is_none() => {
                Err(CudaError::INVALID_VALUE)
            }
            _ => Ok(()),
        }
    }
}
