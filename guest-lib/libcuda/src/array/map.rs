// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory of sparse arrays and of arrays with deferred mapping.

use cuda_abi::{CUDA_ARRAY_SPARSE_PROPERTIES, CUarrayMapInfo};
use virtio_cuda_client::protocol::{
    AllocationId, ArrayId, ArrayMapInfo, MAX_ARRAY_MAP_INFOS, MipmappedArrayId,
};
use virtio_cuda_client::{CudaError, calls};

use crate::array::not_null;
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::state::moving::Uses;
use crate::wire::put;

/// `CU_RESOURCE_TYPE_*`.
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
/// `CU_MEM_OPERATION_TYPE_*`.
const MAP: u32 = 1;
const UNMAP: u32 = 2;
/// `CUDA_ARRAY3D_SPARSE`.
const SPARSE: u32 = 0x40;

fn on_wire(from: &CUarrayMapInfo, api: Api) -> Result<ArrayMapInfo, CudaError> {
    let known = matches!(from.operation, MAP | UNMAP) && from.flags == 0 && from.reserved == [0; 2];
    if !known || from.resource == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    match from.resource_kind {
        ARRAY => api.driver.arrays.check(from.resource)?,
        MIPMAPPED_ARRAY => api.driver.arrays.check_mipmap(from.resource)?,
        _ => return Err(CudaError::INVALID_VALUE),
    }
    let [_, subresource @ ..] = from.subresource;
    Ok(ArrayMapInfo {
        resource_kind: from.resource_kind,
        resource: from.resource,
        subresource_kind: from.subresource_kind,
        subresource,
        operation: from.operation,
        handle_kind: from.handle_kind,
        memory: AllocationId(from.memory),
        offset: from.offset,
        device_mask: from.device_mask,
    })
}

entry_points! {
    /// Returns the division of a sparse array into tiles.
    call cuArrayGetSparseProperties(api, sparseProperties: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: u64) {
        sparseProperties.check()?;
        not_null(array)?;
        let of = api.driver.arrays.get(array)?;
        // A mipmap level has no sparse properties.
        if of.descriptor.flags & SPARSE == 0 || of.owner != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        sparseProperties.set(calls::cuArrayGetSparseProperties(&mut api.in_context()?, ArrayId(array))?.into())
    }

    /// Returns the division of a sparse mipmapped array into tiles.
    call cuMipmappedArrayGetSparseProperties(api, sparseProperties: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, mipmap: u64) {
        sparseProperties.check()?;
        not_null(mipmap)?;
        if api.driver.arrays.flags_of_mipmap(mipmap)? & SPARSE == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let mipmap = MipmappedArrayId(mipmap);
        sparseProperties.set(calls::cuMipmappedArrayGetSparseProperties(&mut api.in_context()?, mipmap)?.into())
    }

    /// Maps memory into arrays, or unmaps it, in stream order.
    call cuMemMapArrayAsync / cuMemMapArrayAsync_ptsz (api, mapInfoList: In<CUarrayMapInfo>, count: u32, hStream: u64) {
        if mapInfoList.is_null() || count == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        // All are checked first: an invalid element must not leave others mapped, as far as they fit one request.
        let mut requests = Vec::new();
        for first in (0..count as usize).step_by(MAX_ARRAY_MAP_INFOS) {
            let mut bytes = Vec::new();
            for index in first..(first + MAX_ARRAY_MAP_INFOS).min(count as usize) {
                put(&on_wire(&mapInfoList.at(index)?, api)?, &mut bytes)?;
            }
            requests.push(bytes);
        }
        let _sent = api.before_work(Uses::Anything, api.stream(hStream)?)?;
        for bytes in &requests {
            let mut call = api.in_context_of(hStream)?.input(bytes);
            calls::cuMemMapArrayAsync(&mut call, api.stream(hStream)?)?;
        }
        api.work_queued();
        Ok(())
    }
}
