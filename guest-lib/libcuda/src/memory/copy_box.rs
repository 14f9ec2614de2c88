// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `cuMemcpy2D`, `cuMemcpy3D` and their kin.

use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::In;
use crate::memory::box_copy::BoxCopy;
use crate::memory::copy::Timing;

/// One end of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct End2D {
    x_bytes: usize,
    y: usize,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Memcpy2D {
    src: End2D,
    dst: End2D,
    width: usize,
    height: usize,
}
const _: () = assert!(size_of::<Memcpy2D>() == 128);

/// One end of `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct End3D {
    /// Bytes into the row.
    pub x_bytes: usize,
    /// Row.
    pub y: usize,
    /// Slice.
    pub z: usize,
    /// Must be 0.
    pub lod: usize,
    /// `CU_MEMORYTYPE_*`.
    pub memory_type: u32,
    /// Of host memory.
    pub host: u64,
    /// Of device and unified memory.
    pub device: u64,
    /// Of an array.
    pub array: u64,
    /// Of the peer variant: its context, which shares the device's address space.
    pub reserved_or_context: u64,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Rows from slice to slice.
    pub height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Memcpy3D {
    /// From.
    pub src: End3D,
    /// To.
    pub dst: End3D,
    /// Bytes a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}
const _: () = assert!(size_of::<Memcpy3D>() == 200);

impl From<End2D> for End3D {
    fn from(end: End2D) -> Self {
        Self {
            x_bytes: end.x_bytes,
            y: end.y,
            z: 0,
            lod: 0,
            memory_type: end.memory_type,
            host: end.host,
            device: end.device,
            array: end.array,
            reserved_or_context: 0,
            pitch: end.pitch,
            height: 0,
        }
    }
}

fn copy_2d(api: Api, copy: In<Memcpy2D>, timing: Option<u64>) -> Result<(), CudaError> {
    let copy = copy.get()?;
    let (src, dst) = (copy.src.into(), copy.dst.into());
    run(api, Memcpy3D { src, dst, width: copy.width, height: copy.height, depth: 1 }, timing)
}

fn run(api: Api, copy: Memcpy3D, stream: Option<u64>) -> Result<(), CudaError> {
    let timing = stream.map_or(Timing::Wait, |stream| Timing::Stream(api.stream(stream)));
    match BoxCopy::new(api, &copy)? {
        Some(copy) => copy.run(api, timing),
        None => Ok(()),
    }
}

entry_points! {
    /// Copies a rectangle.
    call cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds (api, pCopy: In<Memcpy2D>) {
        copy_2d(api, pCopy, None)
    }

    /// Copies a rectangle of any pitch.
    call cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds (api, pCopy: In<Memcpy2D>) {
        copy_2d(api, pCopy, None)
    }

    /// Copies a rectangle in stream order.
    call cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz (api, pCopy: In<Memcpy2D>, hStream: u64) {
        copy_2d(api, pCopy, Some(hStream))
    }

    /// Copies a box.
    call cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds (api, pCopy: In<Memcpy3D>) {
        run(api, pCopy.get()?, None)
    }

    /// Copies a box in stream order.
    call cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz (api, pCopy: In<Memcpy3D>, hStream: u64) {
        run(api, pCopy.get()?, Some(hStream))
    }

    /// Copies a box between contexts.
    call cuMemcpy3DPeer / cuMemcpy3DPeer_ptds (api, pCopy: In<Memcpy3D>) {
        run(api, pCopy.get()?, None)
    }

    /// Copies a box between contexts in stream order.
    call cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz (api, pCopy: In<Memcpy3D>, hStream: u64) {
        run(api, pCopy.get()?, Some(hStream))
    }
}
