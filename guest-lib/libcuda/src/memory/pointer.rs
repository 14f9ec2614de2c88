// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The attributes of pointers, from this library's own tables.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use virtio_cuda_client::CudaError;
use virtio_cuda_client::transport::UserMemory;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In};
use crate::state::externals::EXTERNAL;
use crate::state::memory::ranges::{DeviceRange, HostKind};

/// `CU_MEMORYTYPE_*`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
/// `CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED`.
const IPC_EVENT_SUPPORTED: i32 = 125;
/// `CU_DEVICE_INVALID`.
const DEVICE_INVALID: i32 = -2;
/// `CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE`.
const READ_WRITE: u32 = 3;

/// `CU_POINTER_ATTRIBUTE_*`.
mod attribute {
    pub const CONTEXT: i32 = 1;
    pub const MEMORY_TYPE: i32 = 2;
    pub const DEVICE_POINTER: i32 = 3;
    pub const HOST_POINTER: i32 = 4;
    pub const SYNC_MEMOPS: i32 = 6;
    pub const BUFFER_ID: i32 = 7;
    pub const IS_MANAGED: i32 = 8;
    pub const DEVICE_ORDINAL: i32 = 9;
    pub const IS_LEGACY_CUDA_IPC_CAPABLE: i32 = 10;
    pub const RANGE_START_ADDR: i32 = 11;
    pub const RANGE_SIZE: i32 = 12;
    pub const MAPPED: i32 = 13;
    pub const ALLOWED_HANDLE_TYPES: i32 = 14;
    pub const IS_GPU_DIRECT_RDMA_CAPABLE: i32 = 15;
    pub const ACCESS_FLAGS: i32 = 16;
    pub const MEMPOOL_HANDLE: i32 = 17;
    pub const MAPPING_SIZE: i32 = 18;
    pub const MAPPING_BASE_ADDR: i32 = 19;
    pub const MEMORY_BLOCK_ID: i32 = 20;
    pub const IS_HW_DECOMPRESS_CAPABLE: i32 = 21;
}

/// `SYNC_MEMOPS` of allocations by their id, if the program has set it. It has no effect: copies wait where it matters.
/// Ids are never reused, so entries of freed memory need not be removed.
static SYNC_MEMOPS: Mutex<BTreeMap<u64, bool>> = Mutex::new(BTreeMap::new());

/// Attributes of a pointer. The default is for memory that CUDA does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    known: bool,
    memory_type: u32,
    context: u64,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
    start: u64,
    bytes: u64,
    /// First byte and bytes of the mapping.
    mapping: (u64, u64),
    id: u64,
    managed: bool,
    external: bool,
    pool: u64,
}

impl Facts {
    const UNKNOWN: Self = Self {
        known: false,
        memory_type: 0,
        context: 0,
        device: DEVICE_INVALID,
        device_pointer: 0,
        host_pointer: 0,
        start: 0,
        bytes: 0,
        mapping: (0, 0),
        id: 0,
        managed: false,
        external: false,
        pool: 0,
    };

    fn of(api: Api, address: u64) -> Self {
        let ranges = &api.driver.memory.ranges;
        let by_alias = || ranges.alias(address).map(|range| (address - range.device_address, range));
        let in_host = ranges.host(address).map(|range| (address - range.start, range)).or_else(by_alias);
        if let Some((offset, range)) = in_host {
            let managed = range.kind.is_managed();
            let reached = api.is_reached(&range);
            let mapping = if range.pool.is_some() {
                range.pages
            } else {
                UserMemory { address: range.device_address as usize, bytes: range.bytes as usize }
            };
            return Self {
                known: true,
                memory_type: if managed { DEVICE } else { HOST },
                context: range.context,
                device: range.device as i32,
                device_pointer: if reached { range.device_address + offset } else { 0 },
                host_pointer: range.start + offset,
                // For memory from a host pool, NVIDIA's driver returns its offset in the mapping.
                start: if range.kind == HostKind::Pooled {
                    range.start - range.window
                } else {
                    range.device_address
                },
                bytes: range.bytes,
                mapping: (mapping.address as u64, mapping.bytes as u64),
                id: range.id,
                managed,
                external: false,
                pool: range.pool.as_ref().map_or(0, |pool| pool.handle),
            };
        }
        // For memory that CUDA does not know, the host pointer is the pointer itself.
        let unknown = Self { host_pointer: address, ..Self::UNKNOWN };
        // Calls report external memory as accessible only in the context of its import.
        let reached = |range: &DeviceRange| range.owner != EXTERNAL || range.context == api.current();
        ranges.device(address).map_or(unknown, |range| Self {
            known: true,
            memory_type: DEVICE,
            // Memory of a pool belongs to no context.
            context: if range.pool == 0 { range.context } else { 0 },
            device: range.device as i32,
            device_pointer: if reached(&range) { address } else { 0 },
            host_pointer: 0,
            start: range.start,
            bytes: range.bytes,
            mapping: (range.start, range.bytes),
            id: range.id,
            managed: false,
            external: range.owner == EXTERNAL,
            pool: range.pool,
        })
    }

    /// Stores one attribute with the size that NVIDIA's driver uses (booleans have four bytes).
    fn store(&self, api: Api, number: i32, data: HostPtr) -> Result<(), CudaError> {
        // SAFETY: `data` is room for the attribute, which has the size that is chosen below.
        let (word, long) = unsafe { (data.as_out::<u32>(), data.as_out::<u64>()) };
        let word = |value: u32| word.set(value);
        let long = |value: u64| long.set(value);
        match number {
            attribute::MEMORY_TYPE => word(self.memory_type),
            attribute::IS_MANAGED => word(self.managed.into()),
            attribute::SYNC_MEMOPS => {
                let chosen =
                    SYNC_MEMOPS.lock().unwrap_or_else(PoisonError::into_inner).get(&self.id).copied();
                word(chosen.unwrap_or(self.managed).into())
            }
            attribute::MAPPED => word(self.known.into()),
            attribute::IS_LEGACY_CUDA_IPC_CAPABLE => word(self.can_be_shared(api)?.into()),
            attribute::IS_GPU_DIRECT_RDMA_CAPABLE | attribute::IS_HW_DECOMPRESS_CAPABLE => word(0),
            attribute::ACCESS_FLAGS => word(if self.known { READ_WRITE } else { 0 }),
            attribute::DEVICE_ORDINAL => word(self.device as u32),
            attribute::CONTEXT => long(self.context),
            attribute::DEVICE_POINTER => long(self.device_pointer),
            attribute::HOST_POINTER => long(self.host_pointer),
            attribute::BUFFER_ID | attribute::MEMORY_BLOCK_ID => long(self.id),
            // Not written for memory that CUDA does not know.
            attribute::RANGE_START_ADDR | attribute::RANGE_SIZE if !self.known => Ok(()),
            attribute::RANGE_START_ADDR => long(self.start),
            attribute::RANGE_SIZE => long(self.bytes),
            attribute::MAPPING_BASE_ADDR => long(self.mapping.0),
            attribute::MAPPING_SIZE => long(self.mapping.1),
            attribute::ALLOWED_HANDLE_TYPES => long(0),
            attribute::MEMPOOL_HANDLE => long(self.pool),
            _ => Err(CudaError::INVALID_VALUE),
        }
    }

    /// Returns whether `cuIpcGetMemHandle` accepts it: memory of `cuMemAlloc`, if the device supports sharing.
    fn can_be_shared(&self, api: Api) -> Result<bool, CudaError> {
        let plain = self.memory_type == DEVICE && !self.managed && !self.external;
        let plain = plain && self.pool == 0 && self.context != 0;
        Ok(plain && api.driver.device(self.device)?.attribute(IPC_EVENT_SUPPORTED) == Ok(1))
    }

    /// Returns whether the attribute is valid for one pointer. Querying another one is an error.
    fn has(&self, number: i32) -> bool {
        match number {
            attribute::HOST_POINTER => self.known && self.host_pointer != 0,
            attribute::DEVICE_POINTER => self.known && self.device_pointer != 0,
            _ => self.known,
        }
    }
}

entry_points! {
    /// Returns one attribute. Errors: `CUDA_ERROR_INVALID_VALUE` for memory that CUDA does not know.
    call cuPointerGetAttribute(api, data: HostPtr, attribute: i32, ptr: u64) {
        let facts = Facts::of(api, ptr);
        if !facts.has(attribute) {
            return Err(CudaError::INVALID_VALUE);
        }
        facts.store(api, attribute, data)
    }

    /// Returns several attributes. Memory that CUDA does not know is not an error: it has default values.
    call cuPointerGetAttributes(api, numAttributes: u32, attributes: In<i32>, data: In<HostPtr>, ptr: u64) {
        let facts = Facts::of(api, ptr);
        for index in 0..numAttributes as usize {
            facts.store(api, attributes.at(index)?, data.at(index)?)?;
        }
        Ok(())
    }

    /// Sets `SYNC_MEMOPS`, the only attribute that can be set.
    call cuPointerSetAttribute(api, value: In<u32>, attribute: i32, ptr: u64) {
        let facts = Facts::of(api, ptr);
        if attribute != attribute::SYNC_MEMOPS || !facts.known {
            return Err(CudaError::INVALID_VALUE);
        }
        let sync = value.get()? != 0;
        SYNC_MEMOPS.lock().unwrap_or_else(PoisonError::into_inner).insert(facts.id, sync);
        Ok(())
    }
}
