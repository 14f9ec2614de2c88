// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans of cuDNN. A program chooses one of those that the library proposes, and gives it as much memory as it asks for. When the same
//! proposals are asked for again, in another process, the plan must be the same.

use super::Vendor;
use super::invoke::call_with_integers;
use crate::gpu::{CuResult, CudaError};

const GETTER: &str = "cudnnBackendGetAttribute";
/// `CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE`, of `CUDNN_TYPE_INT64`.
const WORKSPACE_SIZE: (u64, u64) = (402, 3);

impl Vendor {
    /// Returns what is known of a finalised plan, as bytes that are equal for equal plans.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE` if there is no such plan, `CUDA_ERROR_UNKNOWN` if the library does not answer.
    pub fn plan(&self, library: u32, kind: u32, id: u64) -> CuResult<Vec<u8>> {
        let loaded = self.get(library)?;
        let plan = loaded.handles.kind(kind as usize)?.get(id)?;
        let (mut count, mut bytes) = (0_i64, 0_i64);
        let (name, of) = WORKSPACE_SIZE;
        let place = [&raw mut count as u64, &raw mut bytes as u64];
        let function = loaded.rows.functions.iter().position(|function| function.name == GETTER);
        let function = function.and_then(|function| loaded.address(function)).ok_or(CudaError::NOT_FOUND)?;
        let arguments = [plan.raw::<u8>() as u64, name, of, 1, place[0], place[1]];
        // SAFETY: the function takes a descriptor, which `plan` keeps, two numbers, a count of elements, and places for the count and
        // for one element of eight bytes.
        match unsafe { call_with_integers(function, &arguments) } {
            Some(status) if status == loaded.rows.statuses.success => Ok(bytes.to_le_bytes().to_vec()),
            _ => Err(CudaError::UNKNOWN),
        }
    }
}
