// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The launch calls of CUDA 3: a function keeps its block, its shared memory and its parameters between calls.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use super::Shape;
use super::api::submit;
use super::prepared::Prepared;
use crate::driver::ffi::In;
use crate::driver::handle::Handle;
use crate::driver::module::function::{self, CUfunction};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::{self, CUstream};

/// The maximum bytes of parameters that these calls can set.
const MAX_PARAMETERS: usize = 4096;
/// An upper bound for the dynamic shared memory of any device, in bytes.
const MAX_SHARED: u32 = 256 << 10;
const MAX_BLOCK: [c_int; 3] = [1024, 1024, 64];
const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

fn set(handle: CUfunction, change: impl FnOnce(&mut Prepared) -> CuResult<()>) -> CuResult<()> {
    let function = function::find(handle)?;
    let prepared: &Mutex<Prepared> = &function.prepared;
    change(&mut prepared.lock().unwrap_or_else(PoisonError::into_inner))
}

fn set_block(handle: CUfunction, x: c_int, y: c_int, z: c_int) -> CuResult<()> {
    if handle == Handle::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    if [x, y, z].iter().zip(MAX_BLOCK).any(|(size, most)| !(1..=most).contains(size)) {
        return Err(INVALID);
    }
    set(handle, |prepared| {
        prepared.block = [x as u32, y as u32, z as u32];
        Ok(())
    })
}

fn set_shared(handle: CUfunction, bytes: u32) -> CuResult<()> {
    set(handle, |prepared| {
        prepared.shared = bytes;
        if bytes < MAX_SHARED { Ok(()) } else { Err(INVALID) }
    })
}

fn set_size(handle: CUfunction, bytes: u32) -> CuResult<()> {
    set(handle, |prepared| {
        prepared.parameter_bytes = bytes;
        Ok(())
    })
}

fn set_bytes(handle: CUfunction, offset: c_int, value: &[u8]) -> CuResult<()> {
    set(handle, |prepared| {
        let start = usize::try_from(offset).ok().filter(|start| *start < MAX_PARAMETERS).ok_or(INVALID)?;
        let end = start.checked_add(value.len()).filter(|end| *end <= MAX_PARAMETERS).ok_or(INVALID)?;
        let parameters = &mut prepared.parameters;
        parameters.resize(parameters.len().max(end), 0);
        parameters[start..end].copy_from_slice(value);
        Ok(())
    })
}

fn set_integer(handle: CUfunction, offset: c_int, value: u32) -> CuResult<()> {
    set_bytes(handle, offset, &value.to_ne_bytes())
}

fn set_float(handle: CUfunction, offset: c_int, value: f32) -> CuResult<()> {
    set_bytes(handle, offset, &value.to_ne_bytes())
}

fn set_any(handle: CUfunction, offset: c_int, from: In<u8>, bytes: u32) -> CuResult<()> {
    function::find(handle)?;
    if bytes as usize > MAX_PARAMETERS {
        return Err(INVALID);
    }
    let value: Vec<u8> = (0..bytes as usize).map(|index| from.at(index)).collect::<CuResult<_>>()?;
    set_bytes(handle, offset, &value)
}

fn launch(handle: CUfunction) -> CuResult<()> {
    launch_grid_async(handle, 1, 1, Handle::NULL)
}

fn launch_grid(handle: CUfunction, width: c_int, height: c_int) -> CuResult<()> {
    launch_grid_async(handle, width, height, Handle::NULL)
}

fn launch_grid_async(handle: CUfunction, width: c_int, height: c_int, stream: CUstream) -> CuResult<()> {
    if handle == Handle::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    stream::with_stream(stream)?;
    if width <= 0 || height <= 0 {
        return Err(INVALID);
    }
    let function = function::find(handle)?;
    let (shape, mut parameters) = {
        let prepared = function.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = prepared.parameter_bytes as usize;
        if bytes > MAX_PARAMETERS {
            return Err(INVALID);
        }
        let mut parameters = prepared.parameters.clone();
        parameters.resize(bytes, 0);
        let (grid, block, shared) = ([width as u32, height as u32, 1], prepared.block, prepared.shared);
        (Shape { grid, block, shared, cooperative: false, cluster: None }, parameters)
    };
    // CU_LAUNCH_PARAM_BUFFER_POINTER, ..._BUFFER_SIZE, ..._END
    let mut bytes = parameters.len();
    let (pointer, size) = (std::ptr::without_provenance_mut(1), std::ptr::without_provenance_mut(2));
    let extra: [*mut c_void; 5] =
        [pointer, parameters.as_mut_ptr().cast(), size, (&raw mut bytes).cast(), std::ptr::null_mut()];
    // SAFETY: the list and what it points to are locals, which outlive the call: it copies the parameters.
    let extra = unsafe { In::new(extra.as_ptr()) };
    submit(handle, shape, stream, In::NULL, extra)
}

crate::driver::ffi::entries! { after_init
    cuFuncSetBlockShape => set_block(function: CUfunction, x: c_int, y: c_int, z: c_int);
    cuFuncSetSharedSize => set_shared(function: CUfunction, bytes: u32);
    cuParamSetSize => set_size(function: CUfunction, bytes: u32);
    cuParamSeti => set_integer(function: CUfunction, offset: c_int, value: u32);
    cuParamSetf => set_float(function: CUfunction, offset: c_int, value: f32);
    cuParamSetv => set_any(function: CUfunction, offset: c_int, from: In<u8>, bytes: u32);
    cuLaunch => launch(function: CUfunction);
    cuLaunchGrid => launch_grid(function: CUfunction, width: c_int, height: c_int);
    cuLaunchGridAsync => launch_grid_async(function: CUfunction, width: c_int, height: c_int, stream: CUstream);
}
