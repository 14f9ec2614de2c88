// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The launch calls of CUDA 3: a function stores its block shape, shared memory and parameters between calls.

use std::sync::{Arc, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::LaunchShape;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::In;
use crate::launch;
use crate::state::modules::functions::{Function, Prepared};

/// Maximum bytes of parameters that these calls can set.
const MAX_PARAMETER_BYTES: usize = 4096;
/// The driver refuses this much dynamic shared memory, and more, at once.
const MAX_SHARED_BYTES: u32 = 256 << 10;
/// Maximum block dimensions (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
const MAX_BLOCK: [i32; 3] = [1024, 1024, 64];

fn prepared(function: &Arc<Function>) -> MutexGuard<'_, Prepared> {
    function.prepared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set_parameter(api: Api, function: u64, offset: i32, value: &[u8]) -> Result<(), CudaError> {
    let function = api.driver.functions.get(function)?;
    let start = usize::try_from(offset).map_err(|_| CudaError::INVALID_VALUE)?;
    let end = start
        .checked_add(value.len())
        .filter(|&end| start < MAX_PARAMETER_BYTES && end <= MAX_PARAMETER_BYTES);
    let end = end.ok_or(CudaError::INVALID_VALUE)?;
    let parameters = &mut prepared(&function).parameters;
    parameters.resize(parameters.len().max(end), 0);
    parameters[start..end].copy_from_slice(value);
    Ok(())
}

fn launch(api: Api, function: u64, width: i32, height: i32, stream: u64) -> Result<(), CudaError> {
    if function == 0 {
        return Err(CudaError::INVALID_HANDLE);
    }
    api.context_of_stream(stream)?;
    if width <= 0 || height <= 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let known = api.driver.functions.get(function)?;
    let (shape, parameters) = {
        let prepared = prepared(&known);
        let bytes = prepared.parameter_bytes as usize;
        if bytes > MAX_PARAMETER_BYTES {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut parameters = prepared.parameters.clone();
        parameters.resize(bytes, 0);
        let grid = [width as u32, height as u32, 1];
        let (block, shared_bytes) = (prepared.block, prepared.shared_bytes);
        (LaunchShape { grid, block, shared_bytes, ..Default::default() }, parameters)
    };
    // CU_LAUNCH_PARAM_BUFFER_POINTER, ..._BUFFER_SIZE, ..._END
    let bytes = parameters.len();
    let extra = [1, parameters.as_ptr() as usize, 2, &raw const bytes as usize, 0];
    // SAFETY: the list, and the block and the length that it leads to, are locals that outlive the launch.
    let extra = unsafe { In::at_address(extra.as_ptr() as usize) };
    launch::launch(api, function, stream, shape, In::NULL, Some(extra))
}

entry_points! {
    /// Sets the block shape of the function's launches.
    call cuFuncSetBlockShape(api, hfunc: u64, x: i32, y: i32, z: i32) {
        if hfunc == 0 {
            return Err(CudaError::INVALID_HANDLE);
        }
        if [x, y, z].iter().zip(MAX_BLOCK).any(|(&size, most)| !(1..=most).contains(&size)) {
            return Err(CudaError::INVALID_VALUE);
        }
        prepared(&api.driver.functions.get(hfunc)?).block = [x as u32, y as u32, z as u32];
        Ok(())
    }

    /// Sets the dynamic shared memory of the function's launches.
    call cuFuncSetSharedSize(api, hfunc: u64, bytes: u32) {
        let function = api.driver.functions.get(hfunc)?;
        if bytes >= MAX_SHARED_BYTES {
            return Err(CudaError::INVALID_VALUE);
        }
        prepared(&function).shared_bytes = bytes;
        Ok(())
    }

    /// Sets the number of bytes of parameters that the function takes.
    call cuParamSetSize(api, hfunc: u64, numbytes: u32) {
        prepared(&api.driver.functions.get(hfunc)?).parameter_bytes = numbytes;
        Ok(())
    }

    /// Sets an integer parameter.
    call cuParamSeti(api, hfunc: u64, offset: i32, value: u32) {
        set_parameter(api, hfunc, offset, &value.to_ne_bytes())
    }

    /// Sets a parameter of type `float`.
    call cuParamSetf(api, hfunc: u64, offset: i32, value: f32) {
        set_parameter(api, hfunc, offset, &value.to_ne_bytes())
    }

    /// Sets parameters of any type.
    call cuParamSetv(api, hfunc: u64, offset: i32, ptr: In<u8>, numbytes: u32) {
        api.driver.functions.get(hfunc)?;
        if numbytes as usize > MAX_PARAMETER_BYTES {
            return Err(CudaError::INVALID_VALUE);
        }
        let value: Vec<u8> = (0..numbytes as usize).map(|index| ptr.at(index)).collect::<Result<_, _>>()?;
        set_parameter(api, hfunc, offset, &value)
    }

    /// Launches one block.
    call cuLaunch(api, f: u64) {
        launch(api, f, 1, 1, 0)
    }

    /// Launches a grid.
    call cuLaunchGrid(api, f: u64, grid_width: i32, grid_height: i32) {
        launch(api, f, grid_width, grid_height, 0)
    }

    /// Launches a grid in a stream.
    call cuLaunchGridAsync(api, f: u64, grid_width: i32, grid_height: i32, hStream: u64) {
        launch(api, f, grid_width, grid_height, hStream)
    }
}
