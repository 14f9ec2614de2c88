// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Modules and libraries, and the answers about them that stay the same.

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
    /// Context that a module was loaded in; 0 for a library, which belongs to all.
    pub context: u64,
    /// Functions or kernels by name.
    pub functions: HashMap<CString, u64>,
    /// Variables by context and name.
    pub variables: HashMap<(u64, CString), Variable>,
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

    /// Notes a module (with its context) or library (0) that now exists.
    pub fn add(&self, handle: u64, context: u64) {
        self.lock().insert(handle, Module { context, ..Default::default() });
    }

    /// Looks at or changes one; `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn with<T>(&self, handle: u64, body: impl FnOnce(&mut Module) -> T) -> Result<T, CudaError> {
        self.lock().get_mut(&handle).map(body).ok_or(CudaError::INVALID_HANDLE)
    }

    /// Forgets one.
    pub fn remove(&self, handle: u64) -> Result<Module, CudaError> {
        self.lock().remove(&handle).ok_or(CudaError::INVALID_HANDLE)
    }

    /// Forgets the modules of a destroyed context, and what libraries had in it. Answers the modules.
    pub fn forget_context(&self, context: u64) -> Vec<u64> {
        let mut modules = self.lock();
        for module in modules.values_mut() {
            module.variables.retain(|(of, _), _| *of != context);
            module.modules.remove(&context);
            module.kernel_functions.retain(|(of, _), _| *of != context);
        }
        modules.extract_if(|_, module| module.context == context).map(|(handle, _)| handle).collect()
    }

    /// The function of that name, if it was asked for before.
    pub fn function(&self, handle: u64, name: &CStr) -> Result<Option<u64>, CudaError> {
        self.with(handle, |module| module.functions.get(name).copied())
    }

    /// The variable of that name, if it was asked for before in that context.
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
