// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pools whose memory other processes can map: a memory file that is divided into allocations.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::device::{CUdeviceptr, Device};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::vmm::spare;
use crate::memory::RangeKind;

/// The size of the file in bytes. Only allocated parts take memory.
const SPACE: u64 = 1 << 38;
/// Allocations are whole pages.
const PAGE: u64 = 4096;
/// The first word of the data of an exported pointer.
const MAGIC: u64 = u64::from_le_bytes(*b"emupool\0");

/// The contents of a CUmemPoolPtrExportData.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PointerData {
    magic: u64,
    /// The number of the pool's file.
    file: u64,
    offset: u64,
    bytes: u64,
    reserved: [u64; 4],
}

const _: () = assert!(size_of::<PointerData>() == size_of::<cuda_abi::CUmemPoolPtrExportData>());

/// The position of an allocation in the file.
#[derive(Clone, Copy)]
struct Piece {
    offset: u64,
    bytes: u64,
}

impl Piece {
    fn pages(self) -> u64 {
        self.bytes.next_multiple_of(PAGE)
    }
}

/// The memory of a pool.
pub(crate) struct SharedPool {
    file: OwnedFd,
    /// True if another process created the pool: no allocations are made from it here.
    imported: bool,
    /// The allocations by address.
    pieces: Mutex<BTreeMap<CUdeviceptr, Piece>>,
}

impl SharedPool {
    /// Creates an empty pool.
    pub(crate) fn new() -> CuResult<SharedPool> {
        // SAFETY: a name that ends with NUL; the result is checked.
        let file = unsafe { libc::memfd_create(c"cuda-emulator-pool".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM);
        }
        // SAFETY: a new descriptor, which nobody else owns.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: only changes the new file's length.
        if unsafe { libc::ftruncate(file.as_raw_fd(), SPACE as libc::off_t) } != 0 {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        Ok(SharedPool { file, imported: false, pieces: Mutex::default() })
    }

    /// Returns the pool of a descriptor, which the caller keeps.
    pub(crate) fn import(descriptor: i32) -> CuResult<SharedPool> {
        // SAFETY: duplicating checks the descriptor.
        let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: a new descriptor, which nobody else owns.
        let file = unsafe { OwnedFd::from_raw_fd(copy) };
        // SAFETY: asks for the seals of a file; anything but a memory file refuses.
        let is_memory = unsafe { libc::fcntl(copy, libc::F_GET_SEALS) } >= 0;
        let pool = SharedPool { file, imported: true, pieces: Mutex::default() };
        let right = is_memory && pool.status()?.st_size as u64 == SPACE;
        if right { Ok(pool) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
    }

    /// Returns a descriptor for another process. The caller owns it.
    pub(crate) fn export(&self) -> CuResult<i32> {
        if self.imported {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: duplicates a descriptor of this value.
        let copy = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 { Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM) } else { Ok(copy) }
    }

    fn status(&self) -> CuResult<libc::stat> {
        // SAFETY: all bits of a `stat` may be 0.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open, the place a local.
        let failed = unsafe { libc::fstat(self.file.as_raw_fd(), &raw mut status) } != 0;
        if failed { Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM) } else { Ok(status) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CUdeviceptr, Piece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates.
    pub(crate) fn allocate(&self, device: &Device, bytes: u64) -> CuResult<CUdeviceptr> {
        if self.imported {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut pieces = self.lock();
        let mut used: Vec<_> = pieces.values().copied().collect();
        used.sort_unstable_by_key(|piece| piece.offset);
        let mut offset = 0;
        for piece in used {
            if piece.offset.saturating_sub(offset) >= bytes {
                break;
            }
            offset = piece.offset + piece.pages();
        }
        let ptr = self.map(device, Piece { offset, bytes })?;
        pieces.insert(ptr, Piece { offset, bytes });
        Ok(ptr)
    }

    fn map(&self, device: &Device, piece: Piece) -> CuResult<CUdeviceptr> {
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        if piece.bytes > SPACE || piece.offset > SPACE - piece.bytes {
            return Err(out_of_memory);
        }
        let pages = piece.pages();
        device.memory.charge(pages).map_err(|_| out_of_memory)?;
        let ptr = spare::reserve(pages, PAGE, 0).inspect_err(|_| device.memory.discharge(pages))?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        let (file, offset) = (self.file.as_raw_fd(), piece.offset as libc::off_t);
        let place = ptr as *mut c_void;
        // SAFETY: a place that is this call's alone; the range lies inside the file, which never shrinks.
        let place = unsafe { libc::mmap(place, pages as usize, protection, flags, file, offset) };
        if place == libc::MAP_FAILED || !device.memory.add_host_range(ptr, piece.bytes, RangeKind::Device) {
            // SAFETY: the place is no valid range, and still this call's alone.
            unsafe { spare::give_back(ptr, pages) };
            device.memory.discharge(pages);
            return Err(out_of_memory);
        }
        Ok(ptr)
    }

    /// Frees memory of [`Self::allocate`] or [`Self::import_pointer`] that is no longer used. Returns its size.
    pub(crate) fn free(&self, device: &Device, ptr: CUdeviceptr) -> CuResult<u64> {
        let mut pieces = self.lock();
        let piece = pieces.remove(&ptr).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        device.memory.remove_host_range(ptr);
        // SAFETY: a mapping of this value, which is no valid range any more.
        unsafe { spare::give_back(ptr, piece.pages()) };
        device.memory.discharge(piece.pages());
        if !self.imported {
            let (offset, bytes) = (piece.offset as libc::off_t, piece.pages() as libc::off_t);
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: changes a part of this value's file that is not allocated.
            unsafe { libc::fallocate(self.file.as_raw_fd(), hole, offset, bytes) };
        }
        Ok(piece.bytes)
    }

    /// Returns the data by which another process finds an allocation.
    pub(crate) fn export_pointer(&self, ptr: CUdeviceptr) -> CuResult<PointerData> {
        let piece = self.lock().get(&ptr).copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let file = self.status()?.st_ino;
        Ok(PointerData { magic: MAGIC, file, offset: piece.offset, bytes: piece.bytes, reserved: [0; 4] })
    }

    /// Maps an allocation of another process.
    pub(crate) fn import_pointer(&self, device: &Device, data: PointerData) -> CuResult<(CUdeviceptr, u64)> {
        let known = data.magic == MAGIC && data.file == self.status()?.st_ino && data.bytes > 0;
        if !known || !self.imported || !data.offset.is_multiple_of(PAGE) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let piece = Piece { offset: data.offset, bytes: data.bytes };
        let mut pieces = self.lock();
        let ptr = self.map(device, piece)?;
        // The other process has written it.
        device.memory.mark_initialised(ptr, piece.bytes);
        pieces.insert(ptr, piece);
        Ok((ptr, piece.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::device;

    #[test]
    fn a_late_write_to_freed_memory_reaches_nobody() {
        // SAFETY: follows no pointer.
        assert_eq!(unsafe { device::cuInit(0) }, CUresult::CUDA_SUCCESS);
        let device = device::device(0).unwrap();
        let pool = SharedPool::new().unwrap();
        // A size that no other code in this process allocates.
        let bytes = 0x123_4000;
        let first = pool.allocate(device, bytes).unwrap();
        let late = first as *mut u8;
        // SAFETY: an allocation of this test's.
        unsafe { late.write_volatile(1) };
        assert_eq!(pool.free(device, first), Ok(bytes));
        // SAFETY: freed memory stays mapped, and only another allocation may get it: there is none.
        unsafe { late.write_volatile(2) };
        let second = pool.allocate(device, bytes).unwrap();
        assert_eq!(second, first, "the place is used again");
        // SAFETY: an allocation of this test's.
        assert_eq!(unsafe { late.read_volatile() }, 0, "a hole of the file");
        assert_eq!(pool.free(device, second), Ok(bytes));
    }
}
