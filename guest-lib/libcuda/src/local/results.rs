// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The functions that name and describe `CUresult`s.

use virtio_cuda_client::CudaError;

use crate::entry::CUresult;
use crate::entry::result_texts::find;
use crate::entry_points;
use crate::ffi::Out;

entry_points! {
    /// Returns the name of a result. An unknown result yields NULL and `CUDA_ERROR_INVALID_VALUE`.
    always cuGetErrorName(_, error: CUresult, pStr: Out<*const i8>) {
        let row = find(error);
        pStr.set(row.map_or(std::ptr::null(), |row| row.1.as_ptr()))?;
        row.map(|_| ()).ok_or(CudaError::INVALID_VALUE)
    }

    /// Returns the description of a result. An unknown result yields NULL and `CUDA_ERROR_INVALID_VALUE`.
    always cuGetErrorString(_, error: CUresult, pStr: Out<*const i8>) {
        let row = find(error);
        pStr.set(row.map_or(std::ptr::null(), |row| row.2.as_ptr()))?;
        row.map(|_| ()).ok_or(CudaError::INVALID_VALUE)
    }
}
