// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queries of kernels about the device, and their memory.

use super::caller::{Caller, End, for_each_thread, with_status};
use crate::code::{Handler, Instr};
use crate::execute::heap::release;
use crate::execute::state::{Flow, Machine};
use crate::nested::error::RuntimeError;
use crate::symbols::Kernel;

/// The version of the runtime whose device functions these are.
const RUNTIME_VERSION: u32 = 13000;
/// CUfunction_attribute of the fields of cudaFuncAttributes: three of 64 bits, four of 32.
const LONG_ATTRIBUTES: [u32; 3] = [1, 2, 3];
const SHORT_ATTRIBUTES: [u32; 4] = [0, 4, 5, 6];

pub(super) fn select(name: &str) -> Option<(Handler, usize)> {
    Some(match name {
        "GetLastError" => (get_last_error, 0),
        "PeekAtLastError" => (peek_at_last_error, 0),
        "GetErrorString" => (get_error_string, 1),
        "GetErrorName" => (get_error_name, 1),
        "GetDevice" => (get_device, 1),
        "GetDeviceCount" => (get_device_count, 1),
        "DeviceGetAttribute" => (get_attribute, 3),
        "DeviceGetLimit" => (get_limit, 2),
        "DeviceGetCacheConfig" => (get_cache_config, 1),
        "DeviceGetSharedMemConfig" => (get_shared_config, 1),
        "RuntimeGetVersion" => (get_version, 1),
        "FuncGetAttributes" => (get_function_attributes, 2),
        "OccupancyMaxActiveBlocksPerMultiprocessor" => (occupancy, 4),
        "OccupancyMaxActiveBlocksPerMultiprocessorWithFlags" => (occupancy, 5),
        "Malloc" => (allocate, 2),
        "Free" => (free, 1),
        _ => return None,
    })
}

impl<'m> Caller<'_, 'm> {
    fn store_word(&mut self, word: u32) -> Result<(), End> {
        let place = self.argument(0);
        self.store(place, word.to_le_bytes())
    }

    fn kernel_of(&self, address: u64) -> Result<&'m Kernel, End> {
        let grid = self.machine.grid;
        let name = &grid.code.functions[self.kernel(address)?].name;
        Ok(grid.launch.program.kernels.get(name).ok_or(RuntimeError::INVALID_DEVICE_FUNCTION)?)
    }
}

fn last_error(machine: &mut Machine<'_>, instr: &Instr, clear: bool) -> Flow {
    let body = |caller: &mut Caller<'_, '_>| {
        let (block, thread) = caller.thread();
        Ok(caller.machine.grid.children.error(block, thread, clear).into())
    };
    for_each_thread(machine, instr, body, |_| 0)
}

/// `cudaError_t cudaGetLastError(void)`
unsafe fn get_last_error(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    last_error(machine, instr, true)
}

/// `cudaError_t cudaPeekAtLastError(void)`
unsafe fn peek_at_last_error(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    last_error(machine, instr, false)
}

fn error_text(machine: &mut Machine<'_>, instr: &Instr, index: usize) -> Flow {
    let body = |caller: &mut Caller<'_, '_>| {
        let code = caller.argument(0) as u32;
        let grid = caller.machine.grid;
        Ok(grid.children.family().texts(grid.launch.memory, code)[index])
    };
    for_each_thread(machine, instr, body, |_| 0)
}

/// `const char *cudaGetErrorName(cudaError_t error)`
unsafe fn get_error_name(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    error_text(machine, instr, 0)
}

/// `const char *cudaGetErrorString(cudaError_t error)`
unsafe fn get_error_string(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    error_text(machine, instr, 1)
}

/// `cudaError_t cudaGetDevice(int *device)`
unsafe fn get_device(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let device = caller.machine.grid.launch.device;
        caller.store_word(device.ordinal() as u32)
    })
}

/// `cudaError_t cudaGetDeviceCount(int *count)`
unsafe fn get_device_count(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let device = caller.machine.grid.launch.device;
        caller.store_word(device.count() as u32)
    })
}

/// `cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)`
unsafe fn get_attribute(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (attribute, device) = (caller.argument(1) as i32, caller.argument(2) as i32);
        let value = caller.machine.grid.launch.device.attribute(attribute, device)?;
        caller.store_word(value as u32)
    })
}

/// `cudaError_t cudaDeviceGetLimit(size_t *value, cudaLimit limit)`
unsafe fn get_limit(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (place, limit) = (caller.argument(0), caller.argument(1) as u32);
        let value = caller.machine.grid.launch.device.limit(limit)?;
        caller.store(place, value.to_le_bytes())
    })
}

/// `cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache *config)`
unsafe fn get_cache_config(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let [cache, _] = caller.machine.grid.launch.device.configurations();
        caller.store_word(cache)
    })
}

/// `cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig *config)`
unsafe fn get_shared_config(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let [_, shared] = caller.machine.grid.launch.device.configurations();
        caller.store_word(shared)
    })
}

/// `cudaError_t cudaRuntimeGetVersion(int *version)`
unsafe fn get_version(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| caller.store_word(RUNTIME_VERSION))
}

/// `cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function)`: the first 40 bytes, as on
/// hardware.
unsafe fn get_function_attributes(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (place, function) = (caller.argument(0), caller.argument(1));
        let kernel = caller.kernel_of(function)?;
        let device = caller.machine.grid.launch.device;
        let mut bytes = [0; 40];
        for (field, attribute) in bytes.chunks_exact_mut(8).zip(LONG_ATTRIBUTES) {
            let value = device.function_attribute(kernel, attribute)?;
            field.copy_from_slice(&i64::from(value).to_le_bytes());
        }
        for (field, attribute) in bytes[24..].chunks_exact_mut(4).zip(SHORT_ATTRIBUTES) {
            field.copy_from_slice(&device.function_attribute(kernel, attribute)?.to_le_bytes());
        }
        caller.store(place, bytes)
    })
}

/// `cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t
/// dynamic)`, and the variant with flags after these.
unsafe fn occupancy(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (function, threads, dynamic) =
            (caller.argument(1), caller.argument(2) as i32, caller.argument(3));
        let kernel = caller.kernel_of(function)?;
        let blocks = caller.machine.grid.launch.device.active_blocks(kernel, threads, dynamic)?;
        caller.store_word(blocks as u32)
    })
}

/// `cudaError_t cudaMalloc(void **pointer, size_t size)`: of the heap that malloc() has.
unsafe fn allocate(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (place, bytes) = (caller.argument(0), caller.argument(1));
        if place == 0 || bytes == 0 {
            return Err(RuntimeError::INVALID_VALUE.into());
        }
        let base = caller.machine.grid.launch.memory.heap_allocate(bytes);
        caller.store(place, base.ok_or(RuntimeError::MEMORY_ALLOCATION)?.to_le_bytes())
    })
}

/// `cudaError_t cudaFree(void *pointer)`
unsafe fn free(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    // SAFETY: the contract of `Handler` is that of `release`; both have the pointer as their only argument.
    match unsafe { release(machine, instr) } {
        Flow::Next => with_status(machine, instr, |_| Ok(())),
        flow => flow,
    }
}
