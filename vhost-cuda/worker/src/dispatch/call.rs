// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the functions of all calls have in common.

pub(super) use vhost_cuda_common::nvml::Nvml;
pub(super) use virtio_cuda_protocol::cuda::*;

pub(super) use super::answer::{Answer, Outcome};
pub(super) use crate::call::CallContext;
pub(super) use crate::call::lifecycle;
pub(super) use crate::call::resolve::{Region, Resolve, elements, rows};
use crate::call::work::Work;
pub(super) use crate::gpu::{CuResult, CudaError, STREAM_LEGACY};
pub(super) use crate::handlers;
pub(super) use crate::handlers::module::{image, variable};
pub(super) use crate::run::marks::Place;
pub(super) use crate::words::*;

/// Takes the next argument.
pub(super) fn take<T: Wire>(args: &mut Reader<'_>) -> CuResult<T> {
    T::take(args).map_err(|_| CudaError::INVALID_VALUE)
}

/// Refuses arguments that are too long.
pub(super) fn finish(args: Reader<'_>) -> CuResult<()> {
    args.finish().map_err(|_| CudaError::INVALID_VALUE)
}

/// Puts a result.
pub(super) fn put<T: Wire>(value: &T, results: &mut Writer<'_>) -> CuResult<()> {
    Wire::put(value, results).map_err(|_| CudaError::INVALID_VALUE)
}

/// Waits until a call may put work on the GPU, if the session watches work.
pub(super) fn begin(cx: &mut CallContext<'_>, place: Place) -> Option<Work> {
    cx.session.watches_work().then(|| Work::begin(cx, place))
}

/// Notes that the work of [`begin`] is queued.
pub(super) fn started(work: Option<Work>, cx: &mut CallContext<'_>) {
    if let Some(work) = work {
        work.started(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_devices_needs_no_context() {
        for opcode in
            [Opcode::cuMemRelease, Opcode::cuMemUnmap, Opcode::cuMemPoolDestroy, Opcode::cuCtxDestroy_v2]
        {
            assert!(!opcode.facts().needs_context(), "{opcode:?}");
        }
        for opcode in [Opcode::cuMemAllocFromPoolAsync, Opcode::cuMemAlloc_v2, Opcode::cuTexObjectCreate] {
            assert!(opcode.facts().needs_context(), "{opcode:?}");
        }
    }
}
