// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver API for the tests, and a program's usual first steps.
#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "only tests call these functions, with handles and parameters of their own"
)]

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use cuda_emulator as _;

/// Any handle of the API.
pub type Opaque = *mut c_void;

/// The driver API.
mod declared {
    use cuda_abi::prototypes::types::*;

    use super::Opaque;

    type CUarray = Opaque;
    type CUcontext = Opaque;
    type CUevent = Opaque;
    type CUfunction = Opaque;
    type CUgraph = Opaque;
    type CUgraphExec = Opaque;
    type CUgraphNode = Opaque;
    type CUkernel = Opaque;
    type CUlibrary = Opaque;
    type CUlinkState = Opaque;
    type CUmemoryPool = Opaque;
    type CUmipmappedArray = Opaque;
    type CUmodule = Opaque;
    type CUstream = Opaque;
    type CUuserObject = Opaque;

    // Takes the rows of `prototypes!`.
    macro_rules! declare {
        ($(fn $name:ident($($parameter:ident: $t:ty),* $(,)?);)*) => {
            unsafe extern "C" { $(#[doc = concat!("`", stringify!($name), "`.")] pub fn $name($($parameter: $t),*) -> CUresult;)* }
        };
    }
    cuda_abi::prototypes!(declare);
}
pub use declared::*;

/// Calls an API function with the test's own arguments. It is no function: the number of arguments differs.
#[doc(hidden)]
#[macro_export]
macro_rules! driver_call {
    ($function:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: all pointers are to variables of the calling test that outlive the work.
        unsafe { $crate::cu::$function($($arg),*) }
    };
}
pub use crate::driver_call as cu;

/// The addresses of kernel arguments, for cuLaunchKernel. It is no function: the arguments are of any types.
#[doc(hidden)]
#[macro_export]
macro_rules! kernel_params {
    ($($arg:expr),* $(,)?) => {
        [$(std::ptr::from_ref(&$arg).cast_mut().cast::<std::ffi::c_void>()),*].as_mut_ptr()
    };
}
pub use crate::kernel_params as params;

/// The kernels of `data/driver.cu`.
pub const PTX: &str = concat!(include_str!("../../tests/data/driver.ptx"), "\0");

/// Makes the primary context current.
pub fn use_primary_context() -> Opaque {
    let mut context = null_mut();
    assert_eq!(cu!(cuInit(0)), 0);
    assert_eq!(cu!(cuDevicePrimaryCtxRetain(&mut context, 0)), 0);
    assert_eq!(cu!(cuCtxSetCurrent(context)), 0);
    context
}

/// `data/driver.cu` loaded as a module.
pub fn load_module() -> Opaque {
    use_primary_context();
    let mut module = null_mut();
    assert_eq!(cu!(cuModuleLoadData(&mut module, PTX.as_ptr().cast())), 0);
    module
}

/// A function of a module.
pub fn function(module: Opaque, name: &str) -> Opaque {
    let name = CString::new(name).unwrap();
    let mut function = null_mut();
    assert_eq!(cu!(cuModuleGetFunction(&mut function, module, name.as_ptr())), 0);
    function
}

/// Device memory with these bytes.
pub fn upload<T>(values: &[T]) -> u64 {
    let mut ptr = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&mut ptr, size_of_val(values))), 0);
    assert_eq!(cu!(cuMemcpyHtoD_v2(ptr, values.as_ptr().cast(), size_of_val(values))), 0);
    ptr
}

/// Returns the contents of device memory.
pub fn download<T: Default + Clone>(ptr: u64, count: usize) -> Vec<T> {
    let mut values = vec![T::default(); count];
    assert_eq!(cu!(cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), ptr, size_of_val(&values[..]))), 0);
    values
}

/// Launches a grid of one dimension.
pub fn launch(function: Opaque, grid: u32, block: u32, shared: u32, params: *mut *mut c_void) -> c_int {
    launch_in(null_mut(), function, grid, block, shared, params)
}

/// The same in a stream.
pub fn launch_in(
    stream: Opaque,
    function: Opaque,
    grid: u32,
    block: u32,
    shared: u32,
    params: *mut *mut c_void,
) -> c_int {
    cu!(cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream, params, null_mut()))
}
