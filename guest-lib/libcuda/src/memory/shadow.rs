// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `__managed__` variables. The module owns their storage, in the worker, so the program gets a shadow: memory
//! of its own at the same address where that is free. The two are made equal when one side could have changed
//! and the other is about to look: changes of the program cross before work is queued, those of the GPU after
//! a call that waits. That is what CUDA promises on devices whose `CONCURRENT_MANAGED_ACCESS` is 0, and it is
//! what [`crate::device`] says of every device. (`cudaMallocManaged` is better off: it is pinned memory.)

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::protocol::{ContextId, DevicePtr};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::context::table::current;
use crate::entry::Api;
use crate::memory::Memory;
use crate::memory::claims::Claims;
use crate::memory::moving::{Sent, Uses};
use crate::memory::ranges::{HostKind, HostRange};
use crate::memory::window::PAGE_BYTES;
use crate::module::table::Variable;

/// Bytes of a variable that are compared at a time.
const COMPARED_BYTES: usize = 4096;

/// One variable.
#[derive(Debug)]
struct Shadow {
    /// Where the program sees it.
    host: u64,
    /// Where the GPU sees it.
    device: u64,
    /// Contents when both sides were last equal.
    equal: Vec<u8>,
}

/// All `__managed__` variables.
#[derive(Debug, Default)]
pub struct Shadows {
    list: Mutex<Vec<Shadow>>,
    /// Pages that shadows have at device addresses.
    pages: Mutex<BTreeSet<u64>>,
    /// There are any: spares every other program the locks.
    pub any: AtomicBool,
    /// The GPU may have changed some since they were last fetched.
    stale: AtomicBool,
}

impl Shadow {
    /// Copies bytes of the program's side, from `start` on.
    ///
    /// Other threads of the program may write at the same time; then it is the program's race, as it is
    /// natively, and it only decides which bytes are seen. So no reference to this memory is made.
    fn read(&self, start: usize, room: &mut [u8]) {
        assert!(start + room.len() <= self.equal.len());
        // SAFETY: `place` mapped the memory, which is as long as `equal` and stays mapped as long as the shadow is in the
        // list; the room is this library's own.
        unsafe {
            let from = (self.host as *const u8).add(start);
            std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), room.len());
        }
    }

    /// The bytes that the program has changed, from the first to the last one.
    fn changed(&self) -> Option<Range<usize>> {
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

    /// Fetches the GPU's side.
    fn fetch(&mut self, api: Api, context: u64) -> Result<(), CudaError> {
        let chunk = api.driver.session.limits().copy_bytes;
        for (index, piece) in self.equal.chunks_mut(chunk).enumerate() {
            let address = DevicePtr(self.device + (index * chunk) as u64);
            let call = api.driver.session.call().context(ContextId(context));
            calls::cuMemcpyDtoH_v2(&mut call.output(piece), address)?;
        }
        // SAFETY: `place` mapped the memory, which stays mapped as long as the shadow is in the list; the vector is this
        // library's own, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.equal.as_ptr(), self.host as *mut u8, self.equal.len()) };
        Ok(())
    }

    /// Sends what the program has changed.
    fn send(&mut self, api: Api, context: u64) -> Result<(), CudaError> {
        let Some(changed) = self.changed() else { return Ok(()) };
        let first = changed.start;
        let mut now = vec![0; changed.len()];
        self.read(first, &mut now);
        let chunk = api.driver.session.limits().copy_bytes;
        for (index, piece) in now.chunks(chunk).enumerate() {
            let address = DevicePtr(self.device + (first + index * chunk) as u64);
            let call = api.driver.session.call().context(ContextId(context));
            calls::cuMemcpyHtoD_v2(&mut call.input(piece), address)?;
        }
        self.equal[changed].copy_from_slice(&now);
        Ok(())
    }
}

impl Shadows {
    fn list(&self) -> MutexGuard<'_, Vec<Shadow>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the variable at `host`. Its memory stays: the program may still have its address.
    pub fn remove(&self, host: u64) {
        let mut list = self.list();
        list.retain(|shadow| shadow.host != host);
        self.any.store(!list.is_empty(), Ordering::Release);
    }

    /// Maps memory for a variable, at its device address if the program has nothing there.
    fn place(&self, claims: &Claims, device: u64, bytes: u64) -> Result<u64, CudaError> {
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

impl Memory {
    /// Makes the program's side of a `__managed__` variable; answers the address that the program uses.
    pub fn add_managed_variable(
        &self,
        api: Api,
        variable: Variable,
        owner: u64,
    ) -> Result<Variable, CudaError> {
        let mut list = self.shadows.list();
        if let Some(known) = list.iter().find(|shadow| shadow.device == variable.address) {
            return Ok(Variable { address: known.host, ..variable });
        }
        // The runtime asks before it has a context, but the initial value has to be read in one.
        let context = match current() {
            0 => crate::context::retain(api, 0)?,
            context => context,
        };
        let host = self.shadows.place(&self.claims, variable.address, variable.bytes)?;
        let mut shadow = Shadow { host, device: variable.address, equal: vec![0; variable.bytes as usize] };
        shadow.fetch(api, context)?;
        list.push(shadow);
        self.shadows.any.store(true, Ordering::Release);
        drop(list);
        self.ranges.add_host(HostRange {
            start: host,
            bytes: variable.bytes,
            device_address: variable.address,
            kind: HostKind::ManagedVariable,
            flags: 0,
            context,
            device: api.driver.contexts.device_of(context)?,
            id: self.ranges.next_id(),
            pages: UserMemory::NONE,
            window: 0,
            pinned: Vec::new(),
            owner,
            pool: None,
            moving: None,
        });
        Ok(Variable { address: host, ..variable })
    }
}

impl Api {
    /// To be called before work is queued that could look at managed memory. What it answers is kept until the work is
    /// queued.
    pub fn before_work(&self, uses: Uses) -> Result<Sent, CudaError> {
        let shadows = &self.driver.memory.shadows;
        // A capture only notes the work; what is sent then would break it.
        if shadows.any.load(Ordering::Acquire) && !self.driver.captures.any() {
            let context = self.context()?.0;
            for shadow in shadows.list().iter_mut() {
                shadow.send(*self, context)?;
            }
        }
        self.send_managed(uses)
    }

    /// To be called once such work is queued.
    pub fn work_queued(&self) {
        self.driver.memory.visible.begin();
        self.device_work_queued();
    }

    /// As [`Self::work_queued`], for work that changes nothing but device memory.
    pub fn device_work_queued(&self) {
        let shadows = &self.driver.memory.shadows;
        if shadows.any.load(Ordering::Acquire) {
            shadows.stale.store(true, Ordering::Release);
        }
    }

    /// To be called after a call that has waited for some of the GPU's work.
    pub fn synchronized(&self) {
        self.driver.host_pools.settle(*self);
        let shadows = &self.driver.memory.shadows;
        if !shadows.any.load(Ordering::Acquire) || !shadows.stale.load(Ordering::Acquire) {
            return;
        }
        for shadow in shadows.list().iter_mut() {
            if let Err(error) = shadow.fetch(*self, current()) {
                // The context is broken: the program learns that from its next call.
                log::debug!("Fetching a __managed__ variable: {error}");
                return;
            }
        }
    }

    /// To be called after a call that has waited for all of the GPU's work.
    pub fn context_synchronized(&self) {
        self.synchronized();
        self.driver.memory.shadows.stale.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_found_from_the_first_to_the_last_byte() {
        let mut memory = vec![0u8; 2 * COMPARED_BYTES + 10];
        let place = memory.as_mut_ptr();
        let shadow = Shadow { host: place as u64, device: 0, equal: memory.clone() };
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
}
