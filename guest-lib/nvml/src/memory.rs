// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory information, limited to this virtual machine's share.

use core::mem::size_of;

use cuda_abi::nvmlMemory_t;
use virtio_cuda_client::calls;

use crate::error::{NVML_ERROR_FUNCTION_NOT_FOUND, Result, of_call};
use crate::pointers::Out;
use crate::state::{self, nvmlDevice_t};

/// `NVML_STRUCT_VERSION(Memory, 2)`.
const MEMORY_V2: u32 = size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24;

#[repr(C)]
pub struct nvmlMemory_v2_t {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}
const _: () = assert!(size_of::<nvmlMemory_v2_t>() == 40);

/// Returns the total and the used bytes.
fn memory_of(device: nvmlDevice_t) -> Result<(u64, u64)> {
    let device = state::device(device)?;
    calls::nvml_memory(&mut state::call()?, device.ordinal()).map_err(of_call)
}

api! {
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: Out<nvmlMemory_t>) {
        let (total, used) = memory_of(device)?;
        memory.set(nvmlMemory_t { total, free: total.saturating_sub(used), used })
    }

    /// Other structure versions are refused as NVIDIA's library does: the function is not found.
    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: Out<nvmlMemory_v2_t>) {
        state::device(device)?;
        let version = memory.version()?;
        if version != MEMORY_V2 {
            return Err(NVML_ERROR_FUNCTION_NOT_FOUND);
        }
        let (total, used) = memory_of(device)?;
        memory.set(nvmlMemory_v2_t { version, total, reserved: 0, free: total.saturating_sub(used), used })
    }
}
