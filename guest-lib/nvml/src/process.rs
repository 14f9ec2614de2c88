// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of this machine that use the device: those that have its device node open. Only the host knows the memory
//! of each, under different process ids.

use std::fs;
use std::path::Path;

use cuda_abi::nvmlProcessInfo_v2_t;

use crate::error::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT, Result,
};
use crate::pointers::Out;
use crate::state::{self, nvmlDevice_t};

const DEVICE_NODE: &str = "/dev/virtio-cuda";
/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: u64 = u64::MAX;

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessInfoV1 {
    pid: u32,
    usedGpuMemory: u64,
}

/// `nvmlProcessDetail_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessDetail {
    pid: u32,
    usedGpuMemory: u64,
    gpuInstanceId: u32,
    computeInstanceId: u32,
    usedGpuCcProtectedMemory: u64,
}

#[repr(C)]
pub struct nvmlProcessDetailList_v1_t {
    version: u32,
    mode: u32,
    numProcArrayEntries: u32,
    procArray: *mut ProcessDetail,
}
const _: () = assert!(size_of::<nvmlProcessDetailList_v1_t>() == 24);

/// The list type of compute processes; other types are for graphics and MPS.
const COMPUTING: u32 = 0;
const LAST_MODE: u32 = 2;

/// Returns the processes that have the device node open, as far as this process may see them. This process counts if it
/// has opened the node outside this library, too.
fn users_of_device() -> Vec<u32> {
    let own = std::process::id();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let open = files
            .filter(|file| fs::read_link(file.path()).is_ok_and(|target| target == Path::new(DEVICE_NODE)));
        open.count() > usize::from(pid == own)
    })
    .collect()
}

/// # Safety
/// `list` is null or has room for `count` entries.
unsafe fn list_processes<T>(
    device: nvmlDevice_t,
    count: Out<u32>,
    list: *mut T,
    entry: impl Fn(u32) -> T,
) -> Result {
    state::device(device)?;
    let room = count.get()? as usize;
    let pids = users_of_device();
    count.set(pids.len() as u32)?;
    if pids.len() > room {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    if list.is_null() && !pids.is_empty() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    for (index, &pid) in pids.iter().enumerate() {
        // SAFETY: `index` is below `room`, so by this function's contract inside of the list, which is not null.
        unsafe { list.add(index).write(entry(pid)) };
    }
    Ok(())
}

fn v1(pid: u32) -> ProcessInfoV1 {
    ProcessInfoV1 { pid, usedGpuMemory: NOT_AVAILABLE }
}

fn v2(pid: u32) -> nvmlProcessInfo_v2_t {
    // There are no MIG instances.
    nvmlProcessInfo_v2_t {
        pid,
        pad: 0,
        used: NOT_AVAILABLE,
        gpu_instance: u32::MAX,
        compute_instance: u32::MAX,
    }
}

fn detail(pid: u32) -> ProcessDetail {
    ProcessDetail {
        pid,
        usedGpuMemory: NOT_AVAILABLE,
        gpuInstanceId: u32::MAX,
        computeInstanceId: u32::MAX,
        usedGpuCcProtectedMemory: NOT_AVAILABLE,
    }
}

/// An empty list: no process uses graphics.
fn nobody(device: nvmlDevice_t, count: Out<u32>) -> Result {
    state::device(device)?;
    count.set(0)
}

api! {
    fn nvmlDeviceGetComputeRunningProcesses(device: nvmlDevice_t, count: Out<u32>, list: *mut ProcessInfoV1) {
        // SAFETY: the program promises room for as many entries as it says, or null.
        unsafe { list_processes(device, count, list, v1) }
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3(
        device: nvmlDevice_t, count: Out<u32>, list: *mut nvmlProcessInfo_v2_t,
    ) {
        // SAFETY: the program promises room for as many entries as it says, or null.
        unsafe { list_processes(device, count, list, v2) }
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(device: nvmlDevice_t, count: Out<u32>, _list: *mut ProcessInfoV1) {
        nobody(device, count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3(
        device: nvmlDevice_t, count: Out<u32>, _list: *mut nvmlProcessInfo_v2_t,
    ) {
        nobody(device, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses(device: nvmlDevice_t, count: Out<u32>, _list: *mut ProcessInfoV1) {
        nobody(device, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses_v3(
        device: nvmlDevice_t, count: Out<u32>, _list: *mut nvmlProcessInfo_v2_t,
    ) {
        nobody(device, count)
    }
    fn nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, list: *mut nvmlProcessDetailList_v1_t) {
        state::device(device)?;
        // SAFETY: the program promises a structure, or null.
        let list = unsafe { list.as_mut() }.ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        if list.version != size_of::<nvmlProcessDetailList_v1_t>() as u32 | 1 << 24 {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        // SAFETY: a member of the program's structure.
        let count = unsafe { Out::new(&raw mut list.numProcArrayEntries) };
        match list.mode {
            // SAFETY: the program promises room for as many entries as the structure says, or null.
            COMPUTING => unsafe { list_processes(device, count, list.procArray, detail) },
            mode if mode <= LAST_MODE => nobody(device, count),
            _ => Err(NVML_ERROR_INVALID_ARGUMENT),
        }
    }
}
