// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The `__managed__` variables ([`crate::memory::shadow`]) and the program's side of them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;

use crate::state::memory::claims::{Claims, LOWEST};
use crate::state::memory::window::PAGE_BYTES;

/// Bytes of a variable that are compared at once.
const COMPARED_BYTES: usize = 4096;

/// One variable.
#[derive(Debug)]
pub struct Shadow {
    /// Address in the program.
    pub host: u64,
    /// Address on the GPU.
    pub device: u64,
    /// The context in which it was loaded.
    pub context: u64,
    /// Contents when both sides were last equal.
    pub equal: Vec<u8>,
}

/// Bytes that the program has changed since both sides were equal.
#[derive(Debug)]
pub struct Newer {
    start: usize,
    /// Contents from the first to the last changed byte.
    bytes: Vec<u8>,
    /// True per changed byte; the others are the GPU's.
    is_changed: Vec<bool>,
}

/// All `__managed__` variables.
#[derive(Debug, Default)]
pub struct Shadows {
    pub list: Mutex<Vec<Shadow>>,
    /// Pages that shadows occupy at device addresses.
    pub pages: Mutex<BTreeSet<u64>>,
    /// Set once a variable exists: other programs then need not take the locks.
    pub any: AtomicBool,
    /// Set if the GPU may have changed a variable since the last fetch.
    pub stale: AtomicBool,
}

impl Shadow {
    /// Copies bytes of the program's side, from `start` on.
    ///
    /// Other threads of the program may write at the same time. This is the program's data race, as it is natively, and
    /// it only affects which bytes are read. No reference to this memory is made for that reason.
    pub fn read(&self, start: usize, room: &mut [u8]) {
        assert!(start + room.len() <= self.equal.len());
        // SAFETY: `place` mapped the memory, which is as long as `equal` and stays mapped as long as the shadow is in
        // the list; the room is this library's own.
        unsafe {
            let from = (self.host as *const u8).add(start);
            std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), room.len());
        }
    }

    /// Writes bytes of the program's side, from `start` on. As in [`Self::read`], other threads may access them.
    fn write(&self, start: usize, bytes: &[u8]) {
        assert!(start + bytes.len() <= self.equal.len());
        // SAFETY: `place` mapped the memory, which is as long as `equal` and stays mapped as long as the shadow is in
        // the list; the bytes are this library's own.
        unsafe {
            let to = (self.host as *mut u8).add(start);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Returns the program's changes, for [`Self::show`].
    pub fn newer(&self) -> Option<Newer> {
        let range = self.changed()?;
        let mut bytes = vec![0; range.len()];
        self.read(range.start, &mut bytes);
        let before = &self.equal[range.clone()];
        let is_changed = bytes.iter().zip(before).map(|(now, before)| now != before).collect();
        Some(Newer { start: range.start, bytes, is_changed })
    }

    /// Copies `equal` to the program's side, except for bytes that the program has changed itself.
    pub fn show(&self, newer: Option<Newer>) {
        let Some(Newer { start, mut bytes, is_changed }) = newer else { return self.write(0, &self.equal) };
        let end = start + bytes.len();
        for (index, byte) in bytes.iter_mut().enumerate().filter(|(index, _)| !is_changed[*index]) {
            *byte = self.equal[start + index];
        }
        self.write(0, &self.equal[..start]);
        self.write(start, &bytes);
        self.write(end, &self.equal[end..]);
    }

    /// Returns the range from the first to the last byte that the program has changed.
    pub fn changed(&self) -> Option<Range<usize>> {
        let mut room = [0; COMPARED_BYTES];
        let mut changed: Option<Range<usize>> = None;
        for (index, then) in self.equal.chunks(COMPARED_BYTES).enumerate() {
            let (start, now) = (index * COMPARED_BYTES, &mut room[..then.len()]);
            self.read(start, now);
            if now == then {
                continue;
            }
            let first = now.iter().zip(then).position(|(now, then)| now != then).unwrap_or(0);
            let last = now.iter().zip(then).rposition(|(now, then)| now != then).unwrap_or(first);
            changed = Some(changed.map_or(start + first, |earlier| earlier.start)..start + last + 1);
        }
        changed
    }
}

impl Shadows {
    pub fn list(&self) -> MutexGuard<'_, Vec<Shadow>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the variable at `host`. Its memory stays mapped: the program may still have its address.
    pub fn remove(&self, host: u64) {
        let mut list = self.list();
        list.retain(|shadow| shadow.host != host);
        self.any.store(!list.is_empty(), Ordering::Release);
    }

    /// Maps memory for a variable, at its device address if that is free in the program.
    ///
    /// Errors: `CUDA_ERROR_UNKNOWN` for an address that device memory cannot have; `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn place(&self, claims: &Claims, device: u64, bytes: u64) -> Result<u64, CudaError> {
        if device < LOWEST {
            return Err(CudaError::UNKNOWN);
        }
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let start = device / PAGE_BYTES * PAGE_BYTES;
        let end = device.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES));
        let end = end.ok_or(CudaError::OUT_OF_MEMORY)?;
        let mut same = true;
        for page in (start..end).step_by(PAGE_BYTES as usize) {
            // Variables of one module share pages.
            if !pages.contains(&page) {
                same &= map_page(claims, page);
                if same {
                    pages.insert(page);
                }
            }
        }
        if same {
            return Ok(device);
        }
        log::warn!(
            "A __managed__ variable cannot have its device address {device:#x} here: kernels must name it, not \
             be given its address"
        );
        let layout = std::alloc::Layout::from_size_align(bytes.max(1) as usize, 256);
        // SAFETY: the size is not 0. The memory is never freed: the program keeps the address.
        let at = layout.map(|layout| unsafe { std::alloc::alloc_zeroed(layout) });
        at.ok().filter(|at| !at.is_null()).map(|at| at as u64).ok_or(CudaError::OUT_OF_MEMORY)
    }
}

fn map_page(claims: &Claims, page: u64) -> bool {
    let ours = claims.owns(page, PAGE_BYTES);
    let fixed = if ours { libc::MAP_FIXED } else { libc::MAP_FIXED_NOREPLACE };
    // SAFETY: replaces nothing, or an inaccessible reservation of this library.
    let at = unsafe {
        libc::mmap(
            page as *mut _,
            PAGE_BYTES as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed,
            -1,
            0,
        )
    };
    if at != libc::MAP_FAILED && at as u64 != page {
        // SAFETY: mapped just above, elsewhere, by a kernel that took the address for a hint.
        unsafe { libc::munmap(at, PAGE_BYTES as usize) };
    }
    at as u64 == page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_found_from_the_first_to_the_last_byte() {
        let mut memory = vec![0u8; 2 * COMPARED_BYTES + 10];
        let place = memory.as_mut_ptr();
        let shadow = Shadow { host: place as u64, device: 0, context: 0, equal: memory.clone() };
        assert_eq!(shadow.changed(), None);
        // SAFETY: inside of the vector, which outlives the test and of which no reference is used meanwhile.
        let write = |at: usize| unsafe { place.add(at).write(1) };
        write(2 * COMPARED_BYTES + 9);
        assert_eq!(shadow.changed(), Some(2 * COMPARED_BYTES + 9..2 * COMPARED_BYTES + 10));
        write(COMPARED_BYTES - 1);
        assert_eq!(shadow.changed(), Some(COMPARED_BYTES - 1..2 * COMPARED_BYTES + 10));
        let mut byte = [0];
        shadow.read(COMPARED_BYTES - 1, &mut byte);
        assert_eq!(byte, [1]);
    }

    #[test]
    fn what_the_program_has_changed_stays() {
        let mut memory = vec![0_u8; 10];
        let place = memory.as_mut_ptr();
        let mut shadow = Shadow { host: place as u64, device: 0, context: 0, equal: memory.clone() };
        // SAFETY: inside of the vector, which outlives the test and of which no reference is used meanwhile.
        let write = |at: usize| unsafe { place.add(at).write(1) };
        write(3);
        write(6);
        let newer = shadow.newer();
        shadow.equal.fill(9);
        shadow.show(newer);
        let mut now = [0; 10];
        shadow.read(0, &mut now);
        assert_eq!(now, [9, 9, 9, 1, 9, 9, 1, 9, 9, 9]);
        shadow.equal.copy_from_slice(&now);
        shadow.equal[5] = 7;
        shadow.show(shadow.newer());
        shadow.read(0, &mut now);
        assert_eq!(now[5], 9, "still the program's: it differs from what both had");
        shadow.equal.copy_from_slice(&now);
        let none = shadow.newer();
        assert!(none.is_none());
        shadow.equal.fill(4);
        shadow.show(none);
        shadow.read(0, &mut now);
        assert_eq!(now, [4; 10]);
    }
}
