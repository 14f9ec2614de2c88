// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 2D copies between pitched memory and arrays.

use core::ffi::{c_uint, c_void};
use core::ptr;

use super::array;
use super::copy::{Direction, Order};
use crate::abi::driver::{CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_HOST, CUDA_MEMCPY2D, CopyEnd2D};
use crate::abi::{cudaArray_t, cudaStream_t};
use crate::error::{
    Result, cudaErrorInvalidMemcpyDirection, cudaErrorInvalidPitchValue, cudaErrorInvalidResourceHandle,
    cudaErrorInvalidValue, cudaErrorMemoryAllocation,
};
use crate::memory::address;
use crate::{driver, state};

/// One end of a copy: the start of its rectangle.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Null when `array` is set.
    pub pointer: *mut c_void,
    pub array: cudaArray_t,
    /// `CU_MEMORYTYPE_*`.
    pub memory_type: c_uint,
    /// Bytes from one row to the next; ignored for an array.
    pub pitch: usize,
    /// Offset into the row, in bytes.
    pub x: usize,
    /// Offset in rows.
    pub y: usize,
}

/// An end of the copy of a rectangle.
enum End {
    /// Rows of memory from an address on, so many bytes apart.
    Rows(*const c_void, usize),
    /// An array, from a place on.
    Array(Area),
}

impl End {
    /// The area, in memory of a type according to the direction of the copy.
    ///
    /// Errors: the type is not that of arrays.
    fn area(self, memory_type: c_uint) -> Result<Area> {
        match self {
            Self::Rows(start, pitch) => Ok(Area::pitched(start, pitch, memory_type)),
            Self::Array(area) => array_side(memory_type).map(|()| area),
        }
    }

    /// Returns whether rows of so many bytes do not overlap.
    fn holds(&self, width: usize) -> bool {
        !matches!(self, Self::Rows(_, pitch) if width > *pitch)
    }
}

/// The size of a rectangle: bytes per row, and rows.
struct Size {
    width: usize,
    height: usize,
}

impl Area {
    /// Memory at a pointer.
    pub fn pitched(pointer: *const c_void, pitch: usize, memory_type: c_uint) -> Self {
        Self { pointer: pointer.cast_mut(), array: ptr::null_mut(), memory_type, pitch, x: 0, y: 0 }
    }

    /// One row of `size` bytes.
    pub fn bytes(pointer: *const c_void, size: usize, memory_type: c_uint) -> Self {
        Self::pitched(pointer, size, memory_type)
    }

    /// An array, from byte `x` of row `y` on.
    pub fn array(array: cudaArray_t, x: usize, y: usize) -> Self {
        Self { pointer: ptr::null_mut(), array, memory_type: CU_MEMORYTYPE_ARRAY, pitch: 0, x, y }
    }
}

api! {
    fn cudaMemcpy2D, cudaMemcpy2D_ptds(
        dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize, width: usize,
        height: usize, kind: c_uint,
    ) on stream {} => rectangle(End::Rows(dst, dst_pitch), End::Rows(src, src_pitch), Size { width, height }, kind, Order::Blocking(stream));

    fn cudaMemcpy2DAsync, cudaMemcpy2DAsync_ptsz(
        dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize, width: usize,
        height: usize, kind: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {} => rectangle(End::Rows(dst, dst_pitch), End::Rows(src, src_pitch), Size { width, height }, kind, Order::Queued(stream));

    fn cudaMemcpy2DToArray, cudaMemcpy2DToArray_ptds(
        dst: cudaArray_t, x: usize, y: usize, src: *const c_void, pitch: usize, width: usize,
        height: usize, kind: c_uint,
    ) on stream {} => rectangle(End::Array(Area::array(dst, x, y)), End::Rows(src, pitch), Size { width, height }, kind, Order::Blocking(stream));

    fn cudaMemcpy2DToArrayAsync, cudaMemcpy2DToArrayAsync_ptsz(
        dst: cudaArray_t, x: usize, y: usize, src: *const c_void, pitch: usize, width: usize,
        height: usize, kind: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {} => rectangle(End::Array(Area::array(dst, x, y)), End::Rows(src, pitch), Size { width, height }, kind, Order::Queued(stream));

    fn cudaMemcpy2DFromArray, cudaMemcpy2DFromArray_ptds(
        dst: *mut c_void, pitch: usize, src: cudaArray_t, x: usize, y: usize, width: usize,
        height: usize, kind: c_uint,
    ) on stream {} => rectangle(End::Rows(dst, pitch), End::Array(Area::array(src, x, y)), Size { width, height }, kind, Order::Blocking(stream));

    fn cudaMemcpy2DFromArrayAsync, cudaMemcpy2DFromArrayAsync_ptsz(
        dst: *mut c_void, pitch: usize, src: cudaArray_t, x: usize, y: usize, width: usize,
        height: usize, kind: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {} => rectangle(End::Rows(dst, pitch), End::Array(Area::array(src, x, y)), Size { width, height }, kind, Order::Queued(stream));

    fn cudaMemcpy2DArrayToArray, cudaMemcpy2DArrayToArray_ptds(
        dst: cudaArray_t, dst_x: usize, dst_y: usize, src: cudaArray_t, src_x: usize,
        src_y: usize,
        width: usize, height: usize, kind: c_uint,
    ) on stream {
        state::context()?;
        if dst.is_null() {
            return Err(cudaErrorInvalidValue);
        }
        array_side(Direction::of(kind)?.source())?;
        array_side(Direction::of(kind)?.destination())?;
        let (dst, src) = (Area::array(dst, dst_x, dst_y), Area::array(src, src_x, src_y));
    } => copy_area(dst, src, width, height, Order::Blocking(stream));

    fn cudaMemcpyToArray, cudaMemcpyToArray_ptds(
        dst: cudaArray_t, x: usize, y: usize, src: *const c_void, size: usize, kind: c_uint,
    ) on stream {} => runs_to_array(Area::array(dst, x, y), src, size, known(kind), Order::Blocking(stream));

    fn cudaMemcpyToArrayAsync, cudaMemcpyToArrayAsync_ptsz(
        dst: cudaArray_t, x: usize, y: usize, src: *const c_void, size: usize, kind: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {} => runs_to_array(Area::array(dst, x, y), src, size, known(kind), Order::Queued(stream));

    fn cudaMemcpyFromArray, cudaMemcpyFromArray_ptds(
        dst: *mut c_void, src: cudaArray_t, x: usize, y: usize, size: usize, kind: c_uint,
    ) on stream {} => runs_from_array(dst, Area::array(src, x, y), size, known(kind), Order::Blocking(stream));

    fn cudaMemcpyFromArrayAsync, cudaMemcpyFromArrayAsync_ptsz(
        dst: *mut c_void, src: cudaArray_t, x: usize, y: usize, size: usize, kind: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {} => runs_from_array(dst, Area::array(src, x, y), size, known(kind), Order::Queued(stream));

    fn cudaMemcpyArrayToArray, cudaMemcpyArrayToArray_ptds(
        dst: cudaArray_t, dst_x: usize, dst_y: usize, src: cudaArray_t, src_x: usize,
        src_y: usize,
        size: usize, kind: c_uint,
    ) on stream {
        state::context()?;
        array_side(Direction::of(kind)?.source())?;
        array_side(Direction::of(kind)?.destination())?;
        if size > MAX_RUN {
            return Err(cudaErrorMemoryAllocation);
        }
        let (dst_row, src_row) = (array::row_size(dst)?, array::row_size(src)?);
        let mut done = 0;
        while done < size {
            let (to, from) = (dst_x + done, src_x + done);
            let left = (dst_row - to % dst_row).min(src_row - from % src_row).min(size - done);
            let dst = Area::array(dst, to % dst_row, dst_y + to / dst_row);
            let src = Area::array(src, from % src_row, src_y + from / src_row);
            // SAFETY: the run lies in a row of both arrays, which the program promises to be live.
            unsafe { copy_area(dst, src, left, 1, Order::Blocking(stream)) }?;
            done += left;
        }
        Ok(())
    }
}

/// Maximum bytes of an array copy. NVIDIA's runtime fails with an out-of-memory error for longer ones.
const MAX_RUN: usize = 1 << 47;

/// The copy calls of CUDA 2 treat an unknown kind as `cudaMemcpyDefault`.
fn known(kind: c_uint) -> c_uint {
    const DEFAULT: c_uint = 4;
    kind.min(DEFAULT)
}

/// # Safety
/// The contract of [`copy_area`].
unsafe fn rectangle(dst: End, src: End, size: Size, kind: c_uint, order: Order) -> Result {
    state::context()?;
    let Size { width, height } = size;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let direction = Direction::of(kind)?;
    let fits = dst.holds(width) && src.holds(width);
    let (dst, src) = (dst.area(direction.destination())?, src.area(direction.source())?);
    // With one row the pitch is not used here; the driver may still refuse it.
    if height > 1 && !fits {
        return Err(cudaErrorInvalidPitchValue);
    }
    // SAFETY: both areas hold the rectangle by this function's contract.
    unsafe { copy_area(dst, src, width, height, order) }
}

/// # Safety
/// The contract of [`copy_area`].
unsafe fn runs_to_array(dst: Area, src: *const c_void, size: usize, kind: c_uint, order: Order) -> Result {
    state::context()?;
    let direction = Direction::of(kind)?;
    array_side(direction.destination())?;
    let row = row_inside(&dst, size)?;
    for run in runs(dst.x, dst.y, row, size) {
        let src = Area::pitched(src.wrapping_byte_add(run.offset), row, direction.source());
        // SAFETY: the linear memory has `size` bytes by this function's contract, and each run lies inside of them.
        unsafe { copy_area(Area { x: run.x, y: run.y, ..dst }, src, run.width, run.height, order) }?;
    }
    Ok(())
}

/// # Safety
/// The contract of [`copy_area`].
unsafe fn runs_from_array(dst: *mut c_void, src: Area, size: usize, kind: c_uint, order: Order) -> Result {
    state::context()?;
    let direction = Direction::of(kind)?;
    array_side(direction.source())?;
    let row = row_inside(&src, size)?;
    for run in runs(src.x, src.y, row, size) {
        let dst = Area::pitched(dst.wrapping_byte_add(run.offset), row, direction.destination());
        // SAFETY: the linear memory has `size` bytes by this function's contract, and each run lies inside of them.
        unsafe { copy_area(dst, Area { x: run.x, y: run.y, ..src }, run.width, run.height, order) }?;
    }
    Ok(())
}

/// Refuses a direction that declares an array to be in host memory.
fn array_side(memory_type: c_uint) -> Result {
    if memory_type == CU_MEMORYTYPE_HOST { Err(cudaErrorInvalidMemcpyDirection) } else { Ok(()) }
}

/// Returns the bytes per row of the area's array. Fails if fewer than `size` bytes follow the area's start.
fn row_inside(area: &Area, size: usize) -> Result<usize> {
    let row = array::row_size(area.array)?;
    let first = area.y.checked_mul(row).and_then(|bytes| bytes.checked_add(area.x));
    let end = first.and_then(|first| first.checked_add(size));
    let whole = array::rows(area.array)?.checked_mul(row);
    if end.is_some() && end <= whole { Ok(row) } else { Err(cudaErrorInvalidValue) }
}

/// A rectangle of an array that holds consecutive bytes of a linear copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    /// Offset of the run's bytes in the linear memory.
    offset: usize,
}

/// Splits `size` bytes from byte `x` of row `y` into the remainder of a row, whole rows, and a partial row.
fn runs(x: usize, y: usize, row: usize, size: usize) -> impl Iterator<Item = Run> {
    let head = if x == 0 { 0 } else { size.min(row.saturating_sub(x)) };
    let whole = (size - head) / row;
    let tail = (size - head) % row;
    let below = y + usize::from(head > 0);
    [
        Run { x, y, width: head, height: 1, offset: 0 },
        Run { x: 0, y: below, width: row, height: whole, offset: head },
        Run { x: 0, y: below + whole, width: tail, height: 1, offset: head + whole * row },
    ]
    .into_iter()
    .filter(|run| run.width > 0 && run.height > 0)
}

/// Copies a rectangle of `width` bytes by `height` rows. Needs a context.
///
/// # Safety
/// Both areas hold the rectangle, until the copy is done.
pub unsafe fn copy_area(dst: Area, src: Area, width: usize, height: usize, order: Order) -> Result {
    if [&dst, &src].iter().any(|area| area.memory_type == CU_MEMORYTYPE_ARRAY && area.array.is_null()) {
        return Err(cudaErrorInvalidResourceHandle);
    }
    let end = |area: Area| CopyEnd2D {
        x: area.x,
        y: area.y,
        memory_type: area.memory_type,
        pad: 0,
        host: address(area.pointer),
        device: address(area.pointer),
        array: address(area.array),
        pitch: area.pitch,
    };
    let parameters = CUDA_MEMCPY2D { src: end(src), dst: end(dst), width, height };
    match order.queue() {
        // SAFETY: both areas hold the rectangle by this function's contract.
        None => unsafe { driver::cuMemcpy2DUnaligned_v2(&parameters) },
        Some(stream) => {
            // SAFETY: both areas hold the rectangle until the copy is done, by this function's contract.
            unsafe { driver::cuMemcpy2DAsync_v2(&parameters, stream) }?;
            order.finish()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(x: usize, y: usize, row: usize, size: usize) -> Vec<Run> {
        runs(x, y, row, size).collect()
    }

    #[test]
    fn a_linear_copy_wraps_at_the_end_of_rows() {
        let head = Run { x: 64, y: 1, width: 192, height: 1, offset: 0 };
        let rows = Run { x: 0, y: 2, width: 256, height: 1, offset: 192 };
        let tail = Run { x: 0, y: 3, width: 252, height: 1, offset: 448 };
        assert_eq!(all(64, 1, 256, 700), [head, rows, tail]);
        assert_eq!(all(0, 0, 256, 512), [Run { x: 0, y: 0, width: 256, height: 2, offset: 0 }]);
        assert_eq!(all(10, 0, 256, 20), [Run { x: 10, y: 0, width: 20, height: 1, offset: 0 }]);
        assert_eq!(all(0, 5, 256, 0), []);
    }

    #[test]
    fn runs_cover_every_byte_once() {
        for x in [0, 1, 7, 15] {
            for size in 0..100 {
                let mut next = 0;
                for run in all(x, 3, 16, size) {
                    assert_eq!((run.offset, (run.y - 3) * 16 + run.x), (next, x + next));
                    next += run.width * run.height;
                }
                assert_eq!(next, size);
            }
        }
    }
}
