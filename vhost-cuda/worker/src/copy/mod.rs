// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies between the guest process's memory and the GPU.
//!
//! Guest pages are not registered with the GPU, so their bytes pass through pinned buffers (`staging`). Copy threads
//! (`threads`) copy between pages and buffers while the GPU copies between buffers and its memory (`pipeline`). The
//! bytes of short copies are part of the call (`inline`).

mod dma;
mod engine;
mod inline;
mod pipeline;
mod staging;
#[cfg(test)]
mod tests;
mod threads;

use virtio_cuda_protocol::cuda::ContextId;

use super::gpu::{CUdeviceptr, CUstream, CuResult};
use super::memory::bulk::{BulkIn, BulkOut};
use super::run::signal::Signal;
use super::state::SessionState;
use dma::Stream;
pub use engine::Engine;
use pipeline::Pipeline;
use threads::Direction;

/// Copies `bulk` to `dst` in stream order. Returns when the source may be reused; with `waits`, when work of any stream sees
/// the bytes. The range at `dst` must have been checked.
pub fn to_device(
    session: &SessionState,
    context: ContextId,
    dst: CUdeviceptr,
    bulk: &BulkIn<'_>,
    stream: CUstream,
    waits: bool,
) -> CuResult<()> {
    match bulk {
        BulkIn::Inline(bytes) if waits => inline::send_now(&session.gpu, stream, dst, bytes),
        BulkIn::Inline(bytes) => inline::send(&session.copies, &session.gpu, context.0, stream, dst, bytes),
        BulkIn::Pages(pages) => {
            let dma = Stream { gpu: &session.gpu, stream };
            Pipeline::new(&session.copies, context.0, &dma, pages, Direction::Gather, dst).gather(waits)
        }
    }
}

/// Copies from `src` to `bulk` in stream order. Returns when the bytes have arrived. The range at `src` must have
/// been checked for the size of `bulk`.
pub fn from_device(
    session: &SessionState,
    context: ContextId,
    src: CUdeviceptr,
    bulk: &mut BulkOut,
    stream: CUstream,
    signal: Option<&mut Signal>,
) -> CuResult<()> {
    match bulk {
        BulkOut::Inline { room, bytes } => {
            let signal = signal.map(|signal| (signal, session.contexts.epoch()));
            let dma = Stream { gpu: &session.gpu, stream };
            let share = session.copies.staging.share(context.0, 1);
            inline::fetch(share, dma, src, bytes, *room, signal)
        }
        BulkOut::Pages(pages) => {
            let dma = Stream { gpu: &session.gpu, stream };
            Pipeline::new(&session.copies, context.0, &dma, pages, Direction::Scatter, src).scatter()
        }
    }
}
