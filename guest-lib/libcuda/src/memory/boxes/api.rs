// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `cuMemcpy2D`, `cuMemcpy3D` and their variants.

use cuda_abi::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CopyEnd2D, CopyEnd3D};
use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::In;
use crate::memory::boxes::copy::BoxCopy;
use crate::memory::copy::between;
use crate::memory::copy::plan::Timing;

fn solid(end: CopyEnd2D) -> CopyEnd3D {
    let CopyEnd2D { x, y, memory_type, host, device, array, pitch, .. } = end;
    CopyEnd3D { x, y, memory_type, host, device, array, pitch, ..CopyEnd3D::ZERO }
}

fn copy_2d(api: Api, copy: In<CUDA_MEMCPY2D>, timing: Timing) -> Result<(), CudaError> {
    let copy = copy.get()?;
    let (src, dst) = (solid(copy.src), solid(copy.dst));
    run(api, CUDA_MEMCPY3D { src, dst, width: copy.width, height: copy.height, depth: 1 }, timing)
}

fn run(api: Api, copy: CUDA_MEMCPY3D, timing: Timing) -> Result<(), CudaError> {
    match BoxCopy::new(api, &copy)? {
        Some(copy) => copy.run(api, timing),
        None => Ok(()),
    }
}

entry_points! {
    /// Copies a rectangle.
    call cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds (api, pCopy: In<CUDA_MEMCPY2D>) {
        copy_2d(api, pCopy, Timing::Wait)
    }

    /// Copies a rectangle of any pitch.
    call cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds (api, pCopy: In<CUDA_MEMCPY2D>) {
        copy_2d(api, pCopy, Timing::Wait)
    }

    /// Copies a rectangle in stream order.
    call cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz (api, pCopy: In<CUDA_MEMCPY2D>, hStream: u64) {
        copy_2d(api, pCopy, Timing::Stream(api.stream(hStream)?))
    }

    /// Copies a box.
    call cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds (api, pCopy: In<CUDA_MEMCPY3D>) {
        run(api, pCopy.get()?, Timing::Wait)
    }

    /// Copies a box in stream order.
    call cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz (api, pCopy: In<CUDA_MEMCPY3D>, hStream: u64) {
        run(api, pCopy.get()?, Timing::Stream(api.stream(hStream)?))
    }

    /// Copies a box between contexts.
    call cuMemcpy3DPeer / cuMemcpy3DPeer_ptds (api, pCopy: In<CUDA_MEMCPY3D>) {
        let copy = pCopy.get()?;
        let timing = between::timing(api, [copy.dst.context, copy.src.context])?;
        run(api, copy, timing)
    }

    /// Copies a box between contexts in stream order.
    call cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz (api, pCopy: In<CUDA_MEMCPY3D>, hStream: u64) {
        let copy = pCopy.get()?;
        between::check(api, [copy.dst.context, copy.src.context])?;
        run(api, copy, Timing::Stream(api.stream(hStream)?))
    }
}
