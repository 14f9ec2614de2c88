// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of boxes with rows and slices, with a pitch.

use std::ffi::c_void;

use cudarc::driver::sys::{CUDA_MEMCPY3D, CUmemorytype};

use super::{CUarray, CUdeviceptr, CUstream, CuResult, Driver};

/// One end of a box copy.
#[derive(Clone, Copy, Debug)]
pub enum BoxEnd {
    /// Device memory at an address.
    Device(CUdeviceptr),
    /// Host memory.
    Host(*mut u8),
    /// An array from a position on: byte of the row, row, slice.
    Array(CUarray, [usize; 3]),
}

/// The fields of one end in `CUDA_MEMCPY3D`.
struct Split {
    kind: CUmemorytype,
    host: *mut c_void,
    device: CUdeviceptr,
    array: CUarray,
    origin: [usize; 3],
}

impl Split {
    fn of(end: BoxEnd) -> Self {
        use std::ptr::null_mut as null;
        let (host, array, origin) = (null(), null(), [0; 3]);
        match end {
            BoxEnd::Device(device) => {
                Self { kind: CUmemorytype::CU_MEMORYTYPE_DEVICE, host, device, array, origin }
            }
            BoxEnd::Host(at) => {
                Self { kind: CUmemorytype::CU_MEMORYTYPE_HOST, host: at.cast(), device: 0, array, origin }
            }
            BoxEnd::Array(array, origin) => {
                Self { kind: CUmemorytype::CU_MEMORYTYPE_ARRAY, host, device: 0, array, origin }
            }
        }
    }
}

/// One end of a box copy: where its box begins, bytes from row to row, and rows from slice to slice.
#[derive(Clone, Copy, Debug)]
pub struct PitchedEnd {
    /// The first byte.
    pub end: BoxEnd,
    /// Bytes a row.
    pub pitch: usize,
    /// Rows a slice.
    pub height: usize,
}

/// A box copy: both ends and its size.
#[derive(Clone, Copy, Debug)]
pub struct BoxCopy {
    /// The source.
    pub src: PitchedEnd,
    /// The destination.
    pub dst: PitchedEnd,
    /// Bytes a row, rows, slices to copy.
    pub size: [usize; 3],
}

impl Driver {
    /// Copies a box in stream order.
    ///
    /// # Safety
    ///
    /// Both ends must be valid for the whole box until the stream has passed the copy.
    pub unsafe fn copy_box(&self, copy: &BoxCopy, stream: CUstream) -> CuResult<()> {
        let (src, dst) = (Split::of(copy.src.end), Split::of(copy.dst.end));
        let parameters = CUDA_MEMCPY3D {
            srcXInBytes: src.origin[0],
            srcY: src.origin[1],
            srcZ: src.origin[2],
            srcLOD: 0,
            srcMemoryType: src.kind,
            srcHost: src.host,
            srcDevice: src.device,
            srcArray: src.array,
            reserved0: std::ptr::null_mut(),
            srcPitch: copy.src.pitch,
            srcHeight: copy.src.height,
            dstXInBytes: dst.origin[0],
            dstY: dst.origin[1],
            dstZ: dst.origin[2],
            dstLOD: 0,
            dstMemoryType: dst.kind,
            dstHost: dst.host,
            dstDevice: dst.device,
            dstArray: dst.array,
            reserved1: std::ptr::null_mut(),
            dstPitch: copy.dst.pitch,
            dstHeight: copy.dst.height,
            WidthInBytes: copy.size[0],
            Height: copy.size[1],
            Depth: copy.size[2],
        };
        // SAFETY: the parameters live across the call; the caller vouches for the two ends.
        unsafe { self.cuMemcpy3DAsync_v2(&raw const parameters, stream) }
    }
}
