// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream memory operations: streams that write a word, or wait until a word has a value.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use cuda_abi::CUstreamBatchMemOpParams;

use crate::driver::device::{self, CUdeviceptr};
use crate::driver::ffi::In;
use crate::driver::result::{CUresult, CuResult};

/// CUstreamBatchMemOpType
pub(super) const WAIT_32: u32 = 1;
pub(super) const WRITE_32: u32 = 2;
const FLUSH_REMOTE_WRITES: u32 = 3;
pub(super) const WAIT_64: u32 = 4;
pub(super) const WRITE_64: u32 = 5;
const BARRIER: u32 = 6;
/// CUstreamWaitValue_flags: GEQ, EQ, AND, NOR
const WAIT_KIND: u32 = 3;
const WAIT_FLUSH: u32 = 1 << 30;
/// The maximum number of operations of one call, according to the manual.
const MAX_OPERATIONS: u32 = 256;
/// The pause of a waiting stream between two reads of the value.
const PAUSE: Duration = Duration::from_micros(50);

/// An operation on a word.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MemOp(CUstreamBatchMemOpParams);

impl Deref for MemOp {
    type Target = CUstreamBatchMemOpParams;

    fn deref(&self) -> &CUstreamBatchMemOpParams {
        &self.0
    }
}

impl MemOp {
    pub(super) fn new(operation: u32, address: CUdeviceptr, value: u64, flags: u32) -> MemOp {
        MemOp(CUstreamBatchMemOpParams { operation, address, value, flags, ..CUstreamBatchMemOpParams::ZERO })
    }

    /// Returns the bytes of the word, or 0 for operations without one.
    fn bytes(&self) -> u64 {
        match self.operation {
            WAIT_32 | WRITE_32 => 4,
            WAIT_64 | WRITE_64 => 8,
            _ => 0,
        }
    }

    pub(super) fn check(&self) -> CuResult<()> {
        let flags = match self.operation {
            WAIT_32 | WAIT_64 if self.flags & !WAIT_KIND == WAIT_FLUSH => {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            WAIT_32 | WAIT_64 => WAIT_KIND,
            // A write without a barrier is refused.
            WRITE_32 | WRITE_64 => 0,
            // No write is ever delayed.
            BARRIER => return Ok(()),
            FLUSH_REMOTE_WRITES => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        // Memory of pools is refused.
        let pooled = device::range_of(self.address)
            .and_then(|(device, range)| device.owner(range.base))
            .is_some_and(|owner| owner.pool.is_some());
        if pooled
            || self.flags & !flags != 0
            || !self.address.is_multiple_of(self.bytes())
            || !self.is_valid()
        {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    fn is_valid(&self) -> bool {
        device::range_of(self.address).is_some_and(|(_, range)| range.holds(self.address, self.bytes()))
    }

    /// Returns the word, if its memory is valid.
    fn load(&self) -> CuResult<u64> {
        if !self.is_valid() {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        // SAFETY: the word is aligned (`check`) and lies in valid memory, which is mapped as long as nobody frees it.
        Ok(unsafe {
            match self.bytes() {
                4 => AtomicU32::from_ptr(self.address as *mut u32).load(Ordering::Acquire).into(),
                _ => AtomicU64::from_ptr(self.address as *mut u64).load(Ordering::Acquire),
            }
        })
    }

    fn store(&self) -> CuResult<()> {
        if !self.is_valid() {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        // SAFETY: the word is aligned (`check`) and lies in valid memory, which is mapped as long as nobody frees it.
        unsafe {
            match self.bytes() {
                4 => {
                    AtomicU32::from_ptr(self.address as *mut u32).store(self.value as u32, Ordering::Release)
                }
                _ => AtomicU64::from_ptr(self.address as *mut u64).store(self.value, Ordering::Release),
            }
        }
        Ok(())
    }

    fn is_met(&self, word: u64) -> bool {
        let wide = self.bytes() == 8;
        let value = if wide { self.value } else { self.value & u64::from(u32::MAX) };
        match self.flags & WAIT_KIND {
            // The difference as a signed number: counters may wrap around.
            0 if wide => word.wrapping_sub(value) as i64 >= 0,
            0 => (word as u32).wrapping_sub(value as u32) as i32 >= 0,
            1 => word == value,
            2 => word & value != 0,
            _ if wide => !(word | value) != 0,
            _ => !(word | value) as u32 != 0,
        }
    }
}

/// Reads and checks the operations of a call.
pub(crate) fn read(operations: In<MemOp>, count: u32, flags: u32) -> CuResult<Vec<MemOp>> {
    if flags != 0 || count > MAX_OPERATIONS {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let read = |index| {
        let operation = operations.at(index)?;
        operation.check().map(|()| operation)
    };
    (0..count as usize).map(read).collect()
}

/// Executes one operation.
pub(crate) fn run(operation: &MemOp) -> CuResult<()> {
    match operation.operation {
        WRITE_32 | WRITE_64 => operation.store(),
        WAIT_32 | WAIT_64 => {
            while !operation.is_met(operation.load()?) {
                thread::sleep(PAUSE);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
