// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Variables of modules and libraries, for `variable` rows.

use virtio_cuda_protocol::cuda::{DevicePtr, LibraryId, ModuleId};

use crate::call::CallContext;
use crate::gpu::{CuResult, POINTER_IS_MANAGED};
use crate::memory::allocations::Origin;

/// Owners of variables.
pub trait Owner {
    /// Returns the origin of the memory of its variables.
    fn origin(self) -> Origin;
}

impl Owner for ModuleId {
    fn origin(self) -> Origin {
        Origin::ModuleGlobal(self.0)
    }
}

impl Owner for LibraryId {
    fn origin(self) -> Origin {
        Origin::LibraryGlobal(self.0)
    }
}

/// Adds a variable to the session's memory.
pub fn found(cx: &CallContext<'_>, owner: impl Owner, dptr: u64, bytes: usize) -> CuResult<(DevicePtr, u64)> {
    let home = cx.owner().unwrap_or_default();
    let mut allocations = cx.session.allocations();
    // A repeated query finds the same range.
    if allocations.find(dptr).is_none() {
        allocations.insert(dptr, bytes as u64, owner.origin(), home);
    }
    Ok((DevicePtr(dptr), bytes as u64))
}

/// Returns whether a variable's address lies in managed memory.
pub fn is_managed(cx: &CallContext<'_>, dptr: DevicePtr) -> CuResult<bool> {
    // Has more room than the four bytes that the driver stores.
    let mut managed = 0u64;
    // SAFETY: the attribute is stored in `managed`, which outlives the call.
    unsafe { cx.gpu().cuPointerGetAttribute((&raw mut managed).cast(), POINTER_IS_MANAGED, dptr.0) }?;
    Ok(managed != 0)
}
