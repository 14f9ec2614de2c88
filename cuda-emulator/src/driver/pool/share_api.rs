// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sharing of pools and of their allocations between processes.

use std::ffi::c_void;
use std::sync::Arc;

use super::home::Home;
use super::shared::{PointerData, SharedPool};
use super::{BY_FILE, CUmemoryPool, Pool, find};
use crate::driver::context;
use crate::driver::device::{self, CUdeviceptr, device};
use crate::driver::ffi::{In, Out};
use crate::driver::result::{CUresult, CuResult};

fn export_pool(out: Out<i32>, handle: CUmemoryPool, kind: u32, flags: u64) -> CuResult<()> {
    out.check()?;
    let pool = find(handle)?;
    let shared = pool.shared.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if kind != BY_FILE || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(shared.export()?);
    Ok(())
}

/// The pool belongs to the current device, because the file does not contain the device.
fn import_pool(out: Out<CUmemoryPool>, file: *mut c_void, kind: u32, flags: u64) -> CuResult<()> {
    out.check()?;
    if kind != BY_FILE || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let shared = Some(SharedPool::import(file as i32)?);
    let ordinal = device::current_or_first()?.ordinal;
    out.set_if_wanted(
        Arc::new(Pool { default: false, shared, ..Pool::new(Home::of_device(ordinal)) }).publish(),
    );
    Ok(())
}

fn export_pointer(out: Out<PointerData>, ptr: CUdeviceptr) -> CuResult<()> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    out.check()?;
    let pool = device::all().iter().find_map(|device| device.owner(ptr)).and_then(|owner| owner.pool);
    let pool = pool.ok_or(invalid)?;
    out.set_if_wanted(pool.shared.as_ref().ok_or(invalid)?.export_pointer(ptr)?);
    Ok(())
}

fn import_pointer(out: Out<CUdeviceptr>, handle: CUmemoryPool, data: In<PointerData>) -> CuResult<()> {
    out.check()?;
    let pool = find(handle)?;
    let context = context::current()?;
    out.set_if_wanted(device(pool.home.id)?.import_shared(context.handle, data.get()?, &pool)?);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuMemPoolExportToShareableHandle => export_pool(
        out: Out<i32>, pool: CUmemoryPool, kind: u32, flags: u64);
    cuMemPoolImportFromShareableHandle => import_pool(
        out: Out<CUmemoryPool>, file: *mut c_void, kind: u32, flags: u64);
    cuMemPoolExportPointer => export_pointer(out: Out<PointerData>, ptr: CUdeviceptr);
    cuMemPoolImportPointer => import_pointer(out: Out<CUdeviceptr>, pool: CUmemoryPool, data: In<PointerData>);
}
