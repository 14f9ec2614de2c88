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

use super::gpu::{CUdeviceptr, CuResult};
use super::memory::bulk::{BulkIn, BulkOut};
use super::run::signal::Signal;
pub use dma::Stream;
pub use engine::Engine;
use pipeline::Pipeline;
use threads::Direction;

/// The copies of a call.
#[derive(Debug)]
pub struct Copies<'a> {
    /// The state that the session's copies share.
    pub engine: &'a Engine,
    /// The name of the context that is current.
    pub context: u64,
    /// The stream.
    pub dma: Stream<'a>,
}

impl Copies<'_> {
    /// Copies `bulk` to `dst` in stream order. Returns when the source may be reused; with `waits`, when work of any stream sees
    /// the bytes. The range at `dst` must have been checked.
    pub fn send(&self, dst: CUdeviceptr, bulk: &BulkIn<'_>, waits: bool) -> CuResult<()> {
        match bulk {
            BulkIn::Inline(bytes) if waits => inline::send_now(&self.dma, dst, bytes),
            BulkIn::Inline(bytes) => inline::send(self, dst, bytes),
            BulkIn::Pages(pages) => {
                let Self { engine, context, dma } = self;
                Pipeline::new(engine, *context, dma, pages, Direction::Gather, dst).gather(waits)
            }
        }
    }

    /// Copies from `src` to `bulk` in stream order. Returns when the bytes have arrived. The range at `src` must have
    /// been checked for the size of `bulk`. With `signal`, for that epoch of contexts, a short copy may be waited for by the
    /// signal.
    pub fn fetch(
        &self,
        src: CUdeviceptr,
        bulk: &mut BulkOut,
        signal: Option<(&mut Signal, u64)>,
    ) -> CuResult<()> {
        match bulk {
            BulkOut::Inline { room, bytes } => inline::fetch(self, src, bytes, *room, signal),
            BulkOut::Pages(pages) => {
                let Self { engine, context, dma } = self;
                Pipeline::new(engine, *context, dma, pages, Direction::Scatter, src).scatter()
            }
        }
    }
}
