// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Modules and libraries, and their constant properties.

pub mod answers;
pub mod functions;
pub mod links;
pub mod proven;

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;

/// A variable's address and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Device pointer.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// One module or library.
#[derive(Debug, Default)]
pub struct Module {
    /// Context in which a module was loaded; 0 for a library, which belongs to all contexts.
    pub context: u64,
    /// Functions or kernels by name.
    pub functions: HashMap<CString, u64>,
    /// Variables by context and name.
    pub variables: HashMap<(u64, CString), Variable>,
    /// For a library: variables by context and name that have a number for copies instead of an address.
    pub named: HashMap<(u64, CString), Variable>,
    /// For a library: its module in each context.
    pub modules: HashMap<u64, u64>,
    /// For a library: the function of each kernel in each context.
    pub kernel_functions: HashMap<(u64, u64), u64>,
}

/// All modules and libraries by handle: their handles come from one sequence.
#[derive(Debug, Default)]
pub struct Modules(Mutex<HashMap<u64, Module>>);

impl Modules {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Module>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new module (with its context) or library (context 0).
    pub fn add(&self, handle: u64, context: u64) {
        self.lock().insert(handle, Module { context, ..Default::default() });
    }

    /// Calls `body` with a module or library. Errors: `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn with<T>(&self, handle: u64, body: impl FnOnce(&mut Module) -> T) -> Result<T, CudaError> {
        self.lock().get_mut(&handle).map(body).ok_or(CudaError::INVALID_HANDLE)
    }

    /// Removes a module or library.
    pub fn remove(&self, handle: u64) -> Result<Module, CudaError> {
        self.lock().remove(&handle).ok_or(CudaError::INVALID_HANDLE)
    }

    /// Removes the modules of a destroyed context, and the state of libraries in it. Returns the modules.
    pub fn forget_context(&self, context: u64) -> Vec<u64> {
        let mut modules = self.lock();
        for module in modules.values_mut() {
            module.variables.retain(|(of, _), _| *of != context);
            module.named.retain(|(of, _), _| *of != context);
            module.modules.remove(&context);
            module.kernel_functions.retain(|(of, _), _| *of != context);
        }
        modules.extract_if(|_, module| module.context == context).map(|(handle, _)| handle).collect()
    }

    /// Returns the function with this name, if it was requested before.
    pub fn function(&self, handle: u64, name: &CStr) -> Result<Option<u64>, CudaError> {
        self.with(handle, |module| module.functions.get(name).copied())
    }

    /// Returns the variable with this name, if it was requested before in this context.
    pub fn variable(&self, handle: u64, context: u64, name: &CStr) -> Result<Option<Variable>, CudaError> {
        self.with(handle, |module| module.variables.get(&(context, name.to_owned())).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_takes_its_modules_along_but_not_libraries() {
        let modules = Modules::default();
        modules.add(1, 7);
        modules.add(2, 8);
        modules.add(3, 0);
        modules.with(3, |library| library.modules.insert(7, 40)).expect("exists");
        assert_eq!(modules.forget_context(7), [1]);
        assert!(modules.function(1, c"k").is_err());
        assert!(modules.function(2, c"k").is_ok());
        assert_eq!(modules.with(3, |library| library.modules.len()), Ok(0));
    }
}
