// SPDX-License-Identifier: Apache-2.0 OR MIT
//! External memory: the files of cuMemExportToShareableHandle, mapped as buffers and mipmapped arrays. Other APIs
//! that could provide such memory do not exist here.

mod api;
pub(super) mod buffers;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use cuda_abi::CUDA_ARRAY3D_DESCRIPTOR;

use super::array::{self, CUmipmappedArray};
use super::context::Context;
use super::device::{CUdeviceptr, Owner};
use super::handle::{Handle, Registry};
use super::memory::place::Place;
use super::result::{CUresult, CuResult};
use super::vmm as virtual_memory;
use crate::memory::RangeKind;
use crate::texture::Part;

/// External memory's handle.
pub type CUexternalMemory = Handle<External>;

static EXTERNAL: Registry<External> = Registry::new();

impl crate::driver::handle::Object for External {
    const KIND: Option<crate::driver::handle::Kind> = None;
}

/// Imported memory. Its mappings outlive it.
pub struct External {
    file: OwnedFd,
    /// The size of the whole allocation in bytes.
    all: u64,
    /// The number of bytes that may be mapped.
    bytes: u64,
    context: Weak<Context>,
}

/// cuImportExternalMemory of an open file, which is closed in any case. `bytes` is the number of bytes that the
/// program may map.
pub(super) fn import(context: &Arc<Context>, file: OwnedFd, bytes: u64) -> CuResult<CUexternalMemory> {
    let unknown = |_| CUresult::CUDA_ERROR_UNKNOWN;
    let (file, all) = virtual_memory::exported_file(file.as_raw_fd()).map_err(unknown)?;
    let handle = Handle::unique();
    let external = External { file, all, bytes: bytes.min(all), context: Arc::downgrade(context) };
    EXTERNAL.insert(handle, Arc::new(external));
    Ok(handle)
}

/// Returns the external memory of a handle.
pub(super) fn find(handle: CUexternalMemory) -> CuResult<Arc<External>> {
    EXTERNAL.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// cuDestroyExternalMemory: the mappings stay.
pub(super) fn destroy(handle: CUexternalMemory) -> CuResult<()> {
    EXTERNAL.remove(handle).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

impl External {
    /// Returns the context in which the memory was imported. All its mappings belong to that context.
    fn context(&self) -> CuResult<Arc<Context>> {
        self.context.upgrade().ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Maps a part again, and returns its address range.
    fn place(&self, offset: u64, bytes: u64) -> CuResult<Place> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if !inside || bytes == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Place::new(&self.file, self.all)
    }

    /// Maps a part as a buffer, until [`buffers::unmap`].
    pub(super) fn map(&self, offset: u64, bytes: u64) -> CuResult<CUdeviceptr> {
        let context = self.context()?;
        let place = self.place(offset, bytes)?;
        let ptr = place.address() + offset;
        buffers::add(ptr, place);
        let memory = &context.device.memory;
        memory.mark_initialised(ptr, bytes);
        if !memory.add_host_range(ptr, bytes, RangeKind::External) {
            log::error!("external memory overlaps other memory");
        }
        context.device.own(ptr, Owner::new(context.handle, None));
        Ok(ptr)
    }

    /// Maps a part as a mipmapped array.
    pub(super) fn map_array(
        &self,
        descriptor: CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
        offset: u64,
    ) -> CuResult<CUmipmappedArray> {
        array::create_mipmapped_in(&self.context()?, descriptor, levels, |bytes| {
            let place = self.place(offset, bytes)?;
            Ok(Part { address: place.address() + offset, keeper: Arc::new(place) })
        })
    }
}

/// Ends the external memory of a context that ends.
pub(super) fn forget_all_of(context: &Context) {
    EXTERNAL.remove_where(|external| std::ptr::eq(external.context.as_ptr(), context));
}
