// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies between the guest process's memory and the GPU.
//!
//! Long contiguous pieces are handed to the driver as they lie; scattered pages are gathered in pinned buffers,
//! two of them, so that one is filled while the other is on the link.

use virtio_cuda_protocol::cuda::ContextId;
use vm_memory::VolatileSlice;

use super::bulk::{BulkIn, BulkOut};
use super::gpu::{CUdeviceptr, CUevent, CUstream, CuResult, EVENT_DISABLE_TIMING, STREAM_LEGACY};
use super::pages::{PageList, Slices};
use super::staging::{Buffer, STAGING_BYTES};
use super::state::SessionState;

/// Pieces from this length on are not gathered.
const DIRECT_BYTES: usize = 256 << 10;

/// Copies `bulk` to `dst` in stream order. Returns when the source may be reused. The range at `dst` must have
/// been checked.
pub fn to_device(
    session: &SessionState,
    context: ContextId,
    dst: CUdeviceptr,
    bulk: &BulkIn<'_>,
    stream: CUstream,
) -> CuResult<()> {
    match bulk {
        // SAFETY: the driver has taken pageable bytes when the call returns; the caller checked the range at `dst`.
        BulkIn::Inline(bytes) => unsafe {
            session.gpu.cuMemcpyHtoDAsync_v2(dst, bytes.as_ptr().cast(), bytes.len(), stream)
        },
        BulkIn::Pages(pages) => Copy::start(session, context, stream)?.gather(dst, pages),
    }
}

/// Copies from `src` to `bulk` in stream order. Returns when the bytes are there. The range at `src` must have
/// been checked for `bulk`'s room.
pub fn from_device(
    session: &SessionState,
    context: ContextId,
    src: CUdeviceptr,
    bulk: &mut BulkOut,
    stream: CUstream,
) -> CuResult<()> {
    match bulk {
        BulkOut::Inline { room, bytes } => {
            bytes.resize(*room, 0);
            let target = bytes.as_mut_ptr().cast();
            // SAFETY: `bytes` has that room and lives until the copy is complete, which the first call and the
            // synchronization see to; the caller checked `src`.
            unsafe {
                if stream == STREAM_LEGACY {
                    return session.gpu.cuMemcpyDtoH_v2(target, src, *room);
                }
                session.gpu.cuMemcpyDtoHAsync_v2(target, src, *room, stream)?;
            }
            session.gpu.cuStreamSynchronize(stream)
        }
        BulkOut::Pages(pages) => Copy::start(session, context, stream)?.scatter(src, pages),
    }
}

/// A copy through two pinned buffers.
struct Copy<'a> {
    session: &'a SessionState,
    context: ContextId,
    stream: CUstream,
    slots: [Slot; 2],
}

/// A pinned buffer and what is going on in it.
#[derive(Default)]
struct Slot {
    buffer: Option<Buffer>,
    event: Option<CUevent>,
    busy: bool,
}

impl<'a> Copy<'a> {
    fn start(session: &'a SessionState, context: ContextId, stream: CUstream) -> CuResult<Self> {
        Ok(Self { session, context, stream, slots: Default::default() })
    }

    /// Pages to device.
    fn gather(mut self, mut dst: CUdeviceptr, pages: &PageList) -> CuResult<()> {
        let mut slices = Peeked::new(pages);
        let mut turn = 0;
        while let Some(first) = slices.take(usize::MAX) {
            if first.len() >= DIRECT_BYTES {
                let guard = first.ptr_guard();
                // SAFETY: the slice is guest memory mapped in this process, held by `pages`; the driver has taken
                // pageable bytes when the call returns. The caller checked the range at `dst`.
                unsafe {
                    self.session.gpu.cuMemcpyHtoDAsync_v2(
                        dst,
                        guard.as_ptr().cast(),
                        first.len(),
                        self.stream,
                    )
                }?;
                dst += first.len() as u64;
                continue;
            }
            slices.put_back(first);
            let buffer = self.free_buffer(turn)?;
            let mut filled = 0;
            while let Some(slice) = slices.take_short(STAGING_BYTES - filled) {
                slice.copy_to(&mut buffer.bytes_mut()[filled..filled + slice.len()]);
                filled += slice.len();
            }
            let source = buffer.as_ptr();
            // SAFETY: the buffer holds `filled` bytes and is not reused before the event recorded next; the
            // caller checked the range at `dst`.
            unsafe { self.session.gpu.cuMemcpyHtoDAsync_v2(dst, source.cast(), filled, self.stream) }?;
            self.record(turn)?;
            dst += filled as u64;
            turn ^= 1;
        }
        self.finish()
    }

    /// Device to pages.
    fn scatter(mut self, mut src: CUdeviceptr, pages: &PageList) -> CuResult<()> {
        let total = pages.bytes();
        let mut target = pages.slices();
        let mut started = 0;
        let mut in_flight = [0usize; 2];
        let mut turn = 0;
        loop {
            // What this buffer got two rounds ago goes to the guest first.
            self.drain(turn, &mut in_flight[turn], &mut target)?;
            let bytes = STAGING_BYTES.min((total - started) as usize);
            if bytes == 0 {
                turn ^= 1;
                self.drain(turn, &mut in_flight[turn], &mut target)?;
                return self.finish();
            }
            let room = self.free_buffer(turn)?.as_ptr();
            // SAFETY: the buffer has STAGING_BYTES of room and is read only after the event recorded next; the
            // caller checked the range at `src`.
            unsafe { self.session.gpu.cuMemcpyDtoHAsync_v2(room.cast(), src, bytes, self.stream) }?;
            self.record(turn)?;
            in_flight[turn] = bytes;
            src += bytes as u64;
            started += bytes as u64;
            turn ^= 1;
        }
    }

    fn drain(&mut self, turn: usize, bytes: &mut usize, target: &mut Slices<'_>) -> CuResult<()> {
        if *bytes == 0 {
            return Ok(());
        }
        let buffer = self.free_buffer(turn)?;
        let mut done = 0;
        while let Some(slice) = target.next(*bytes - done) {
            slice.copy_from(&buffer.bytes_mut()[done..done + slice.len()]);
            done += slice.len();
        }
        *bytes = 0;
        Ok(())
    }

    /// The buffer of `turn`, once the GPU has finished with it.
    fn free_buffer(&mut self, turn: usize) -> CuResult<&mut Buffer> {
        let slot = &mut self.slots[turn];
        if let (true, Some(event)) = (slot.busy, slot.event) {
            self.session.gpu.cuEventSynchronize(event)?;
        }
        slot.busy = false;
        if slot.buffer.is_none() {
            slot.buffer = Some(self.session.staging.take(&self.session.gpu, self.context.0)?);
        }
        match &mut slot.buffer {
            Some(buffer) => Ok(buffer),
            None => Err(super::gpu::CudaError::OUT_OF_MEMORY),
        }
    }

    fn record(&mut self, turn: usize) -> CuResult<()> {
        let slot = &mut self.slots[turn];
        // Busy even if the event fails: the buffer is then not reused.
        slot.busy = true;
        let event = match slot.event {
            Some(event) => event,
            None => self.session.gpu.cuEventCreate(EVENT_DISABLE_TIMING)?.0,
        };
        slot.event = Some(event);
        self.session.gpu.cuEventRecordWithFlags(event, self.stream, 0)
    }

    fn finish(mut self) -> CuResult<()> {
        self.free_buffer_if_busy(0)?;
        self.free_buffer_if_busy(1)
    }

    fn free_buffer_if_busy(&mut self, turn: usize) -> CuResult<()> {
        if self.slots[turn].busy { self.free_buffer(turn).map(drop) } else { Ok(()) }
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            if let Some(event) = slot.event.take() {
                let _ = self.session.gpu.cuEventDestroy_v2(event);
            }
            // A buffer that the GPU may still use (after an error) is leaked: its context is poisoned anyway.
            if let Some(buffer) = slot.buffer.take().filter(|_| !slot.busy) {
                self.session.staging.give_back(&self.session.gpu, buffer);
            }
        }
    }
}

/// Slices of which the last one can be put back.
struct Peeked<'a> {
    slices: Slices<'a>,
    back: Option<VolatileSlice<'a>>,
}

impl<'a> Peeked<'a> {
    fn new(pages: &'a PageList) -> Self {
        Self { slices: pages.slices(), back: None }
    }
    fn put_back(&mut self, slice: VolatileSlice<'a>) {
        self.back = Some(slice);
    }
    fn take(&mut self, most: usize) -> Option<VolatileSlice<'a>> {
        let slice = match self.back.take() {
            Some(slice) => slice,
            None => return self.slices.next(most),
        };
        if slice.len() <= most {
            return Some(slice);
        }
        // Both halves exist: `most` is less than the length.
        let (now, later) = (slice.subslice(0, most).ok()?, slice.offset(most).ok()?);
        self.back = Some(later);
        (most > 0).then_some(now)
    }
    /// The next piece, unless it is one that is not gathered.
    fn take_short(&mut self, most: usize) -> Option<VolatileSlice<'a>> {
        let next = self.take(usize::MAX)?;
        let short = next.len() < DIRECT_BYTES;
        self.put_back(next);
        if short && most > 0 { self.take(most) } else { None }
    }
}
