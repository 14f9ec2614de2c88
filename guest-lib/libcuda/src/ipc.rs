// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sharing between processes of a guest.

use std::os::fd::IntoRawFd;

use cuda_abi::CUipcMemHandle;
use virtio_cuda_client::protocol::{AllocationId, DevicePtr, EventId};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, Out};
use crate::handles::{Kind, new_handle};
use crate::state::memory::ranges::DeviceRange;
use crate::tokens::{HANDLE_TYPE_FILE, file_of, handle_of, token_in, token_of_handle};
use crate::vmm::of_allocation;

/// Owner of opened memory in the table of ranges. No handle has this value.
const IPC_OWNER: u64 = 1;

fn open_memory(api: Api, out: Out<u64>, handle: CUipcMemHandle, flags: u32) -> Result<(), CudaError> {
    out.check()?;
    let context = api.context()?.0;
    let (dptr, bytes) = calls::cuIpcOpenMemHandle_v2(&mut api.call(), token_of_handle(&handle)?, flags)?;
    let memory = &api.driver.memory;
    memory.claims.claim(dptr.0, bytes);
    memory.ranges.add_device(DeviceRange {
        start: dptr.0,
        bytes,
        context,
        device: api.driver.contexts.device_of(context)?,
        id: memory.ranges.next_id(),
        // The program must not free it with cuMemFree.
        owner: IPC_OWNER,
        pool: 0,
        reachable: true,
    });
    out.set(dptr.0)
}

entry_points! {
    /// Exports memory of `cuMemAlloc` to other processes: the whole allocation that contains `dptr`.
    call cuIpcGetMemHandle(api, pHandle: Out<CUipcMemHandle>, dptr: u64) {
        pHandle.check()?;
        if api.driver.local_pools.contain(dptr) {
            return Err(CudaError::INVALID_VALUE);
        }
        api.driver.memory.ahead.share();
        pHandle.set(handle_of(calls::cuIpcGetMemHandle(&mut api.in_context()?, DevicePtr(dptr))?))
    }

    /// Opens memory that another process has exported.
    call cuIpcOpenMemHandle(api, pdptr: Out<u64>, handle: CUipcMemHandle, Flags: u32) {
        open_memory(api, pdptr, handle, Flags)
    }

    /// Opens memory that another process has exported.
    call cuIpcOpenMemHandle_v2(api, pdptr: Out<u64>, handle: CUipcMemHandle, Flags: u32) {
        open_memory(api, pdptr, handle, Flags)
    }

    /// Closes opened memory. The last close of several unmaps it.
    call cuIpcCloseMemHandle(api, dptr: u64) {
        if calls::cuIpcCloseMemHandle(&mut api.in_context()?, DevicePtr(dptr))? != 0 {
            api.driver.memory.ranges.take_device(dptr, |range| range.owner == IPC_OWNER);
        }
        Ok(())
    }

    /// Exports an event to other processes.
    call cuIpcGetEventHandle(api, pHandle: Out<CUipcMemHandle>, event: u64) {
        pHandle.check()?;
        if event == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        pHandle.set(handle_of(calls::cuIpcGetEventHandle(&mut api.in_context_of_event(event)?, EventId(event))?))
    }

    /// Opens an event that another process has exported.
    call cuIpcOpenEventHandle(api, phEvent: Out<u64>, handle: CUipcMemHandle) {
        phEvent.check()?;
        let context = api.context()?.0;
        let event = new_handle(Kind::Event);
        let token = token_of_handle(&handle).map_err(|_| CudaError::MAP_FAILED)?;
        calls::cuIpcOpenEventHandle(&mut api.call(), EventId(event), token)?;
        api.driver.events.add_shared(event, context);
        phEvent.set(event)
    }

    /// Exports an allocation of `cuMemCreate` to other processes, as a file descriptor.
    call cuMemExportToShareableHandle(api, shareableHandle: Out<i32>, handle: u64, handleType: u32, flags: u64) {
        shareableHandle.check()?;
        match handleType {
            HANDLE_TYPE_FILE => {}
            2 | 4 | 8 => return Err(CudaError::NOT_SUPPORTED),
            _ => return Err(CudaError::INVALID_VALUE),
        }
        if flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let token = calls::cuMemExportToShareableHandle(&mut api.call(), AllocationId(handle))?;
        shareableHandle.set(file_of(token).map_err(|_| CudaError::OUT_OF_MEMORY)?.into_raw_fd())
    }

    /// Opens an allocation that another process has exported. The file descriptor stays the program's.
    call cuMemImportFromShareableHandle(api, handle: Out<u64>, osHandle: HostPtr, shHandleType: u32) {
        handle.check()?;
        match shHandleType {
            HANDLE_TYPE_FILE => {}
            // Handles of Windows and of fabrics.
            2 | 4 | 8 => return Err(CudaError::NOT_SUPPORTED),
            _ => return Err(CudaError::INVALID_VALUE),
        }
        let descriptor = osHandle.address() as i32;
        if descriptor < 0 {
            return Err(CudaError::UNKNOWN);
        }
        let token = token_in(descriptor)?;
        let name = new_handle(Kind::Other);
        calls::cuMemImportFromShareableHandle(&mut api.call(), AllocationId(name), token)?;
        if api.driver.devices.hides_any() {
            of_allocation(api, name).inspect_err(|_| {
                let _ = calls::cuMemRelease(&mut api.internal().call(), AllocationId(name));
            })?;
        }
        handle.set(name)
    }
}
