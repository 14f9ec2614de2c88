// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of boxes of bytes between device memory and host memory: the part that all cuMemcpy* share.

pub(super) mod api;
mod batch;
pub(super) mod submit;

use std::sync::Arc;

use super::context::Context;
use super::device;
use super::device::attributes::MAX_PITCH;
use super::pool::home as pool_home;
use super::result::{CUresult, CuResult};
use super::{trace, vmm};
use crate::checks::checks;
use crate::memory::RangeKind;
use crate::texture::Array;

/// Linux leaves the addresses below unmapped, so that null pointers with an offset are noticed.
const LOWEST_ADDRESS: u64 = 64 << 10;
/// The kind of memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Device memory, arrays included.
    Device,
    /// Managed or pinned memory, which both sides can access at any time.
    Shared,
    /// Pageable host memory. The caller guarantees that it exists during the call.
    Pageable,
}

/// One side of a copy: rows of bytes.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) address: u64,
    pub(super) kind: Kind,
    /// The distance between rows, in bytes.
    pub(super) pitch: u64,
    /// The distance between slices, in bytes.
    pub(super) slice: u64,
    /// The array that contains it, and the position: byte in the row, row, slice.
    array: Option<(Arc<Array>, [u64; 3])>,
}

/// Bytes in a row, rows, slices.
pub(super) type Extent = [u64; 3];

/// A checked copy.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) to: Side,
    pub(super) from: Side,
    pub(super) extent: Extent,
}

/// The form in which the program gave a side's address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// A host pointer.
    Host,
    /// A device pointer.
    Device,
    /// A unified address: its value determines the kind of memory.
    Unified,
}

impl Side {
    /// Returns a side without rows.
    pub(super) fn linear(address: u64, given: Given) -> CuResult<Side> {
        let of_host =
            || device::range_of(address).is_some_and(|(_, range)| range.kind == RangeKind::HostPooled);
        if given == Given::Device && of_host() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Side::new(address, given, 0, 0)
    }

    /// Determines the kind of an address.
    pub(super) fn new(address: u64, given: Given, pitch: u64, slice: u64) -> CuResult<Side> {
        let kind = match device::range_of(address) {
            Some((_, range))
                if matches!(
                    range.kind,
                    RangeKind::Device | RangeKind::Heap | RangeKind::Mapped | RangeKind::External
                ) =>
            {
                Kind::Device
            }
            Some(_) => Kind::Shared,
            None if given == Given::Device || device::reserved(address) || vmm::is_reserved(address) => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            None => Kind::Pageable,
        };
        Ok(Side { address, kind, pitch, slice, array: None })
    }

    /// Returns a position in an array: byte in the row, row, slice.
    pub(super) fn in_array(array: Arc<Array>, at: [u64; 3]) -> CuResult<Side> {
        let level = array.level;
        let terms = [at[0], at[1].saturating_mul(level.pitch), at[2].saturating_mul(level.slice)];
        let address = terms.into_iter().try_fold(level.base, u64::checked_add);
        let address = address.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let (pitch, slice) = (level.pitch, level.slice);
        Ok(Side { address, kind: Kind::Device, pitch, slice, array: Some((array, at)) })
    }

    /// Returns the array that contains it, and the position: byte in the row, row, slice.
    pub(super) fn array(&self) -> Option<&(Arc<Array>, [u64; 3])> {
        self.array.as_ref()
    }

    /// Returns the kind of memory, as profilers define it.
    fn memory(&self) -> u8 {
        match (self.array(), self.kind) {
            (Some(_), _) => trace::ARRAY,
            (None, Kind::Device) => trace::DEVICE,
            (None, Kind::Shared) => trace::PINNED,
            (None, Kind::Pageable) => trace::PAGEABLE,
        }
    }

    /// Returns whether its bytes are more scattered than rows and slices.
    fn is_scattered(&self) -> bool {
        self.array.as_ref().is_some_and(|(array, _)| !array.is_direct())
    }

    /// Returns the address of a byte of the box, if it has memory, and the number of bytes of its row that follow
    /// there.
    fn run(&self, [x, row, slice]: [u64; 3]) -> CuResult<(Option<u64>, u64)> {
        match &self.array {
            Some((array, _)) if array.is_deferred_unmapped() => Err(CUresult::CUDA_ERROR_LAUNCH_FAILED),
            Some((array, at)) => Ok(array.bytes_at([at[0] + x, at[1] + row, at[2] + slice])),
            None => Ok((Some(self.address + slice * self.slice + row * self.pitch + x), u64::MAX)),
        }
    }

    /// Checks that all bytes of a box lie inside the valid range around its first one.
    fn check(&self, extent: Extent) -> CuResult<()> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        if let Some((array, at)) = &self.array {
            let whole = array.bounds();
            let inside =
                (0..3).all(|axis| at[axis].checked_add(extent[axis]).is_some_and(|end| end <= whole[axis]));
            let unit = u64::from(array.unit().bytes);
            let whole_blocks =
                array.compression.is_none() || at[0].is_multiple_of(unit) && extent[0].is_multiple_of(unit);
            return if inside && whole_blocks { Ok(()) } else { Err(invalid) };
        }
        let rows = (extent[1] - 1).checked_mul(self.pitch).ok_or(invalid)?;
        let slices = (extent[2] - 1).checked_mul(self.slice).ok_or(invalid)?;
        let bytes = rows.checked_add(slices).and_then(|sum| sum.checked_add(extent[0])).ok_or(invalid)?;
        if self.kind == Kind::Pageable {
            return if self.address < LOWEST_ADDRESS || self.address.checked_add(bytes).is_none() {
                Err(invalid)
            } else {
                Ok(())
            };
        }
        let found = device::range_of(self.address).filter(|(_, range)| range.holds(self.address, bytes));
        found.map(|_| ()).ok_or(invalid)
    }

    /// Counts the bytes that a copy writes as written (`CUDA_EMULATOR_CHECK=init`).
    fn mark_written(&self, [width, rows, slices]: Extent) {
        if !checks().init || self.array.is_some() || self.kind == Kind::Pageable {
            return;
        }
        let Some((device, _)) = device::range_of(self.address) else { return };
        for (slice, row) in (0..slices).flat_map(|slice| (0..rows).map(move |row| (slice, row))) {
            device.memory.mark_initialised(self.address + slice * self.slice + row * self.pitch, width);
        }
    }
}

impl Transfer {
    /// Checks a copy. Returns `None` when there is nothing to copy.
    pub(super) fn new(to: Side, from: Side, extent: Extent) -> CuResult<Option<Transfer>> {
        if extent.contains(&0) {
            return Ok(None);
        }
        if extent[1] > 1 || extent[2] > 1 {
            let too_long = |side: &Side| {
                side.array.is_none()
                    && (extent[0] > side.pitch || side.kind == Kind::Device && side.pitch > MAX_PITCH)
            };
            if too_long(&to) || too_long(&from) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        to.check(extent)?;
        from.check(extent)?;
        Ok(Some(Transfer { to, from, extent }))
    }

    /// Checks that the contexts of the target and of the source have access to what is mapped there. All other memory is reached from
    /// each context.
    pub(super) fn reached_by(self, contexts: [&Context; 2]) -> CuResult<Self> {
        for (side, context) in [&self.to, &self.from].into_iter().zip(contexts) {
            let range = device::range_of(side.address).filter(|_| side.array.is_none());
            let is_mapped = range.is_some_and(|(_, range)| range.kind == RangeKind::Mapped);
            if is_mapped && context.device.memory.range_of(side.address).is_none() {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(self)
    }

    fn involves(&self, kind: Kind) -> bool {
        self.to.kind == kind || self.from.kind == kind
    }

    fn bytes(&self) -> u64 {
        self.extent.iter().fold(1, |product, side| product.saturating_mul(*side))
    }

    /// Executes the copy now.
    pub(super) fn run(&self) -> CuResult<()> {
        self.run_for(self.from.memory())
    }

    /// Executes the copy now. Profilers see a source of that kind of memory.
    fn run_for(&self, source: u8) -> CuResult<()> {
        trace::copy(self.bytes(), [source, self.to.memory()], || self.copy())
    }

    fn copy(&self) -> CuResult<()> {
        // Checked again: the memory may have been freed since the call.
        let freed = |_| CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
        self.to.check(self.extent).map_err(freed)?;
        self.from.check(self.extent).map_err(freed)?;
        self.to.mark_written(self.extent);
        let [width, rows, slices] = self.extent;
        if self.to.is_scattered() || self.from.is_scattered() {
            return self.run_in_parts();
        }
        for slice in 0..slices {
            for row in 0..rows {
                let to = self.to.address + slice * self.to.slice + row * self.to.pitch;
                let from = self.from.address + slice * self.from.slice + row * self.from.pitch;
                // SAFETY: both were checked to lie in valid ranges; pageable memory is valid because CUDA demands it
                // of the program. Kernels may use them at the same time: then the bytes are undefined, as on the
                // device.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, width as usize) };
            }
        }
        Ok(())
    }

    /// Executes the copy now, where an array's bytes are in parts. Parts without memory are read as zeros, and not
    /// written.
    fn run_in_parts(&self) -> CuResult<()> {
        let [width, rows, slices] = self.extent;
        for (slice, row) in (0..slices).flat_map(|slice| (0..rows).map(move |row| (slice, row))) {
            let mut x = 0;
            while x < width {
                let (to, to_bytes) = self.to.run([x, row, slice])?;
                let (from, from_bytes) = self.from.run([x, row, slice])?;
                let bytes = to_bytes.min(from_bytes).min(width - x);
                match (to, from) {
                    // SAFETY: both were checked to lie in valid ranges, whose parts stay mapped. Kernels may use them
                    // at the same time: then the bytes are undefined, as on the device.
                    (Some(to), Some(from)) => unsafe {
                        std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize);
                    },
                    // SAFETY: the target was checked to lie in a valid range, whose parts stay mapped.
                    (Some(to), None) => unsafe { std::ptr::write_bytes(to as *mut u8, 0, bytes as usize) },
                    (None, _) => {}
                }
                x += bytes;
            }
        }
        Ok(())
    }
}

/// Rows of device memory and their fill pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fill {
    pub(super) to: u64,
    /// The distance between rows in bytes, meaningless for one row.
    pub(super) pitch: u64,
    pub(super) pattern: Pattern,
    /// Patterns in a row, rows.
    pub(super) extent: [u64; 2],
}

impl Fill {
    /// Checks the memory. Returns its kind, or `None` if there is nothing to fill.
    pub(super) fn check(&self) -> CuResult<Option<Kind>> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let [count, rows] = self.extent;
        let size = self.pattern.bytes as u64;
        let width = count.checked_mul(size).ok_or(invalid)?;
        if !self.to.is_multiple_of(size)
            || rows > 1 && (!self.pitch.is_multiple_of(size) || width > self.pitch)
        {
            return Err(invalid);
        }
        if count == 0 || rows == 0 {
            return Ok(None);
        }
        let side = Side::new(self.to, Given::Device, self.pitch, 0)?;
        side.check([width, rows, 1])?;
        let ordinal = device::current_or_first()?.ordinal;
        if pool_home::pool_of(self.to).is_some_and(|pool| {
            pool.home.range_kind() == RangeKind::HostPooled && !pool.is_reached_by(ordinal)
        }) {
            return Err(invalid);
        }
        Ok(Some(side.kind))
    }

    /// Executes the fill now.
    pub(super) fn run(&self) -> CuResult<()> {
        let bytes = self.extent.iter().fold(self.pattern.bytes as u64, |all, side| all.saturating_mul(*side));
        trace::fill(bytes, self.pattern.value, || self.fill())
    }

    fn fill(&self) -> CuResult<()> {
        // Checked again: the memory may have been freed since the call.
        let freed = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
        self.check().map_err(|_| freed)?;
        let (device, _) = device::range_of(self.to).ok_or(freed)?;
        let [count, rows] = self.extent;
        // Access of one device to mapped memory may end meanwhile, while another one keeps it.
        let fill = |row| {
            let to = self.to + row * self.pitch;
            let mut devices = std::iter::once(device).chain(device::all());
            devices.any(|device| device.memory.fill(to, self.pattern.as_bytes(), count).is_ok())
        };
        if (0..rows).all(fill) { Ok(()) } else { Err(freed) }
    }
}

/// The value that [`fill`] repeats: 1, 2 or 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) value: [u8; 4],
    /// The number of valid bytes.
    pub(super) bytes: usize,
}

impl Pattern {
    pub(super) fn new(value: u32, bytes: usize) -> Pattern {
        Pattern { value: value.to_le_bytes(), bytes }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.value[..self.bytes]
    }
}
