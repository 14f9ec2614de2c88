// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Variables of modules and libraries, for `variable` rows and for copies by name.

use virtio_cuda_protocol::cuda::{DevicePtr, FIRST_VARIABLE, LibraryId, ModuleId, VARIABLE_STEP, VariableId};

use crate::call::CallContext;
use crate::gpu::{CUstream, CuResult, CudaError, POINTER_IS_MANAGED};
use crate::handlers::graph::capture::captures;
use crate::memory::allocations::Origin;
use crate::objects::named::Named;

/// Gives a variable of a library a number.
pub fn library_variable(
    cx: &mut CallContext<'_>,
    library: LibraryId,
    variable: VariableId,
) -> CuResult<(u64,)> {
    let name = cx.bulk_in.name()?;
    let (_, bytes) = cx.gpu().cuLibraryGetGlobal(cx.resolve(library)?, name.clone())?;
    cx.session.variables.add(variable, Named { library, context: cx.context, name })?;
    Ok((bytes as u64,))
}

/// Returns the address at an end of a copy in `stream`: that of a variable if the guest has named its number, else the same one. The
/// variable is looked up each time, because another context is current or objects were made again since.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE`, and the driver's.
pub fn located(cx: &CallContext<'_>, end: DevicePtr, stream: CUstream) -> CuResult<DevicePtr> {
    if end.0 < FIRST_VARIABLE {
        return Ok(end);
    }
    let offset = end.0 % VARIABLE_STEP;
    let Named { library, name, .. } =
        cx.session.variables.get(end.0 - offset).ok_or(CudaError::INVALID_VALUE)?;
    let (dptr, bytes) = cx.gpu().cuLibraryGetGlobal(cx.resolve(library)?, name)?;
    if offset >= bytes as u64 {
        return Err(CudaError::INVALID_VALUE);
    }
    // A graph keeps the address.
    let origin = if captures(cx, stream) { library.origin() } else { Origin::Named(library.0) };
    note(cx, origin, dptr, bytes);
    Ok(DevicePtr(dptr + offset))
}

/// Adds a variable to the session's memory. One that was copied by its name may get another origin.
fn note(cx: &CallContext<'_>, origin: Origin, dptr: u64, bytes: usize) {
    let home = cx.owner().unwrap_or_default();
    let mut allocations = cx.session.allocations();
    // A repeated query finds the same range.
    let is_known = match allocations.find(dptr).map(|range| range.origin) {
        Some(Origin::Named(_)) => matches!(origin, Origin::Named(_)),
        known => known.is_some(),
    };
    if !is_known {
        allocations.insert(dptr, bytes as u64, origin, home);
    }
}

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
    note(cx, owner.origin(), dptr, bytes);
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
