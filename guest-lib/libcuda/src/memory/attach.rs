// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Makes host memory accessible to the GPU: the device keeps its pages, which are mapped in the worker.

use std::fs;

use virtio_cuda_client::protocol::{ContextId, DevicePtr};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls, order};

use crate::driver::Driver;
use crate::entry::Api;
use crate::state::memory::pinned::{Attached, Pinned};
use crate::state::memory::window::{PAGE_BYTES, round_up};
use crate::state::parked::ParkedMaps;

/// `CU_MEMHOSTREGISTER_PORTABLE`, `CU_MEMHOSTREGISTER_DEVICEMAP` and `CU_MEMHOSTREGISTER_READ_ONLY`.
const PORTABLE: u32 = 1;
const DEVICEMAP: u32 = 2;
const READ_ONLY: u32 = 8;
/// Smaller allocations are made without a check of the machine's free memory.
const LARGE_BYTES: u64 = 64 << 20;

/// Returns the bytes that can be allocated without swapping, from the text of /proc/meminfo (proc_meminfo(5)).
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns true if the machine has at least `bytes` bytes of memory available. The caller populates all of them. A
/// program that populates more memory than exists gets no error: the kernel kills it.
pub fn has_room(bytes: u64) -> bool {
    if bytes < LARGE_BYTES {
        return true;
    }
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    available(&meminfo).is_none_or(|all| bytes <= all)
}

/// Allocates pages of the window, `bytes` bytes rounded up, and makes the device keep them. With `one_address` the GPU
/// must have them at the same address.
pub fn attach_pages(
    api: Api,
    context: ContextId,
    bytes: u64,
    one_address: bool,
) -> Result<(UserMemory, Attached), CudaError> {
    let page_bytes = round_up(bytes)?;
    if page_bytes > api.driver.session.limits().kept_bytes || !has_room(page_bytes) {
        return Err(CudaError::OUT_OF_MEMORY);
    }
    api.with_room(|| attach_new(api, context, page_bytes, one_address))
}

/// Like [`attach_pages`], for whole pages and without a second attempt.
fn attach_new(
    api: Api,
    context: ContextId,
    page_bytes: u64,
    one_address: bool,
) -> Result<(UserMemory, Attached), CudaError> {
    let window = &api.driver.memory.window;
    let address = window.take(page_bytes)?;
    let pages = UserMemory { address: address as usize, bytes: page_bytes as usize };
    let transport = api.driver.session.transport();
    if let Err(error) = transport.map(pages) {
        log::debug!("Host memory of {page_bytes} bytes: {error}");
        window.give_back(address, page_bytes);
        return Err(CudaError::OUT_OF_MEMORY);
    }
    let attached =
        keep(api, context, pages, address, PORTABLE | DEVICEMAP, Pages::Own).and_then(|attached| {
            if one_address && attached.device_address != address {
                log::error!("Managed memory has another address in the worker: its window is not free");
                api.driver.unpin(&attached.pinned);
                return Err(CudaError::OUT_OF_MEMORY);
            }
            Ok(attached)
        });
    let attached = attached.inspect_err(|_| {
        transport.unmap(pages);
        window.give_back(address, page_bytes);
    })?;
    Ok((pages, attached))
}

/// Makes the device keep pages of the window that are mapped here.
pub fn attach_window(api: Api, context: ContextId, pages: UserMemory) -> Result<Attached, CudaError> {
    api.with_room(|| keep(api, context, pages, pages.address as u64, PORTABLE | DEVICEMAP, Pages::Own))
}

/// Makes the device keep `pages` of the program, mapped at `window` if possible. With the flag
/// `CU_MEMHOSTREGISTER_READ_ONLY`, the program need not have write access.
pub fn attach(api: Api, pages: UserMemory, window: u64, flags: u32) -> Result<Attached, CudaError> {
    let context = api.context()?;
    let writable = api.with_room(|| keep(api, context, pages, window, flags, Pages::Own));
    match writable {
        Err(CudaError::INVALID_VALUE) if flags & READ_ONLY != 0 => {}
        outcome => return outcome,
    }
    match api.with_room(|| keep(api, context, pages, window, flags, Pages::ToRead)) {
        // The kernel module or the daemon does not support such calls.
        Err(CudaError::UNKNOWN) => Err(CudaError::NOT_SUPPORTED),
        outcome => outcome,
    }
}

/// Like [`attach`], for pages that the program may unmap at any time. The transport reports when other pages are mapped
/// there.
pub fn attach_tracked(api: Api, pages: UserMemory, window: u64) -> Result<Attached, CudaError> {
    keep(api, api.context()?, pages, window, 0, Pages::Tracked)
}

/// Pages that the device keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// The program leaves them mapped, and has write access.
    Own,
    /// Like `Own`, but the device only reads them.
    ToRead,
    /// The program may unmap them at any time.
    Tracked,
}

fn keep(
    api: Api,
    context: ContextId,
    pages: UserMemory,
    window: u64,
    flags: u32,
    kind: Pages,
) -> Result<Attached, CudaError> {
    let limit = api.driver.session.limits().bulk_bytes as u64;
    let piece_bytes = (limit / PAGE_BYTES * PAGE_BYTES).max(PAGE_BYTES);
    let bytes = pages.bytes as u64;
    let call_keeping = |piece: UserMemory| {
        let call = api.call_in(context);
        // SAFETY: pages of the program or of the window; this library makes no reference to either.
        let call = unsafe { call.keep(piece) };
        match kind {
            Pages::Own => call,
            Pages::ToRead => call.to_read(),
            Pages::Tracked => call.tracked(),
        }
    };
    if bytes <= piece_bytes {
        let mut call = call_keeping(pages);
        let registered = calls::cuMemHostRegister_v2(&mut call, window, bytes, flags)?;
        let pinned = vec![Pinned { tag: call.tag() }];
        return attached(api, registered, bytes, pinned);
    }
    let mut pinned = Vec::new();
    let mut map_all = || {
        let mut base = 0;
        for offset in (0..bytes).step_by(piece_bytes as usize) {
            let length = piece_bytes.min(bytes - offset);
            let address = pages.address + offset as usize;
            let mut call = call_keeping(UserMemory { address, bytes: length as usize });
            let at = calls::window_map(&mut call, window + offset, length)?;
            pinned.push(Pinned { tag: call.tag() });
            if offset == 0 {
                base = at;
            }
            // Pieces that are not contiguous on the GPU cannot serve as one allocation.
            if base.checked_add(offset) != Some(at) {
                return Err(CudaError::OUT_OF_MEMORY);
            }
        }
        Ok(base)
    };
    let registered = map_all().and_then(|base| {
        let mut call = api.call_in(context);
        calls::window_register(&mut call, base, bytes, flags)
    });
    match registered {
        Ok(device_address) => attached(api, device_address, bytes, pinned),
        Err(error) => {
            api.driver.unpin(&pinned);
            Err(error)
        }
    }
}

/// Checks the result for pages that the GPU has at `address`. The worker returned the address and is not trusted: an
/// end beyond the address space is an error.
fn attached(api: Api, address: DevicePtr, bytes: u64, pinned: Vec<Pinned>) -> Result<Attached, CudaError> {
    if address.0.checked_add(bytes).is_none() {
        api.driver.unpin(&pinned);
        return Err(CudaError::UNKNOWN);
    }
    Ok(Attached { device_address: address.0, pinned })
}

impl Driver {
    /// Releases the pages of host memory that the program has unmapped. It is attached again when it is used again. Returns whether
    /// there were any.
    pub fn unpin_parked(&self, parked: &mut ParkedMaps) -> bool {
        let mut any = false;
        for attachment in parked.maps().filter_map(|map| map.attached.as_mut()) {
            any |= !attachment.pinned.is_empty();
            self.unpin(&std::mem::take(&mut attachment.pinned));
            attachment.context = 0;
        }
        any
    }

    /// Releases kept pages.
    pub fn unpin(&self, pinned: &[Pinned]) {
        for piece in pinned {
            if let Err(error) = order::unpin(self.session, piece.tag) {
                // The session is lost, and all kept pages are released with it.
                log::debug!("Unpinning: {error}");
            }
        }
    }

    /// Releases pages of [`attach_pages`].
    pub fn detach_pages(&self, pages: UserMemory, pinned: &[Pinned]) {
        self.unpin(pinned);
        self.session.transport().unmap(pages);
        self.memory.window.give_back(pages.address as u64, pages.bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::available;

    #[test]
    fn available_memory_is_that_of_the_kernel() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    1024 kB\nBuffers: 1 kB\n"), Some(1 << 20));
        for other in [
            "",
            "MemAvailable:",
            "MemAvailable: 1",
            "MemAvailable: -1 kB",
            "MemAvailable: 99999999999999999999 kB",
        ] {
            assert_eq!(available(other), None, "{other}");
        }
    }
}
