// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checked access from the host side: copies and fills.

use super::{Memory, OutOfRange};

impl Memory {
    /// Checks that `bytes` bytes at `ptr` lie inside one valid range and returns them as a host pointer. Zero bytes are
    /// always fine. The pointer is good until the range is freed or removed.
    pub fn check(&self, ptr: u64, bytes: u64) -> Result<*mut u8, OutOfRange> {
        if bytes > 0 && !self.range_of(ptr).is_some_and(|range| range.holds(ptr, bytes)) {
            return Err(OutOfRange { address: ptr, bytes });
        }
        if bytes > 0 {
            self.mark_initialised(ptr, bytes);
        }
        Ok(ptr as *mut u8)
    }

    /// Copies device memory at `ptr` to `bytes`.
    pub fn read(&self, ptr: u64, bytes: &mut [u8]) -> Result<(), OutOfRange> {
        let from = self.check(ptr, bytes.len() as u64)?;
        // SAFETY: `from` was checked; `copy` allows that `bytes` itself is a registered host range. Kernels may write
        // there at the same time: then the bytes are undefined, as on the device.
        unsafe { std::ptr::copy(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies `bytes` to device memory at `ptr`.
    pub fn write(&self, ptr: u64, bytes: &[u8]) -> Result<(), OutOfRange> {
        let to = self.check(ptr, bytes.len() as u64)?;
        // SAFETY: `to` was checked; `copy` allows that `bytes` itself is a registered host range. Kernels may use the
        // memory at the same time: then the bytes are undefined, as on the device.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Copies `bytes` bytes inside device memory; the ranges may overlap.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), OutOfRange> {
        let target = self.check(to, bytes)?;
        let source = self.check(from, bytes)?;
        // SAFETY: both were checked.
        unsafe { std::ptr::copy(source, target, bytes as usize) };
        Ok(())
    }

    /// Writes `pattern` (1, 2 or 4 bytes for cuMemsetD8/D16/D32) `count` times from `ptr` on.
    pub fn fill(&self, ptr: u64, pattern: &[u8], count: u64) -> Result<(), OutOfRange> {
        let out_of_range = OutOfRange { address: ptr, bytes: u64::MAX };
        let bytes = count.checked_mul(pattern.len() as u64).ok_or(out_of_range)?;
        let to = self.check(ptr, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        if pattern.iter().all(|byte| *byte == pattern[0]) {
            // SAFETY: `to` was checked for `bytes`.
            unsafe { std::ptr::write_bytes(to, pattern[0], bytes as usize) };
            return Ok(());
        }
        for index in 0..count as usize {
            // SAFETY: `to` was checked for all repetitions.
            unsafe { std::ptr::copy(pattern.as_ptr(), to.add(index * pattern.len()), pattern.len()) };
        }
        Ok(())
    }
}
