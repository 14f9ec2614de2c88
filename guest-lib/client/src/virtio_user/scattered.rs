// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory for benchmarks: pages of the memfd in random order, so that the lists that go to the device look
//! like those of a virtual machine, whose memory is contiguous in the process and scattered in the guest.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use virtio_cuda_protocol::transport::{MemEntry, PAGE_BYTES};

use super::memory::{RamRange, SharedRam};
use super::pages::map_shared;
use crate::ClientError;
use crate::transport::UserMemory;

const PAGE: usize = PAGE_BYTES as usize;
/// Linux' default of `vm.max_map_count`.
const USUAL_MAPPINGS: usize = 65_530;

/// One buffer.
#[derive(Debug)]
struct Area {
    memory: UserMemory,
    range: RamRange,
    /// Guest-physical address of each page.
    pages: Vec<u64>,
    /// Tags under which pages of it are kept.
    tags: Vec<u64>,
}

/// The buffers of a process.
#[derive(Debug, Default)]
pub struct Scattered(RwLock<Areas>);

#[derive(Debug, Default)]
struct Areas {
    used: Vec<Area>,
    /// Memory of freed buffers. As in a guest, the device already knows memory that is used again.
    spare: Vec<RamRange>,
}

impl Areas {
    fn holding(&self, memory: UserMemory) -> Option<&Area> {
        let end = memory.address.checked_add(memory.bytes)?;
        self.used.iter().find(|area| {
            memory.address >= area.memory.address && end <= area.memory.address + area.memory.bytes
        })
    }
}

impl Scattered {
    fn read(&self) -> RwLockReadGuard<'_, Areas> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Areas> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps at least `bytes` of memory. Pages are scattered one by one as long as their number is within
    /// half of the mappings that the process may have, else in the shortest runs that are; each page is an
    /// entry of its own in any case.
    pub fn map(&self, ram: &SharedRam, bytes: usize) -> Result<UserMemory, ClientError> {
        let range = self.range(ram, bytes)?;
        let count = range.bytes as usize / PAGE;
        let run = count.div_ceil(mappings() / 2).max(1);
        let memory = match reserve(range.bytes as usize) {
            Ok(address) => UserMemory { address, bytes: range.bytes as usize },
            Err(error) => {
                self.write().spare.push(range);
                return Err(error.into());
            }
        };
        let mut pages = vec![0; count];
        let starts: Vec<usize> = (0..count).step_by(run).collect();
        // The last run may be shorter, so that it stays where it is.
        let whole = count / run;
        let mut order: Vec<usize> = (0..starts.len()).collect();
        shuffle(&mut order[..whole]);
        for (&to, &from) in starts.iter().zip(&order) {
            let length = run.min(count - to);
            let offset = range.offset + (starts[from] * PAGE) as u64;
            let part = UserMemory { address: memory.address + to * PAGE, bytes: length * PAGE };
            if let Err(error) = map_shared(ram, part, offset) {
                self.release(memory, range);
                return Err(error.into());
            }
            for page in 0..length {
                pages[to + page] = RamRange { offset, bytes: 0 }.guest_address() + (page * PAGE) as u64;
            }
        }
        // As other shared pages: not for a forked child. A hint only.
        // SAFETY: the range was mapped just above.
        unsafe { libc::madvise(memory.address as *mut _, memory.bytes, libc::MADV_DONTFORK) };
        self.write().used.push(Area { memory, range, pages, tags: Vec::new() });
        Ok(memory)
    }

    /// A range that was in use before, or a new one.
    fn range(&self, ram: &SharedRam, bytes: usize) -> Result<RamRange, ClientError> {
        let spare = &mut self.write().spare;
        let pages = bytes.div_ceil(PAGE).max(1);
        match spare.iter().position(|range| range.bytes as usize == pages * PAGE) {
            Some(at) => Ok(spare.swap_remove(at)),
            None => ram.allocate(bytes),
        }
    }

    /// Undoes [`Scattered::map`]. Returns false if `address` is not one of its buffers.
    pub fn unmap(&self, address: usize) -> bool {
        let mut areas = self.write();
        let Some(at) = areas.used.iter().position(|area| area.memory.address == address) else {
            return false;
        };
        let Area { memory, range, .. } = areas.used.swap_remove(at);
        drop(areas);
        self.release(memory, range);
        true
    }

    fn release(&self, memory: UserMemory, range: RamRange) {
        // SAFETY: the range was mapped by `map`, and the caller uses it no more.
        if unsafe { libc::munmap(memory.address as *mut _, memory.bytes) } == 0 {
            self.write().spare.push(range);
        }
    }

    /// Notes that the pages of `memory` are kept under `tag`. Returns false if no buffer contains it.
    pub fn track(&self, tag: u64, memory: UserMemory) -> bool {
        let mut areas = self.write();
        let Some(at) = areas.holding(memory).map(|area| area.memory.address) else { return false };
        let area = areas.used.iter_mut().find(|area| area.memory.address == at);
        area.map(|area| area.tags.push(tag)).is_some()
    }

    /// Returns whether the buffer with pages kept under `tag` still exists.
    pub fn is_fresh(&self, tag: u64) -> bool {
        self.read().used.iter().any(|area| area.tags.contains(&tag))
    }

    /// Undoes [`Scattered::track`].
    pub fn forget(&self, tag: u64) {
        self.write().used.iter_mut().for_each(|area| area.tags.retain(|other| *other != tag));
    }

    /// Returns whether all of `memory` is in one buffer.
    pub fn hold(&self, memory: UserMemory) -> bool {
        self.read().holding(memory).is_some()
    }

    /// The entries of `memory` for the device, if it is in one of the buffers.
    pub fn entries(&self, memory: UserMemory) -> Option<Vec<MemEntry>> {
        let areas = self.read();
        let area = areas.holding(memory)?;
        let start = memory.address - area.memory.address;
        let (mut skip, mut left) = (start % PAGE, memory.bytes);
        let touched = (skip + left).div_ceil(PAGE);
        let entry = |&page: &u64| {
            let bytes = (PAGE - skip).min(left);
            let entry = MemEntry { addr: page + skip as u64, bytes: bytes as u32, reserved: 0 };
            (skip, left) = (0, left - bytes);
            entry
        };
        Some(area.pages[start / PAGE..start / PAGE + touched].iter().map(entry).collect())
    }
}

fn mappings() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(USUAL_MAPPINGS)
}

fn reserve(bytes: usize) -> std::io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(at as usize) }
}

/// Fisher and Yates, with Marsaglia's xorshift: the same order in each run.
fn shuffle(items: &mut [usize]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(last, (state % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio_user::memory::RAM_BASE;

    #[test]
    fn entries_name_the_pages_that_the_process_sees() {
        let (ram, scattered) = (SharedRam::new().expect("memfd"), Scattered::default());
        let memory = scattered.map(&ram, 64 * PAGE).expect("mapped");
        for page in 0..64 {
            // SAFETY: the test's own memory.
            unsafe { (memory.address as *mut u8).add(page * PAGE).write(page as u8) };
        }
        let all = scattered.entries(memory).expect("entries");
        assert_eq!(all.len(), 64);
        for (page, entry) in all.iter().enumerate() {
            // SAFETY: the offset was allocated to this test.
            assert_eq!(unsafe { ram.at(entry.addr - RAM_BASE).read() }, page as u8);
        }
        let neighbours = all.windows(2).filter(|pair| pair[1].addr == pair[0].addr + PAGE_BYTES).count();
        assert!(neighbours < 16, "{neighbours} of 63 pages lie in order");

        let inside = UserMemory { address: memory.address + PAGE + 100, bytes: 2 * PAGE };
        let part = scattered.entries(inside).expect("entries");
        assert_eq!(part.iter().map(|entry| entry.bytes).collect::<Vec<_>>(), [3996, 4096, 100]);
        assert_eq!(part[0].addr, all[1].addr + 100);
        assert!(scattered.entries(UserMemory { address: memory.address, bytes: 65 * PAGE }).is_none());

        assert!(scattered.unmap(memory.address));
        assert!(!scattered.unmap(memory.address));
        assert!(scattered.entries(memory).is_none());
        scattered.map(&ram, 64 * PAGE).expect("mapped");
        assert!(scattered.read().spare.is_empty(), "the pages are used again");
    }
}
