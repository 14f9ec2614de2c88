// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One copy between guest pages and the GPU: the copy threads process some of its pieces while others are on the
//! link. All CUDA calls are made by the thread that owns the copy, in whose streams it happens.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::gpu::{CUdeviceptr, CuResult, CudaError};
use super::dma::Dma;
use super::engine::Engine;
use super::staging::{BUFFER_BYTES, Buffer, Share};
use super::threads::{CopyThreads, Direction, Piece, Transfer};
use crate::memory::pages::{Cursor, PageList};

/// The minimum length in bytes for which waking a thread is worth it.
pub const PARALLEL_BYTES: u64 = 384 << 10;
/// The minimum length in bytes of a piece of a copy that threads share.
const MIN_PIECE: usize = 128 << 10;
/// The length of a piece is a multiple of this.
const PAGE_BYTES: usize = 4096;

/// One copy (see the module's documentation).
pub struct Pipeline<'a, D: Dma> {
    threads: &'a CopyThreads,
    dma: &'a D,
    share: Share<'a>,
    transfer: Arc<Transfer>,
    pages: PageList,
    /// The device address of the copy's first byte.
    device: CUdeviceptr,
    parallel: bool,
    piece_bytes: usize,
    /// The part that has not been started.
    next: Cursor,
    begun: u64,
    /// Buffers that are unused at the moment.
    free: Vec<Buffer>,
    /// The number of pieces that the threads have.
    with_threads: usize,
    /// The pieces that the threads have completed.
    done: VecDeque<(Piece, Buffer)>,
    /// Pieces that the GPU copies, in its order.
    on_link: VecDeque<(Piece, Buffer)>,
}

impl<'a, D: Dma> Pipeline<'a, D> {
    /// Returns a copy of all of `pages`, in the context named `context`, which is current. The range at `device`
    /// belongs to the session.
    pub fn new(
        engine: &'a Engine,
        context: u64,
        dma: &'a D,
        pages: &PageList,
        direction: Direction,
        device: CUdeviceptr,
    ) -> Self {
        let threads = engine.threads.limit();
        let parallel = threads > 1 && pages.bytes() >= PARALLEL_BYTES;
        let (buffers, piece_bytes) = if parallel {
            let even = usize::try_from(pages.bytes()).unwrap_or(usize::MAX) / (2 * threads);
            // Each thread has a current piece and a next one, and some pieces are on the link.
            (2 * threads + 4, even.clamp(MIN_PIECE, BUFFER_BYTES).next_multiple_of(PAGE_BYTES))
        } else {
            (2, BUFFER_BYTES)
        };
        Self {
            threads: &engine.threads,
            dma,
            share: engine.staging.share(context, buffers),
            transfer: Transfer::new(pages.clone(), direction),
            pages: pages.clone(),
            device,
            parallel,
            piece_bytes,
            next: Cursor::default(),
            begun: 0,
            free: Vec::new(),
            with_threads: 0,
            done: VecDeque::new(),
            on_link: VecDeque::new(),
        }
    }

    /// Copies from the pages to the device. Returns when the pages have been read; with `wait`, when the device has
    /// the bytes.
    pub fn gather(mut self, wait: bool) -> CuResult<()> {
        loop {
            self.collect(false);
            while let Some((piece, buffer)) = self.done.pop_front() {
                self.send(piece, buffer)?;
            }
            self.reclaim();
            if let Some((piece, buffer)) = self.begin()? {
                self.copy(piece, buffer);
            } else if self.with_threads > 0 {
                self.collect(true);
            } else if self.is_begun() && self.done.is_empty() {
                break;
            } else if self.done.is_empty() {
                let (_, buffer) = self.wait_for_link()?;
                self.free.push(buffer);
            }
        }
        if (wait || self.share.must_wait())
            && let Some((_, last)) = self.on_link.back_mut()
        {
            last.wait(self.dma)?;
        }
        Ok(())
    }

    /// Copies from the device to the pages. Returns when the pages have the bytes.
    pub fn scatter(mut self) -> CuResult<()> {
        loop {
            self.collect(false);
            self.free.extend(self.done.drain(..).map(|(_, buffer)| buffer));
            // As much as possible is put on the link before this waits.
            while let Some((piece, buffer)) = self.begin()? {
                self.fetch(piece, buffer)?;
            }
            if !self.on_link.is_empty() {
                let (piece, buffer) = self.wait_for_link()?;
                self.copy(piece, buffer);
            } else if self.with_threads > 0 {
                self.collect(true);
            } else if self.is_begun() && self.done.is_empty() {
                return Ok(());
            }
        }
    }

    fn is_begun(&self) -> bool {
        self.begun == self.pages.bytes()
    }

    /// Returns the next piece with a buffer for it, or `None` if there is no piece, or no buffer at the moment.
    fn begin(&mut self) -> CuResult<Option<(Piece, Buffer)>> {
        if self.is_begun() {
            return Ok(None);
        }
        let Some(buffer) = self.buffer()? else { return Ok(None) };
        let left = self.pages.bytes() - self.begun;
        let bytes = usize::try_from(left).map_or(self.piece_bytes, |left| left.min(self.piece_bytes));
        let piece = Piece { at: self.next, offset: self.begun, bytes };
        self.next = self.pages.advance(self.next, bytes);
        self.begun += bytes as u64;
        Ok(Some((piece, buffer)))
    }

    fn buffer(&mut self) -> CuResult<Option<Buffer>> {
        while let Some(buffer) = self.free.pop() {
            if !self.share.has_too_many() {
                return Ok(Some(buffer));
            }
            self.share.give_back(buffer);
        }
        self.share.take(self.dma)
    }

    /// Makes the threads copy a piece between its buffer and the pages.
    fn copy(&mut self, piece: Piece, buffer: Buffer) {
        if self.parallel {
            self.with_threads += 1;
            self.threads.submit(&self.transfer, piece, buffer);
        } else {
            self.transfer.copy(&piece, &buffer);
            self.done.push_back((piece, buffer));
        }
    }

    /// Takes the pieces that the threads have completed.
    fn collect(&mut self, wait: bool) {
        if self.with_threads > 0 {
            let done = if wait { self.transfer.wait_done() } else { self.transfer.take_done() };
            self.with_threads -= done.len();
            self.done.extend(done);
        }
    }

    fn send(&mut self, piece: Piece, buffer: Buffer) -> CuResult<()> {
        let at = self.device + piece.offset;
        // SAFETY: the buffer holds the piece and is marked below; whoever made the copy checked the range.
        let started = unsafe { self.dma.send(at, buffer.as_ptr(), piece.bytes) };
        self.link(piece, buffer, started)
    }

    fn fetch(&mut self, piece: Piece, buffer: Buffer) -> CuResult<()> {
        let at = self.device + piece.offset;
        // SAFETY: the buffer has room for the piece and is read only after the wait for its mark; whoever made the
        // copy checked the range.
        let started = unsafe { self.dma.fetch(buffer.as_ptr(), at, piece.bytes) };
        self.link(piece, buffer, started)
    }

    fn link(&mut self, piece: Piece, mut buffer: Buffer, started: CuResult<()>) -> CuResult<()> {
        if started.is_err() {
            self.free.push(buffer);
            return started;
        }
        match buffer.mark(self.dma) {
            Ok(()) => self.on_link.push_back((piece, buffer)),
            Err(error) => {
                self.share.abandon(buffer);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes back the buffers that the GPU no longer uses.
    fn reclaim(&mut self) {
        while let Some((_, buffer)) = self.on_link.front_mut()
            && buffer.is_free(self.dma)
            && let Some((_, buffer)) = self.on_link.pop_front()
        {
            self.free.push(buffer);
        }
    }

    /// Waits for the buffer that the GPU completes first, and takes it back.
    fn wait_for_link(&mut self) -> CuResult<(Piece, Buffer)> {
        if let Some((_, buffer)) = self.on_link.front_mut() {
            buffer.wait(self.dma)?;
        }
        // A copy may always have one buffer, so it has one on the link if it has no other.
        self.on_link.pop_front().ok_or(CudaError::OUT_OF_MEMORY)
    }
}

impl<D: Dma> Drop for Pipeline<'_, D> {
    /// Also after an error, the pages are no longer accessed, and every buffer is returned.
    fn drop(&mut self) {
        while self.with_threads > 0 {
            self.collect(true);
        }
        let held = self.done.drain(..).chain(self.on_link.drain(..)).map(|(_, buffer)| buffer);
        for buffer in self.free.drain(..).chain(held) {
            self.share.give_back(buffer);
        }
    }
}
