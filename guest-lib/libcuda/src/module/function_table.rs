// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions and kernels: names, owners, and the layout of their parameters, which the device is asked for
//! once.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use virtio_cuda_client::protocol::{FunctionId, ParamLayout, Reader, Wire};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::old_launch::Prepared;
use crate::post::ProvenShapes;

/// Parameters for which one reply has room at first.
const USUAL_PARAMETERS: usize = 64;
/// Bytes of a [`ParamLayout`] on the wire.
const LAYOUT_BYTES: usize = 8;
/// A kernel has at most 32,764 bytes of parameters, and each has at least one.
const MAX_PARAMETERS: usize = 32_764;

/// Where a function comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// `CUmodule`.
    Module(u64),
    /// `CUlibrary`: it is a kernel.
    Library(u64),
    /// The function of a kernel in one context.
    Kernel(u64),
}

/// The parameters of a function.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// Place and size of each.
    pub layouts: Vec<ParamLayout>,
    /// Bytes of the packed block.
    pub block_bytes: usize,
}

/// A function or kernel.
#[derive(Debug)]
pub struct Function {
    /// Its name; borrowed by `cuFuncGetName`'s callers, who may keep it as long as the module lives.
    pub name: CString,
    /// Where it comes from.
    pub owner: Owner,
    /// Shapes that it was launched in.
    pub proven: ProvenShapes,
    /// What the calls of CUDA 3 set for its next launch.
    pub prepared: Mutex<Prepared>,
    parameters: OnceLock<Parameters>,
}

/// All functions by handle.
#[derive(Debug, Default)]
pub struct Functions(RwLock<HashMap<u64, Arc<Function>>>);

impl Functions {
    /// Notes a function that now exists.
    pub fn add(&self, handle: u64, name: CString, owner: Owner) {
        let function = Arc::new(Function {
            name,
            owner,
            proven: ProvenShapes::default(),
            prepared: Mutex::default(),
            parameters: OnceLock::new(),
        });
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, function);
    }

    /// The function of a handle.
    pub fn get(&self, handle: u64) -> Result<Arc<Function>, CudaError> {
        let functions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(&handle).cloned().ok_or(CudaError::INVALID_HANDLE)
    }

    /// Attributes have changed, which a kernel shares with its functions.
    pub fn forget_proven_shapes(&self) {
        for function in self.0.read().unwrap_or_else(PoisonError::into_inner).values() {
            function.proven.forget();
        }
    }

    /// Forgets what an unloaded module or library, or the kernels of it, own.
    pub fn remove_of(&self, owner: Owner) {
        let mut functions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<u64> =
            functions.iter().filter(|(_, one)| one.owner == owner).map(|(&handle, _)| handle).collect();
        functions.retain(|handle, one| {
            !gone.contains(handle) && !matches!(one.owner, Owner::Kernel(kernel) if gone.contains(&kernel))
        });
    }
}

impl Function {
    /// The layout of the parameters.
    pub fn parameters(&self, api: Api, handle: u64) -> Result<&Parameters, CudaError> {
        if let Some(parameters) = self.parameters.get() {
            return Ok(parameters);
        }
        let fetched = fetch(api, handle)?;
        Ok(self.parameters.get_or_init(|| fetched))
    }
}

fn fetch(api: Api, handle: u64) -> Result<Parameters, CudaError> {
    let mut room = vec![0u8; USUAL_PARAMETERS * LAYOUT_BYTES];
    loop {
        let mut call = api.in_context()?.output(UserMemory::of_mut(&mut room));
        let count = calls::function_layout(&mut call, FunctionId(handle))? as usize;
        if count > MAX_PARAMETERS {
            return Err(CudaError::UNKNOWN);
        }
        if count * LAYOUT_BYTES > room.len() {
            room.resize(count * LAYOUT_BYTES, 0);
            continue;
        }
        return parse(&room[..count * LAYOUT_BYTES]);
    }
}

fn parse(bytes: &[u8]) -> Result<Parameters, CudaError> {
    let mut reader = Reader::new(bytes);
    let mut parameters = Parameters::default();
    while !reader.rest().is_empty() {
        let layout = ParamLayout::take(&mut reader).map_err(|_| CudaError::UNKNOWN)?;
        let end = layout.offset as usize + layout.bytes as usize;
        if end > MAX_PARAMETERS {
            return Err(CudaError::UNKNOWN);
        }
        parameters.block_bytes = parameters.block_bytes.max(end);
        parameters.layouts.push(layout);
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_ends_with_the_last_parameter() {
        // k1(float*, int, char, P{32}, short): the example of docs on cubins.
        let mut wire = Vec::new();
        for (offset, bytes) in [(0u32, 8u32), (8, 4), (12, 1), (16, 32), (48, 2)] {
            wire.extend(offset.to_le_bytes());
            wire.extend(bytes.to_le_bytes());
        }
        let parameters = parse(&wire).expect("valid");
        assert_eq!((parameters.layouts.len(), parameters.block_bytes), (5, 50));
        assert_eq!(parse(&[]).expect("valid").block_bytes, 0);
    }

    #[test]
    fn absurd_layout_is_refused() {
        let mut wire = u32::MAX.to_le_bytes().to_vec();
        wire.extend(1u32.to_le_bytes());
        assert!(parse(&wire).is_err());
    }

    #[test]
    fn unloading_takes_functions_of_kernels_along() {
        let functions = Functions::default();
        functions.add(1, CString::default(), Owner::Library(9));
        functions.add(2, CString::default(), Owner::Kernel(1));
        functions.add(3, CString::default(), Owner::Module(9));
        functions.remove_of(Owner::Library(9));
        assert!(functions.get(1).is_err() && functions.get(2).is_err());
        assert!(functions.get(3).is_ok());
    }
}
