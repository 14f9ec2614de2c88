// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions and kernels: names, owners, and the layout of their parameters, which is queried from the device once.

use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use rustc_hash::FxHashMap;
use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::ParamLayout;

use crate::state::modules::answers::{Answers, Query};
use crate::state::modules::proven::ProvenShapes;

/// The origin of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A `CUmodule`.
    Module(u64),
    /// A `CUlibrary`: the function is a kernel.
    Library(u64),
    /// The function is that of a kernel in one context.
    Kernel(u64),
}

/// The parameters of a function.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// Offset and size of each parameter.
    pub layouts: Vec<ParamLayout>,
    /// Bytes of the packed block.
    pub block_bytes: usize,
}

/// Settings for the next launch.
#[derive(Debug)]
pub struct Prepared {
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub parameters: Vec<u8>,
    pub parameter_bytes: u32,
}

impl Default for Prepared {
    fn default() -> Self {
        Self { block: [1; 3], shared_bytes: 0, parameters: Vec::new(), parameter_bytes: 0 }
    }
}

/// A function or kernel.
#[derive(Debug)]
pub struct Function {
    /// Name. Callers of `cuFuncGetName` may use it as long as the module lives.
    pub name: CString,
    /// The origin.
    pub owner: Owner,
    /// Shapes of accepted launches.
    pub proven: ProvenShapes,
    /// Cached answers of the device to queries about it.
    pub answers: Answers,
    /// The settings of the CUDA 3 calls for the next launch.
    pub prepared: Mutex<Prepared>,
    pub parameters: OnceLock<Parameters>,
}

/// All functions by handle.
#[derive(Debug, Default)]
pub struct Functions(RwLock<FxHashMap<u64, Arc<Function>>>);

impl Functions {
    /// Adds a new function.
    pub fn add(&self, handle: u64, name: CString, owner: Owner) {
        let function = Arc::new(Function {
            name,
            owner,
            proven: ProvenShapes::default(),
            answers: Answers::default(),
            prepared: Mutex::default(),
            parameters: OnceLock::new(),
        });
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, function);
    }

    /// Returns the function of a handle.
    pub fn get(&self, handle: u64) -> Result<Arc<Function>, CudaError> {
        let functions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(&handle).cloned().ok_or(CudaError::INVALID_HANDLE)
    }

    /// Returns the cached answer to a query about a function, or that of the device, which `ask` requests.
    pub fn answer(
        &self,
        handle: u64,
        query: Query,
        ask: impl FnOnce() -> Result<i32, CudaError>,
    ) -> Result<i32, CudaError> {
        match self.get(handle) {
            Ok(function) => function.answers.get(query, ask),
            // The device knows what is wrong with it.
            Err(_) => ask(),
        }
    }

    /// Removes what is known about launches of a function or kernel. Must be called after a change of its attributes. A kernel
    /// shares them with its functions, and so do functions of one name in a module.
    pub fn attributes_changed(&self, handle: u64) {
        let functions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let kernel = match functions.get(&handle).map(|function| function.owner) {
            Some(Owner::Kernel(kernel)) => kernel,
            _ => handle,
        };
        let Some(changed) = functions.get(&kernel) else { return };
        for function in functions.values() {
            let same = function.owner == changed.owner && function.name == changed.name;
            if same || function.owner == Owner::Kernel(kernel) {
                function.proven.forget();
                function.answers.forget();
            }
        }
    }

    /// Removes the functions of an unloaded module or library, or those of a kernel.
    pub fn remove_of(&self, owner: Owner) {
        let mut functions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let removed: Vec<u64> =
            functions.iter().filter(|(_, one)| one.owner == owner).map(|(&handle, _)| handle).collect();
        functions.retain(|handle, one| {
            !removed.contains(handle)
                && !matches!(one.owner, Owner::Kernel(kernel) if removed.contains(&kernel))
        });
    }
}

#[cfg(test)]
mod tests {
    use virtio_cuda_client::protocol::LaunchShape;

    use super::*;

    #[test]
    fn changed_attributes_are_those_of_a_kernel_and_its_functions() {
        let functions = Functions::default();
        let shape = LaunchShape { block: [32, 1, 1], grid: [1, 1, 1], ..Default::default() };
        let owners = [
            Owner::Library(9),
            Owner::Kernel(1),
            Owner::Library(9),
            Owner::Module(9),
            Owner::Module(9),
            Owner::Module(8),
        ];
        let forgotten_by = |changed: u64| {
            for (handle, owner) in (1..).zip(owners) {
                let name = if handle == 3 { c"other" } else { c"name" };
                functions.add(handle, name.to_owned(), owner);
                functions.get(handle).expect("added").proven.add(shape);
            }
            functions.attributes_changed(changed);
            let forgotten = |handle: &u64| !functions.get(*handle).expect("added").proven.contains(shape);
            (1..=6).filter(forgotten).collect::<Vec<u64>>()
        };
        assert_eq!([1, 2, 3, 4, 6, 7].map(forgotten_by), [&[1, 2][..], &[1, 2], &[3], &[4, 5], &[6], &[]]);
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
