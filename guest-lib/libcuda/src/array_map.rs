// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory of sparse arrays and of arrays with deferred mapping.

use virtio_cuda_client::protocol::{
    self, AllocationId, ArrayId, ArrayMapInfo, MAX_ARRAY_MAP_INFOS, MipmappedArrayId,
};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::array::not_null;
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::graph::wire::put;

/// `CU_RESOURCE_TYPE_*`.
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
/// `CU_MEM_OPERATION_TYPE_*`.
const MAP: u32 = 1;
const UNMAP: u32 = 2;
/// `CUDA_ARRAY3D_SPARSE`.
const SPARSE: u32 = 0x40;

/// `CUDA_ARRAY_SPARSE_PROPERTIES`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SparseProperties {
    tile: [u32; 3],
    first_level: u32,
    tail_bytes: u64,
    flags: u32,
    reserved: [u32; 4],
}
const _: () = assert!(size_of::<SparseProperties>() == 48);

impl From<protocol::SparseProperties> for SparseProperties {
    fn from(from: protocol::SparseProperties) -> Self {
        let protocol::SparseProperties { tile, first_level, tail_bytes, flags } = from;
        Self { tile, first_level, tail_bytes, flags, reserved: [0; 4] }
    }
}

/// `CUarrayMapInfo`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MapInfo {
    resource_kind: u32,
    resource: u64,
    subresource_kind: u32,
    /// A word of padding, and the union.
    subresource: [u32; 9],
    operation: u32,
    handle_kind: u32,
    memory: u64,
    offset: u64,
    device_mask: u32,
    flags: u32,
    reserved: [u32; 2],
}
const _: () = assert!(size_of::<MapInfo>() == 96);

impl MapInfo {
    fn on_wire(&self, api: Api) -> Result<ArrayMapInfo, CudaError> {
        let known = matches!(self.operation, MAP | UNMAP) && self.flags == 0 && self.reserved == [0; 2];
        if !known || self.resource == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        match self.resource_kind {
            ARRAY => api.driver.arrays.check(self.resource)?,
            MIPMAPPED_ARRAY => api.driver.arrays.check_mipmap(self.resource)?,
            _ => return Err(CudaError::INVALID_VALUE),
        }
        let [_, subresource @ ..] = self.subresource;
        Ok(ArrayMapInfo {
            resource_kind: self.resource_kind,
            resource: self.resource,
            subresource_kind: self.subresource_kind,
            subresource,
            operation: self.operation,
            handle_kind: self.handle_kind,
            memory: AllocationId(self.memory),
            offset: self.offset,
            device_mask: self.device_mask,
        })
    }
}

entry_points! {
    /// How a sparse array is cut into tiles.
    call cuArrayGetSparseProperties(api, sparseProperties: Out<SparseProperties>, array: u64) {
        sparseProperties.check()?;
        not_null(array)?;
        let of = api.driver.arrays.get(array)?;
        // A level has none of its own.
        if of.descriptor.flags & SPARSE == 0 || of.owner != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        sparseProperties.set(calls::cuArrayGetSparseProperties(&mut api.in_context()?, ArrayId(array))?.into())
    }

    /// How a sparse mipmapped array is cut into tiles.
    call cuMipmappedArrayGetSparseProperties(api, sparseProperties: Out<SparseProperties>, mipmap: u64) {
        sparseProperties.check()?;
        not_null(mipmap)?;
        if api.driver.arrays.flags_of_mipmap(mipmap)? & SPARSE == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let mipmap = MipmappedArrayId(mipmap);
        sparseProperties.set(calls::cuMipmappedArrayGetSparseProperties(&mut api.in_context()?, mipmap)?.into())
    }

    /// Maps memory into arrays, or takes it away, in stream order.
    call cuMemMapArrayAsync / cuMemMapArrayAsync_ptsz (api, mapInfoList: In<MapInfo>, count: u32, hStream: u64) {
        if mapInfoList.is_null() || count == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        // Nothing is done if one of them is bad, as far as they go in one request.
        let mut requests = Vec::new();
        for first in (0..count as usize).step_by(MAX_ARRAY_MAP_INFOS) {
            let mut bytes = Vec::new();
            for index in first..(first + MAX_ARRAY_MAP_INFOS).min(count as usize) {
                put(&mapInfoList.at(index)?.on_wire(api)?, &mut bytes)?;
            }
            requests.push(bytes);
        }
        api.before_work()?;
        for bytes in &requests {
            let mut call = api.in_context_of(hStream)?.input(UserMemory::of(bytes));
            calls::cuMemMapArrayAsync(&mut call, api.stream(hStream))?;
        }
        api.work_queued();
        Ok(())
    }
}
