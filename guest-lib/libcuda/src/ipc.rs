// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sharing between processes of a guest. A handle contains a token of the device in the form that programs expect: 64
//! bytes, or a file descriptor.

use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;

use cuda_abi::CUipcMemHandle;
use virtio_cuda_client::protocol::{AllocationId, DevicePtr, EventId};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, Out};
use crate::handles::{Kind, new_handle};
use crate::state::memory::ranges::DeviceRange;
use crate::vmm::of_allocation;

/// The first bytes of this library's handles.
const MAGIC: [u8; 8] = *b"vcudaipc";
const TOKEN_BYTES: usize = 16;
const TOKEN_END: usize = MAGIC.len() + TOKEN_BYTES;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const HANDLE_TYPE_FILE: u32 = 1;
/// Owner of opened memory in the table of ranges. No handle has this value.
const IPC_OWNER: u64 = 1;

type Token = [u8; TOKEN_BYTES];

/// Returns the handle for a token: a `CUipcMemHandle`, `CUipcEventHandle` or `CUmemPoolPtrExportData`.
pub fn handle_of(token: Token) -> CUipcMemHandle {
    let mut reserved = [0; 64];
    reserved[..MAGIC.len()].copy_from_slice(&MAGIC);
    reserved[MAGIC.len()..TOKEN_END].copy_from_slice(&token);
    CUipcMemHandle { reserved }
}

/// Returns the token in a handle of this library.
pub fn token_of_handle(handle: &CUipcMemHandle) -> Result<Token, CudaError> {
    token_of(&handle.reserved[..TOKEN_END])
}

fn token_of(bytes: &[u8]) -> Result<Token, CudaError> {
    let token = bytes.strip_prefix(&MAGIC).and_then(|token| token.try_into().ok());
    token.ok_or(CudaError::INVALID_VALUE)
}

/// Creates a file that contains only a token, to be passed to another process.
pub fn file_of(token: Token) -> std::io::Result<File> {
    // SAFETY: the name is a C string; a descriptor that is returned is new and has no other owner.
    let mut file = unsafe {
        match libc::memfd_create(c"cuda-allocation".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(std::io::Error::last_os_error()),
            fd => File::from_raw_fd(fd),
        }
    };
    file.write_all(&MAGIC)?;
    file.write_all(&token)?;
    Ok(file)
}

/// Reads the token in a file of the program, which stays open.
pub fn token_in(descriptor: i32) -> Result<Token, CudaError> {
    if descriptor < 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: the program says that it is an open descriptor; it is only read, and not closed.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let mut bytes = [0; TOKEN_END];
    file.read_exact_at(&mut bytes, 0).map_err(|_| CudaError::INVALID_VALUE)?;
    token_of(&bytes)
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn tokens_survive_both_forms_and_nothing_else_is_one() {
        let token = *b"0123456789abcdef";
        assert_eq!(token_of_handle(&handle_of(token)), Ok(token));
        assert_eq!(token_of_handle(&CUipcMemHandle { reserved: [7; 64] }), Err(CudaError::INVALID_VALUE));
        let file = file_of(token).expect("memory for a file");
        assert_eq!(token_in(file.as_raw_fd()), Ok(token));
        let other = File::open("/proc/self/exe").expect("exists");
        assert_eq!(token_in(other.as_raw_fd()), Err(CudaError::INVALID_VALUE));
        assert_eq!(token_in(-1), Err(CudaError::INVALID_VALUE));
    }
}
