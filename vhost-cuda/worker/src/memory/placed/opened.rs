// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Placed memory of other processes (`cuIpcOpenMemHandle`): the owner exports the physical memory as a file, which is mapped here
//! at reserved addresses.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;

use parking_lot::Mutex;
use vhost_cuda_common::exchange::{HANDLE_BYTES, Token};
use zerocopy::FromBytes;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::quota;
use super::map_at_reserved;
use crate::gpu::{CuResult, CudaError, Driver, HANDLE_TYPE_FILE};
use crate::home::Home;
use crate::memory::parts::Memory;

/// The first bytes of [`Placement`]. The driver's own handles begin with others: the emulator's with its name, NVIDIA's with small
/// numbers.
const MAGIC: [u8; 8] = *b"placedv1";
/// The maximum size of an allocation, in bytes. Limits the addresses that a wrong offer takes.
const MAX_BYTES: u64 = 1 << 40;

/// The position of an offered allocation in the physical memory that accompanies it, in place of the driver's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Placement {
    magic: [u8; 8],
    /// The size of the physical memory in bytes.
    bytes: u64,
    /// The offset of the allocation in bytes.
    offset: u64,
    reserved: [u64; 5],
}

const _: () = assert!(size_of::<Placement>() == HANDLE_BYTES);

impl Placement {
    /// The allocation at `offset` in `bytes` bytes of physical memory.
    pub fn new(bytes: u64, offset: u64) -> Self {
        Self { magic: MAGIC, bytes, offset, reserved: [0; 5] }
    }

    /// Returns its form in an offer.
    pub fn to_handle(self) -> [u8; HANDLE_BYTES] {
        zerocopy::transmute!(self)
    }

    /// Returns the position in the offer of an allocation of `length` bytes. `None` for a handle of the driver.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if the allocation does not lie in the memory, or this has more blocks than the allocation needs:
    /// the session is charged for those.
    pub fn of(handle: &[u8; HANDLE_BYTES], length: u64) -> CuResult<Option<Self>> {
        let Ok(found) = Self::read_from_bytes(handle) else { return Ok(None) };
        if found.magic != MAGIC {
            return Ok(None);
        }
        let end = found.offset.checked_add(length);
        let fits = end.is_some_and(|end| end <= found.bytes) && length <= MAX_BYTES;
        if fits && found.bytes == quota::opened(length) {
            Ok(Some(found))
        } else {
            Err(CudaError::INVALID_VALUE)
        }
    }
}

/// One mapping of foreign memory.
#[derive(Debug)]
struct Mapped {
    token: Token,
    base: u64,
    bytes: u64,
    shadow: u64,
    context: u64,
}

/// The session's mappings of foreign memory, by the address of the allocation.
#[derive(Debug, Default)]
pub struct Opened(Mutex<HashMap<u64, Mapped>>);

impl Opened {
    /// Maps the memory behind `file`, or returns the address at which the offer of `token` is mapped already.
    ///
    /// Errors: the driver's.
    pub fn open(
        &self,
        gpu: &Driver,
        token: Token,
        place: Placement,
        file: &File,
        home: Home,
    ) -> CuResult<u64> {
        let mut all = self.0.lock();
        if let Some((&address, _)) = all.iter().find(|(_, mapped)| mapped.token == token) {
            return Ok(address);
        }
        let shareable = std::ptr::without_provenance_mut(file.as_raw_fd() as usize);
        // SAFETY: for this kind of handle the pointer is a file descriptor, which is open across the call.
        let (handle,) = unsafe { gpu.cuMemImportFromShareableHandle(shareable, HANDLE_TYPE_FILE as i32) }?;
        // As for `cuMemAlloc`: closing waits for the device's work.
        let shadow = gpu.cuMemAlloc_v2(1).map(|(shadow,)| shadow);
        let mapping = shadow.and_then(|_| map_at_reserved(gpu, place.bytes, handle, &[home.device]));
        // The mapping keeps the memory.
        let _ = gpu.cuMemRelease(handle);
        let mapping = mapping.inspect_err(|_| {
            // SAFETY: allocated above; nobody else has its address.
            let _ = shadow.map(|shadow| unsafe { gpu.cuMemFree_v2(shadow) });
        })?;
        let (base, context) = (mapping.address, home.context);
        let address = base + place.offset;
        all.insert(address, Mapped { token, base, bytes: place.bytes, shadow: shadow?, context });
        Ok(address)
    }

    /// Returns whether the memory at `address` is mapped here.
    pub fn has(&self, address: u64) -> bool {
        self.0.lock().contains_key(&address)
    }

    /// Removes the mapping of the allocation at `address`, after the device's work.
    ///
    /// Errors: the driver's; `CUDA_ERROR_INVALID_VALUE` if it is not mapped here.
    pub fn close(&self, gpu: &Driver, address: u64) -> CuResult<()> {
        let mapped = self.0.lock().remove(&address).ok_or(CudaError::INVALID_VALUE)?;
        // SAFETY: the shadow was allocated with the mapping, and ends with it.
        unsafe { gpu.cuMemFree_v2(mapped.shadow) }.inspect(|()| end(gpu, &mapped))
    }

    /// Removes the mappings of a context that the driver has destroyed.
    pub fn forget_context(&self, gpu: &Driver, context: u64) {
        let ended: Vec<_> = self.0.lock().extract_if(|_, mapped| mapped.context == context).collect();
        ended.iter().for_each(|(_, mapped)| end(gpu, mapped));
    }
}

fn end(gpu: &Driver, mapped: &Mapped) {
    // SAFETY: a mapping of this table, and its reservation. The driver has freed the shadow after all work that was there
    // before, or destroyed the context.
    unsafe {
        if gpu.unmap(mapped.base, mapped.bytes).is_ok() {
            let _ = gpu.cuMemAddressFree(mapped.base, mapped.bytes as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::quota::BLOCK;

    #[test]
    fn an_offer_names_memory_inside_of_what_comes_with_it() {
        let place = Placement::new(BLOCK, 512);
        let handle = place.to_handle();
        assert_eq!(Placement::of(&handle, BLOCK - 512), Ok(Some(place)));
        assert_eq!(Placement::of(&[0; HANDLE_BYTES], 1), Ok(None));
        for (bytes, offset, length) in [
            (BLOCK, 512, BLOCK),
            (BLOCK, u64::MAX, 2),
            (BLOCK + 1, 0, 1),
            (2 * BLOCK, 0, 1),
            (MAX_BYTES + BLOCK, 0, MAX_BYTES + 1),
        ] {
            let handle = Placement::new(bytes, offset).to_handle();
            assert_eq!(Placement::of(&handle, length), Err(CudaError::INVALID_VALUE), "{bytes} {offset}");
        }
    }
}
