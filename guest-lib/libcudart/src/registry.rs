// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `__cudaRegister*` functions. Constructors that nvcc generates call them before main.
//!
//! Constructors also run in programs that never use the GPU, so nothing here contacts the driver. Each registered image
//! is a [`Module`], which is found by the host address of a kernel stub or a shadow variable.

use core::ffi::{c_char, c_int, c_void};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::module::{Function, Module, Variable};
use crate::state;

#[derive(Default)]
struct Registry {
    /// The modules by the handle that __cudaRegisterFatBinary returned: the address of the module.
    modules: HashMap<usize, Arc<Module>>,
    /// The functions by the address of the kernel's stub in the program.
    functions: HashMap<usize, Arc<Function>>,
    /// The variables by the address of their shadow in the program. A managed variable is found by the address of its
    /// pointer.
    variables: HashMap<usize, Arc<Variable>>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

fn read() -> RwLockReadGuard<'static, Registry> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the kernel whose stub is at this address.
pub fn function(stub: *const c_void) -> Option<Arc<Function>> {
    read().functions.get(&stub.addr()).cloned()
}

/// Returns the variable whose shadow is at this address. Programs pass the value's address of a managed variable, which
/// is known once it is allocated.
pub fn variable(shadow: *const c_void) -> Option<Arc<Variable>> {
    let registry = read();
    let found = registry.variables.get(&shadow.addr()).cloned();
    found.or_else(|| registry.variables.values().find(|variable| variable.is_managed_at(shadow)).cloned())
}

/// Returns the module of a handle from __cudaRegisterFatBinary.
pub fn module(handle: *mut *mut c_void) -> Option<Arc<Module>> {
    read().modules.get(&handle.addr()).cloned()
}

/// Returns every registered module.
pub fn modules() -> Vec<Arc<Module>> {
    read().modules.values().cloned().collect()
}

/// Returns every registered variable.
pub fn variables() -> Vec<Arc<Variable>> {
    read().variables.values().cloned().collect()
}

/// Returns every registered kernel with the address of its stub.
pub fn functions() -> Vec<(usize, Arc<Function>)> {
    read().functions.iter().map(|(&stub, function)| (stub, Arc::clone(function))).collect()
}

/// A copy of a name; empty if it is longer than any name.
///
/// # Safety
/// `name` is a string that ends with NUL, or null.
pub unsafe fn owned_name(name: *const c_char) -> CString {
    if name.is_null() {
        return CString::default();
    }
    // SAFETY: not null, so a string by this function's contract.
    unsafe { cuda_program::text(name) }.unwrap_or_default()
}

/// `wrapper` is the program's `__fatBinC_Wrapper_t`, which stays in place until it is unregistered.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(wrapper: *const c_void) -> *mut *mut c_void {
    state::expect_exit();
    let module = Arc::new(Module::new(wrapper));
    let handle = Arc::as_ptr(&module) as *mut *mut c_void;
    write().modules.insert(handle.addr(), module);
    handle
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) {
    let mut registry = write();
    let Some(module) = registry.modules.remove(&handle.addr()) else { return };
    registry.functions.retain(|_, function| !function.is_in(&module));
    registry.variables.retain(|_, variable| !variable.is_in(&module));
    drop(registry);
    if !state::is_unloading() && state::is_initialized() {
        module.unload();
    }
}

/// Registers a kernel, by the address of its stub.
///
/// # Safety
///
/// `device_name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterFunction(
    handle: *mut *mut c_void,
    stub: *const c_void,
    _device_function: *mut c_char,
    device_name: *const c_char,
    _thread_limit: c_int,
    _tid: *mut c_void,
    _bid: *mut c_void,
    _block_dim: *mut c_void,
    _grid_dim: *mut c_void,
    _warp_size: *mut c_int,
) {
    let Some(module) = module(handle) else { return };
    // SAFETY: null or a C string by this function's contract; nvcc's constructors pass a literal.
    let name = unsafe { owned_name(device_name) };
    write().functions.insert(stub.expose_provenance(), Arc::new(Function::new(module, name)));
}

/// Registers a variable, by its address in the program.
///
/// # Safety
///
/// `device_name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterVar(
    handle: *mut *mut c_void,
    shadow: *mut c_char,
    _device_address: *mut c_char,
    device_name: *const c_char,
    _ext: c_int,
    _size: usize,
    _constant: c_int,
    _global: c_int,
) {
    let Some(module) = module(handle) else { return };
    // SAFETY: null or a C string by this function's contract; nvcc's constructors pass a literal.
    let name = unsafe { owned_name(device_name) };
    write().variables.insert(shadow.addr(), Arc::new(Variable::new(module, name)));
}

/// `pointer` is where the program keeps the address of its managed variable; it is filled when the variable
/// gets one.
///
/// # Safety
///
/// `device_name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterManagedVar(
    handle: *mut *mut c_void,
    pointer: *mut *mut c_void,
    _device_address: *mut c_char,
    device_name: *const c_char,
    _ext: c_int,
    _size: usize,
    _constant: c_int,
    _global: c_int,
) {
    let Some(module) = module(handle) else { return };
    // SAFETY: null or a C string by this function's contract; nvcc's constructors pass a literal.
    let name = unsafe { owned_name(device_name) };
    let variable = Arc::new(Variable::managed(module, name, pointer));
    write().variables.insert(pointer.addr(), Arc::clone(&variable));
    variable.announce();
}

/// Host code may register host variables for device code; this library does not need them.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterHostVar(
    _handle: *mut *mut c_void,
    _name: *const c_char,
    _variable: *mut c_char,
    _size: usize,
) {
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterUnifiedTable(_handle: *mut *mut c_void, _table: *mut c_void) {}
