// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of boxes of bytes between device memory and host memory: the part that all cuMemcpy* share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::attributes::MAX_PITCH;
use super::context::{self, Context};
use super::device;
use super::result::{CUresult, CuResult};
use super::stream::{self, CUstream};
use crate::memory::RangeKind;

/// Host bytes up to this many are taken along when an asynchronous copy is asked for, so that the caller need not wait.
const STAGED: u64 = 1 << 20;
/// Most bytes that may be on their way like that: a program that asks faster than it is served must wait.
const STAGED_TOTAL: u64 = 32 << 20;

static STAGED_NOW: AtomicU64 = AtomicU64::new(0);

/// Room for staged bytes.
struct Room(u64);

impl Room {
    fn reserve(bytes: u64) -> Option<Room> {
        if bytes > STAGED {
            return None;
        }
        let room = Room(bytes);
        let before = STAGED_NOW.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= STAGED_TOTAL).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        STAGED_NOW.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Device memory.
    Device,
    /// Managed or pinned memory: both sides reach it, at any time.
    Shared,
    /// Other host memory, which the caller promises to be there during the call.
    Pageable,
}

/// One side of a copy: rows of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) address: u64,
    pub(super) kind: Kind,
    /// From row to row, bytes.
    pub(super) pitch: u64,
    /// From slice to slice, bytes.
    pub(super) slice: u64,
}

/// Bytes in a row, rows, slices.
pub(super) type Extent = [u64; 3];

/// A checked copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    to: Side,
    from: Side,
    extent: Extent,
}

/// How a side's address was given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// As a host pointer.
    Host,
    /// As a device pointer.
    Device,
    /// As a unified address: what it is follows from its value.
    Unified,
}

impl Side {
    /// A side without rows.
    pub(super) fn linear(address: u64, given: Given) -> CuResult<Side> {
        Side::new(address, given, 0, 0)
    }

    /// Finds out what an address is.
    pub(super) fn new(address: u64, given: Given, pitch: u64, slice: u64) -> CuResult<Side> {
        let kind = match device::range_of(address) {
            Some((_, range)) if matches!(range.kind, RangeKind::Device | RangeKind::Heap) => Kind::Device,
            Some(_) => Kind::Shared,
            None if given == Given::Device || device::reserved(address) => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            None => Kind::Pageable,
        };
        Ok(Side { address, kind, pitch, slice })
    }

    /// Checks that all bytes of a box lie inside the valid range around its first one.
    fn check(&self, extent: Extent) -> CuResult<()> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let rows = (extent[1] - 1).checked_mul(self.pitch).ok_or(invalid)?;
        let slices = (extent[2] - 1).checked_mul(self.slice).ok_or(invalid)?;
        let bytes = rows.checked_add(slices).and_then(|sum| sum.checked_add(extent[0])).ok_or(invalid)?;
        if self.kind == Kind::Pageable {
            return if self.address == 0 || self.address.checked_add(bytes).is_none() {
                Err(invalid)
            } else {
                Ok(())
            };
        }
        let found = device::range_of(self.address).filter(|(_, range)| range.holds(self.address, bytes));
        found.map(|_| ()).ok_or(invalid)
    }
}

impl Transfer {
    /// Checks a copy; none when it has nothing to do.
    pub(super) fn new(to: Side, from: Side, extent: Extent) -> CuResult<Option<Transfer>> {
        if extent.contains(&0) {
            return Ok(None);
        }
        if extent[1] > 1 || extent[2] > 1 {
            let too_long =
                |side: &Side| extent[0] > side.pitch || side.kind == Kind::Device && side.pitch > MAX_PITCH;
            if too_long(&to) || too_long(&from) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        to.check(extent)?;
        from.check(extent)?;
        Ok(Some(Transfer { to, from, extent }))
    }

    fn involves(&self, kind: Kind) -> bool {
        self.to.kind == kind || self.from.kind == kind
    }

    fn bytes(&self) -> u64 {
        self.extent.iter().fold(1, |product, side| product.saturating_mul(*side))
    }

    /// Copies now.
    fn run(&self) -> CuResult<()> {
        // Again: the memory may have been freed since the copy was asked for.
        let gone = |_| CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
        self.to.check(self.extent).map_err(gone)?;
        self.from.check(self.extent).map_err(gone)?;
        let [width, rows, slices] = self.extent;
        for slice in 0..slices {
            for row in 0..rows {
                let to = self.to.address + slice * self.to.slice + row * self.to.pitch;
                let from = self.from.address + slice * self.from.slice + row * self.from.pitch;
                // SAFETY: both were checked to lie in valid ranges; pageable memory is the caller's promise. Kernels may
                // use them at the same time: then the bytes are undefined, as on the device.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, width as usize) };
            }
        }
        Ok(())
    }

    /// A copy's source bytes, row by row, and what is left to do with them.
    fn staged(&self, room: Room) -> impl FnOnce(&Context) -> CuResult<()> + Send + 'static {
        let [width, rows, slices] = self.extent;
        let mut bytes = vec![0u8; self.bytes() as usize];
        let tight = Side {
            address: bytes.as_mut_ptr() as u64,
            kind: Kind::Pageable,
            pitch: width,
            slice: width * rows,
        };
        let taken = Transfer { to: tight, from: self.from, extent: [width, rows, slices] }.run();
        let target = self.to;
        let extent = self.extent;
        move |_| {
            let _room = room;
            taken?;
            let from = Side { address: bytes.as_ptr() as u64, ..tight };
            Transfer { to: target, from, extent }.run()
        }
    }
}

/// Copies in the default stream. Returns when the bytes are where they belong, except between device addresses.
pub(super) fn copy_now(copy: Option<Transfer>) -> CuResult<()> {
    let (context, stream) = stream::place_work(CUstream::NULL)?;
    let Some(copy) = copy else { return Ok(()) };
    if copy.to.kind == Kind::Device && copy.from.kind == Kind::Device {
        context.submit_work(&stream, move |_| copy.run());
        return Ok(());
    }
    context.run(&stream, move |_| copy.run())
}

/// Copies at its place in a stream. Waits for it only when pageable memory demands that.
pub(super) fn copy_async(copy: Option<Transfer>, stream: CUstream) -> CuResult<()> {
    let (context, stream) = stream::place_work(stream)?;
    let Some(copy) = copy else { return Ok(()) };
    if !copy.involves(Kind::Pageable) {
        context.submit_work(&stream, move |_| copy.run());
        return Ok(());
    }
    let room = if copy.to.kind == Kind::Pageable { None } else { Room::reserve(copy.bytes()) };
    match room {
        Some(room) => context.submit_work(&stream, copy.staged(room)),
        None => return context.run(&stream, move |_| copy.run()),
    };
    Ok(())
}

/// Fills rows of device memory with a pattern, `asynchronous` or, in the default stream, as cuMemset does.
pub(super) fn fill(
    to: u64,
    pitch: u64,
    pattern: Pattern,
    extent: [u64; 2],
    stream: Option<CUstream>,
) -> CuResult<()> {
    let (context, place) = stream::place_work(stream.unwrap_or(CUstream::NULL))?;
    let [count, rows] = extent;
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let width = count.checked_mul(pattern.bytes as u64).ok_or(invalid)?;
    if !to.is_multiple_of(pattern.bytes as u64)
        || rows > 1 && (!pitch.is_multiple_of(pattern.bytes as u64) || width > pitch)
    {
        return Err(invalid);
    }
    if count == 0 || rows == 0 {
        return Ok(());
    }
    let side = Side::new(to, Given::Device, pitch, 0)?;
    side.check([width, rows, 1])?;
    let job = move |_: &Context| {
        side.check([width, rows, 1]).map_err(|_| CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)?;
        let (device, _) = device::range_of(to).ok_or(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)?;
        let filled =
            (0..rows).try_for_each(|row| device.memory.fill(to + row * pitch, pattern.as_bytes(), count));
        filled.map_err(|_| CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
    };
    if stream.is_none() && side.kind == Kind::Shared {
        return context.run(&place, job);
    }
    context.submit_work(&place, job);
    Ok(())
}

/// What [`fill`] repeats: 1, 2 or 4 bytes.
#[derive(Clone, Copy)]
pub(super) struct Pattern {
    value: [u8; 4],
    bytes: usize,
}

impl Pattern {
    pub(super) fn new(value: u32, bytes: usize) -> Pattern {
        Pattern { value: value.to_le_bytes(), bytes }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.value[..self.bytes]
    }
}

/// The context that a peer copy names, which must exist.
pub(super) fn peer(handle: context::CUcontext) -> CuResult<Arc<Context>> {
    context::find_or_current(handle)?.checked()
}
