// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Placed memory of other processes (`cuIpcOpenMemHandle`): the owner exports the physical memory as a file, which is mapped here
//! at reserved addresses, as a region with one allocation.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use vhost_cuda_common::exchange::{HANDLE_BYTES, Token};
use zerocopy::FromBytes;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::left::taken_by;
use super::slab::{self, Slab};
use super::{Allocation, MAX_REGIONS, Others, Placed, Region, State, map, map_at_reserved, properties};
use crate::gpu::{CuResult, CudaError, Driver};
use crate::home::Home;
use crate::memory::parts::{Memory, Part};
use crate::memory::quota::{self, BLOCK};

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

impl Placed {
    /// Maps the memory behind `file`, in which `bytes` bytes are an allocation, or returns the address at which the offer of `token` is
    /// mapped already. The file is kept: with it another worker of the session can map the memory, which cannot be exported again.
    ///
    /// Errors: the driver's; `CUDA_ERROR_INVALID_VALUE` if no session places an allocation so; `CUDA_ERROR_OUT_OF_MEMORY` for too many.
    pub fn open(
        &self,
        gpu: &Driver,
        token: Token,
        (place, bytes): (Placement, u64),
        file: File,
        home: Home,
    ) -> CuResult<u64> {
        let mut state = self.lock();
        if let Some(address) = state.opened().find(|(_, known)| *known == token).map(|(address, _)| address) {
            return Ok(address);
        }
        let slab = match quota::alone(bytes) {
            0 => Slab::of(BLOCK, slab::UNIT, BTreeMap::from([(place.offset, taken_by(bytes))])),
            _ => None,
        };
        if slab.is_none() && (place.offset > 0 || quota::alone(bytes) == 0) {
            return Err(CudaError::INVALID_VALUE);
        }
        let most = if self.limit > 0 { self.limit } else { MAX_REGIONS };
        if state.regions.len() >= most {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        // Without a reservation the driver chooses the addresses, and the session stays with its worker.
        let offset = match self.limit {
            0 => None,
            _ => Some(state.addresses.take(place.bytes).ok_or(CudaError::OUT_OF_MEMORY)?),
        };
        let readers = state.peers.readers(home);
        let mapped = gpu.import(&file).and_then(|handle| {
            // As for `cuMemAlloc`: closing waits for the device's work.
            let made = gpu.cuMemAlloc_v2(1).and_then(|(shadow,)| {
                let mapping = match offset {
                    Some(offset) => map(gpu, self.start + offset, place.bytes, handle, &readers),
                    None => map_at_reserved(gpu, place.bytes, handle, &readers),
                };
                mapping.map(|mapping| (shadow, mapping)).inspect_err(|_| {
                    // SAFETY: allocated above; nobody else has its address.
                    let _ = unsafe { gpu.cuMemFree_v2(shadow) };
                })
            });
            // The mapping keeps the memory.
            let _ = gpu.release(handle);
            made
        });
        let (shadow, mapping) = mapped.inspect_err(|_| {
            if let Some(offset) = offset {
                state.addresses.give(offset);
            }
        })?;
        let part = Part::new(None, place.bytes, properties(home.device), vec![mapping]);
        let part = part.with_file(Some(Arc::new(file)));
        let (base, context) = (part.address(), home.context);
        let others = Others::Opened(token);
        state.regions.insert(base, Region { part, context, lent: Vec::new(), chosen: None, slab, others });
        let address = base + place.offset;
        state.allocations.insert(address, Allocation { region: base, shadow, context });
        Ok(address)
    }
}

impl State {
    /// Returns the part of other processes in the region of the allocation at `address`.
    pub fn others_in(&self, address: u64) -> Others {
        let region = self.allocations.get(&address).and_then(|found| self.regions.get(&found.region));
        region.map_or(Others::None, |region| region.others)
    }

    /// The allocations of other processes: their addresses and tokens.
    pub fn opened(&self) -> impl Iterator<Item = (u64, Token)> {
        self.allocations.keys().filter_map(|&address| match self.others_in(address) {
            Others::Opened(token) => Some((address, token)),
            Others::None | Others::Offered => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
