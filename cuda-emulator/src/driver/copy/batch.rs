// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many copies by one call.

use std::sync::Arc;

use cuda_abi::{CUDA_MEMCPY3D_BATCH_OP, CUmemcpy3DOperand, CUmemcpyAttributes};

use super::submit::{SourceOrder, copy_async_from};
use super::{Given, Side, Transfer};
use crate::driver::array::{self, CUarray};
use crate::driver::context;
use crate::driver::device::CUdeviceptr;
use crate::driver::ffi::{In, Out};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::CUstream;

/// CU_STREAM_LEGACY
const LEGACY: usize = 1;
/// CUmemcpy3DOperandType
const POINTER: u32 = 1;
const ARRAY: u32 = 2;

fn check_stream(stream: CUstream) -> CuResult<()> {
    let legacy = stream.0 == LEGACY || stream.0 == 0 && !crate::driver::ffi::default_stream_is_per_thread();
    if legacy { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// Reads a source access order. Only the flag for overlap may be set.
fn source_order(order: u32, flags: u32) -> CuResult<SourceOrder> {
    match order {
        1 if flags <= 1 => Ok(SourceOrder::Stream),
        2 if flags <= 1 => Ok(SourceOrder::DuringCall),
        3 if flags <= 1 => Ok(SourceOrder::Usual),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// The copies of a call.
struct Copies {
    targets: In<CUdeviceptr>,
    sources: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
}

/// The attributes of copies, each with the index of the first copy that has them.
struct Attributes {
    attributes: In<CUmemcpyAttributes>,
    first: In<usize>,
    number: usize,
}

fn batch(copies: Copies, attributes: Attributes, stream: CUstream) -> CuResult<()> {
    let Copies { targets, sources, sizes, count } = copies;
    let Attributes { attributes, first, number } = attributes;
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    check_stream(stream)?;
    context::current()?;
    if count == 0 || number == 0 || number > count || first.at(0)? != 0 {
        return Err(invalid);
    }
    // With the index of the first copy for each.
    let mut orders = Vec::new();
    for index in 0..number {
        let (attributes, first) = (attributes.at(index)?, first.at(index)?);
        let order = source_order(attributes.access_order, attributes.flags)?;
        if first >= count {
            return Err(invalid);
        }
        orders.push((first, order));
    }
    // All are checked before the first one starts.
    let mut copies = Vec::new();
    for index in 0..count {
        let order = orders.iter().rfind(|&&(first, _)| first <= index);
        let order = order.map_or(SourceOrder::Usual, |&(_, order)| order);
        let bytes = sizes.at(index)? as u64;
        if bytes == 0 {
            return Err(invalid);
        }
        let to = Side::linear(targets.at(index)?, Given::Unified)?;
        let from = Side::linear(sources.at(index)?, Given::Unified)?;
        copies.push((Transfer::new(to, from, [bytes, 1, 1])?, order));
    }
    copies.into_iter().try_for_each(|(copy, order)| copy_async_from(copy, order, stream))
}

fn batch_v1(copies: Copies, attributes: Attributes, failed: Out<usize>, stream: CUstream) -> CuResult<()> {
    // The error does not concern one of the copies, or the copy is unknown.
    batch(copies, attributes, stream).inspect_err(|_| failed.set_if_wanted(usize::MAX))
}

/// Returns the side, whose extent is counted in elements: those of the array, or bytes.
fn operand_side(operand: &CUmemcpy3DOperand, extent: [usize; 3], element: u64) -> CuResult<Side> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let [first, second, third, fourth] = operand.words;
    match operand.kind {
        POINTER => {
            let row = if second == 0 { extent[0] as u64 } else { second };
            let height = if third == 0 { extent[1] as u64 } else { third };
            let pitch = row.checked_mul(element).ok_or(invalid)?;
            // As in `Place3D`.
            Side::new(first, Given::Unified, pitch, pitch.saturating_mul(height))
        }
        ARRAY => {
            let array = array::find(CUarray::new(first as usize))?;
            let x = second.checked_mul(element).ok_or(invalid)?;
            Side::in_array(Arc::clone(&array.array), [x, third, fourth])
        }
        _ => Err(invalid),
    }
}

/// Returns the bytes of an element if the operand is an array.
fn operand_element(operand: &CUmemcpy3DOperand) -> CuResult<Option<u64>> {
    if operand.kind != ARRAY {
        return Ok(None);
    }
    let array = array::find(CUarray::new(operand.words[0] as usize))?;
    Ok(Some(array.array.unit().bytes.into()))
}

fn batch_3d(
    count: usize,
    operations: In<CUDA_MEMCPY3D_BATCH_OP>,
    flags: u64,
    stream: CUstream,
) -> CuResult<()> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    check_stream(stream)?;
    context::current()?;
    if count == 0 || flags != 0 {
        return Err(invalid);
    }
    let mut copies = Vec::new();
    for index in 0..count {
        let operation = operations.at(index)?;
        let order = source_order(operation.access_order, operation.flags)?;
        let (from, to) = (operand_element(&operation.src)?, operand_element(&operation.dst)?);
        if from.zip(to).is_some_and(|(from, to)| from != to) {
            return Err(invalid);
        }
        let element = from.or(to).unwrap_or(1);
        let [width, height, depth] = operation.extent;
        let width = (width as u64).checked_mul(element).ok_or(invalid)?;
        let to = operand_side(&operation.dst, operation.extent, element)?;
        let from = operand_side(&operation.src, operation.extent, element)?;
        copies.push((Transfer::new(to, from, [width, height as u64, depth as u64])?, order));
    }
    copies.into_iter().try_for_each(|(copy, order)| copy_async_from(copy, order, stream))
}

fn batch_3d_v1(
    count: usize,
    operations: In<CUDA_MEMCPY3D_BATCH_OP>,
    failed: Out<usize>,
    flags: u64,
    stream: CUstream,
) -> CuResult<()> {
    batch_3d(count, operations, flags, stream).inspect_err(|_| failed.set_if_wanted(usize::MAX))
}

crate::driver::ffi::entries! { after_init
    cuMemcpyBatchAsync + cuMemcpyBatchAsync_ptsz => batch_v1(
        targets: In<CUdeviceptr>, sources: In<CUdeviceptr>, sizes: In<usize>, count: usize,
        attributes: In<CUmemcpyAttributes>, first: In<usize>, number: usize, failed: Out<usize>, stream: CUstream) as (
        Copies { targets, sources, sizes, count }, Attributes { attributes, first, number }, failed, stream);
    cuMemcpyBatchAsync_v2 + cuMemcpyBatchAsync_v2_ptsz => batch(
        targets: In<CUdeviceptr>, sources: In<CUdeviceptr>, sizes: In<usize>, count: usize,
        attributes: In<CUmemcpyAttributes>, first: In<usize>, number: usize, stream: CUstream) as (
        Copies { targets, sources, sizes, count }, Attributes { attributes, first, number }, stream);
    cuMemcpy3DBatchAsync + cuMemcpy3DBatchAsync_ptsz => batch_3d_v1(
        count: usize, operations: In<CUDA_MEMCPY3D_BATCH_OP>, failed: Out<usize>, flags: u64, stream: CUstream);
    cuMemcpy3DBatchAsync_v2 + cuMemcpy3DBatchAsync_v2_ptsz => batch_3d(
        count: usize, operations: In<CUDA_MEMCPY3D_BATCH_OP>, flags: u64, stream: CUstream);
}
