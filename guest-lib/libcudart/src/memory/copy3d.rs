// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 3D copies, and the translation between the runtime's and the driver's description of them. Graphs use it too.
//!
//! If an array takes part, the runtime measures both sides in elements. The driver measures in bytes, and in rows of
//! blocks where the array is compressed.

use core::ffi::c_uint;
use core::ptr;

use super::array;
use super::copy::{Direction, Order};
use crate::abi::driver::{CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_HOST, CUDA_MEMCPY3D, CopyEnd3D};
use crate::abi::shared::{cudaExtent, cudaMemcpy3DParms, cudaPitchedPtr, cudaPos};
use crate::abi::{cudaArray_t, cudaStream_t};
use crate::error::{Result, cudaErrorInvalidPitchValue, cudaErrorInvalidValue};
use crate::memory::address;
use crate::pointers::In;
use crate::texture::channel::Unit;
use crate::{driver, state};

api! {
    fn cudaMemcpy3D, cudaMemcpy3D_ptds(parameters: In<cudaMemcpy3DParms>) on stream {} => copy(parameters, Order::Blocking(stream));

    fn cudaMemcpy3DAsync, cudaMemcpy3DAsync_ptsz(
        parameters: In<cudaMemcpy3DParms>, stream: cudaStream_t,
    ) per_thread stream {} => copy(parameters, Order::Queued(stream));
}

/// # Safety
/// If not null, `parameters` describes memory and live arrays that hold the box until the copy is done.
unsafe fn copy(parameters: In<cudaMemcpy3DParms>, order: Order) -> Result {
    let parameters = parameters.get()?;
    state::context()?;
    if is_empty(&parameters.extent) {
        return state::whole_context().map(drop);
    }
    check(&parameters)?;
    let parameters = to_driver(&parameters)?;
    match order.queue() {
        // SAFETY: the memory is valid by this function's contract.
        None => unsafe { driver::cuMemcpy3D_v2(&parameters) },
        Some(stream) => {
            // SAFETY: the memory is valid by this function's contract.
            unsafe { driver::cuMemcpy3DAsync_v2(&parameters, stream) }?;
            order.finish()
        }
    }
}

pub fn is_empty(extent: &cudaExtent) -> bool {
    extent.width == 0 || extent.height == 0 || extent.depth == 0
}

/// Returns one end of a copy in the driver's units.
fn end(
    array: cudaArray_t,
    memory: &cudaPitchedPtr,
    position: &cudaPos,
    unit: Unit,
    memory_type: c_uint,
) -> Result<CopyEnd3D> {
    // In arrays positions count texels, and boxes begin at a block boundary. In memory they count blocks.
    let side = if array.is_null() { 1 } else { unit.side };
    let x = (position.x / side).checked_mul(unit.bytes).ok_or(cudaErrorInvalidValue)?;
    let end = CopyEnd3D { x, y: position.y / side, z: position.z, ..CopyEnd3D::ZERO };
    if array.is_null() {
        let at = address(memory.ptr);
        Ok(CopyEnd3D { memory_type, host: at, device: at, pitch: memory.pitch, height: memory.ysize, ..end })
    } else if memory.ptr.is_null() {
        Ok(CopyEnd3D { memory_type: CU_MEMORYTYPE_ARRAY, array: address(array), ..end })
    } else {
        Err(cudaErrorInvalidValue)
    }
}

/// Checks what the driver does not check: rows longer than the pitch, slices higher than the memory's (if there are
/// several), and a source array that is declared as host memory.
pub fn check(p: &cudaMemcpy3DParms) -> Result {
    let unit = unit(p.srcArray, p.dstArray)?;
    let width = unit.row(p.extent.width).unwrap_or(usize::MAX);
    for (array, memory) in [(p.srcArray, &p.srcPtr), (p.dstArray, &p.dstPtr)] {
        if array.is_null() && memory.ptr.is_null() {
            return Err(cudaErrorInvalidValue);
        }
        let low = p.extent.depth > 1 && unit.rows(p.extent.height) > memory.ysize;
        if array.is_null() && (width > memory.pitch || low) {
            return Err(cudaErrorInvalidPitchValue);
        }
    }
    let is_host = !p.srcArray.is_null() && Direction::of(p.kind)?.source() == CU_MEMORYTYPE_HOST;
    if is_host { Err(cudaErrorInvalidValue) } else { Ok(()) }
}

/// Converts a copy to the driver's description. Needs a context when an array takes part.
pub fn to_driver(p: &cudaMemcpy3DParms) -> Result<CUDA_MEMCPY3D> {
    let direction = Direction::of(p.kind)?;
    let unit = unit(p.srcArray, p.dstArray)?;
    Ok(CUDA_MEMCPY3D {
        src: end(p.srcArray, &p.srcPtr, &p.srcPos, unit, direction.source())?,
        dst: end(p.dstArray, &p.dstPtr, &p.dstPos, unit, direction.destination())?,
        width: unit.row(p.extent.width).ok_or(cudaErrorInvalidValue)?,
        height: unit.rows(p.extent.height),
        depth: p.extent.depth,
    })
}

/// Converts a driver's description to the runtime's: the inverse of [`to_driver`].
pub fn from_driver(p: &CUDA_MEMCPY3D) -> Result<cudaMemcpy3DParms> {
    let array = |end: &CopyEnd3D| -> cudaArray_t {
        let handle = if end.memory_type == CU_MEMORYTYPE_ARRAY { end.array } else { 0 };
        ptr::with_exposed_provenance_mut(handle as usize)
    };
    let (srcArray, dstArray) = (array(&p.src), array(&p.dst));
    let unit = unit(srcArray, dstArray)?;
    let position = |array: cudaArray_t, end: &CopyEnd3D| {
        let side = if array.is_null() { 1 } else { unit.side };
        cudaPos { x: (end.x / unit.bytes).saturating_mul(side), y: end.y.saturating_mul(side), z: end.z }
    };
    let memory = |array: cudaArray_t, end: &CopyEnd3D| {
        let address = if end.memory_type == CU_MEMORYTYPE_HOST { end.host } else { end.device };
        let address = if array.is_null() { address } else { 0 };
        let ptr = ptr::with_exposed_provenance_mut(address as usize);
        cudaPitchedPtr { ptr, pitch: end.pitch, xsize: 0, ysize: end.height }
    };
    Ok(cudaMemcpy3DParms {
        srcArray,
        srcPos: position(srcArray, &p.src),
        srcPtr: memory(srcArray, &p.src),
        dstArray,
        dstPos: position(dstArray, &p.dst),
        dstPtr: memory(dstArray, &p.dst),
        extent: cudaExtent {
            width: unit.elements(p.width),
            height: p.height.saturating_mul(unit.side),
            depth: p.depth,
        },
        kind: Direction::between(p.src.memory_type, p.dst.memory_type),
    })
}

/// Returns the unit in which extents and positions are measured.
fn unit(src: cudaArray_t, dst: cudaArray_t) -> Result<Unit> {
    match (src.is_null(), dst.is_null()) {
        (true, true) => Ok(Unit::BYTE),
        (false, true) => array::unit(src),
        (true, false) => array::unit(dst),
        (false, false) => match (array::unit(src)?, array::unit(dst)?) {
            (src, dst) if src == dst => Ok(src),
            _ => Err(cudaErrorInvalidValue),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::shared::cudaMemcpyHostToDevice;

    fn between_pointers(kind: c_uint) -> cudaMemcpy3DParms {
        let memory = |address: usize| cudaPitchedPtr {
            ptr: ptr::with_exposed_provenance_mut(address),
            pitch: 64,
            xsize: 60,
            ysize: 7,
        };
        cudaMemcpy3DParms {
            srcArray: ptr::null_mut(),
            srcPos: cudaPos { x: 1, y: 2, z: 3 },
            srcPtr: memory(0x1000),
            dstArray: ptr::null_mut(),
            dstPos: cudaPos { x: 4, y: 5, z: 6 },
            dstPtr: memory(0x2000),
            extent: cudaExtent { width: 10, height: 11, depth: 12 },
            kind,
        }
    }

    #[test]
    fn descriptions_survive_the_way_to_the_driver_and_back() {
        for kind in 0..=4 {
            let there = to_driver(&between_pointers(kind)).unwrap();
            assert_eq!((there.src.x, there.src.y, there.dst.z, there.width), (1, 2, 6, 10));
            let back = from_driver(&there).unwrap();
            assert_eq!(
                (back.kind, back.srcPos, back.dstPos),
                (kind, cudaPos { x: 1, y: 2, z: 3 }, cudaPos { x: 4, y: 5, z: 6 })
            );
            assert_eq!(
                (back.srcPtr.ptr.addr(), back.dstPtr.ptr.addr(), back.srcPtr.pitch),
                (0x1000, 0x2000, 64)
            );
        }
    }

    #[test]
    fn a_side_is_memory_or_an_array_not_both() {
        let memory = cudaPitchedPtr { ptr: ptr::without_provenance_mut(16), pitch: 1, xsize: 1, ysize: 1 };
        let array = ptr::without_provenance_mut(32);
        assert_eq!(
            end(array, &memory, &cudaPos::default(), Unit::BYTE, 1).err(),
            Some(cudaErrorInvalidValue)
        );
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let memory = between_pointers(cudaMemcpyHostToDevice).srcPtr;
        let position = cudaPos { x: usize::MAX / 2, y: 0, z: 0 };
        let unit = Unit { bytes: 16, side: 1 };
        assert_eq!(end(ptr::null_mut(), &memory, &position, unit, 1).err(), Some(cudaErrorInvalidValue));
    }
}
