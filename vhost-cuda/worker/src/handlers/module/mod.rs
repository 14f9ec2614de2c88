// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions and kernels: their memory and their parameters.

mod compiling;
pub mod image;
pub mod link;
mod linked;
pub mod variable;

use virtio_cuda_protocol::cuda::{FunctionId, ParamLayout, Wire, Writer};

use crate::call::CallContext;
use crate::gpu::{CUfunction, CuResult, CudaError};
use crate::objects::Kind;

/// The maximum number of parameters of a kernel: the one-byte parameters that fit the parameter block.
const MAX_PARAMS: usize = 32_764;

/// Returns the layout of a function's parameters.
pub fn function_layout(cx: &mut CallContext<'_>, function: FunctionId) -> CuResult<(u32,)> {
    let object = cx.session.objects.functions.get(function.0)?;
    let kind = object.kind();
    let raw: CUfunction = cx.held().keep(object);
    let parameter = |index| match kind {
        Kind::Kernel => cx.gpu().cuKernelGetParamInfo(raw as _, index),
        Kind::Plain => cx.gpu().cuFuncGetParamInfo(raw, index),
    };
    let mut layout = Vec::new();
    let mut count = 0;
    while count < MAX_PARAMS {
        // The driver returns INVALID_VALUE for the index after the last one.
        let (offset, bytes) = match parameter(count) {
            Ok(found) => found,
            Err(CudaError::INVALID_VALUE) => break,
            Err(error) => return Err(error),
        };
        let mut pair = [0; 8];
        let value = ParamLayout { offset: offset as u32, bytes: bytes as u32 };
        value.put(&mut Writer::new(&mut pair)).map_err(|_| CudaError::INVALID_VALUE)?;
        layout.extend_from_slice(&pair);
        count += 1;
    }
    // As much as the guest has room for. The count is the number that it needs.
    let room = cx.bulk_out.room() as usize / 8 * 8;
    layout.truncate(room);
    cx.bulk_out.put(&layout)?;
    Ok((count as u32,))
}
