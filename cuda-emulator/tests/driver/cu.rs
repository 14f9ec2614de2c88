// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C prototypes that the tests use, as in cuda.h, and a program's usual first steps.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use cuda_emulator as _;

/// Any handle of the API.
pub type Opaque = *mut c_void;

unsafe extern "C" {
    pub fn cuInit(flags: c_uint) -> c_int;
    pub fn cuDevicePrimaryCtxRetain(context: *mut Opaque, device: c_int) -> c_int;
    pub fn cuDevicePrimaryCtxReset_v2(device: c_int) -> c_int;
    pub fn cuCtxSetCurrent(context: Opaque) -> c_int;
    pub fn cuCtxCreate_v2(context: *mut Opaque, flags: c_uint, device: c_int) -> c_int;
    pub fn cuCtxSynchronize() -> c_int;
    pub fn cuModuleLoadData(module: *mut Opaque, image: *const c_void) -> c_int;
    pub fn cuModuleUnload(module: Opaque) -> c_int;
    pub fn cuModuleGetFunction(function: *mut Opaque, module: Opaque, name: *const c_char) -> c_int;
    pub fn cuModuleGetGlobal_v2(
        ptr: *mut u64,
        bytes: *mut usize,
        module: Opaque,
        name: *const c_char,
    ) -> c_int;
    pub fn cuLibraryLoadData(
        library: *mut Opaque,
        image: *const c_void,
        jit: *mut c_uint,
        jit_values: *mut *mut c_void,
        jit_count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
        count: c_uint,
    ) -> c_int;
    pub fn cuLibraryUnload(library: Opaque) -> c_int;
    pub fn cuLibraryGetModule(module: *mut Opaque, library: Opaque) -> c_int;
    pub fn cuLibraryGetKernel(kernel: *mut Opaque, library: Opaque, name: *const c_char) -> c_int;
    pub fn cuLibraryGetGlobal(
        ptr: *mut u64,
        bytes: *mut usize,
        library: Opaque,
        name: *const c_char,
    ) -> c_int;
    pub fn cuLibraryGetManaged(
        ptr: *mut u64,
        bytes: *mut usize,
        library: Opaque,
        name: *const c_char,
    ) -> c_int;
    pub fn cuKernelGetFunction(function: *mut Opaque, kernel: Opaque) -> c_int;
    pub fn cuKernelGetParamInfo(kernel: Opaque, index: usize, offset: *mut usize, size: *mut usize) -> c_int;
    pub fn cuKernelSetAttribute(attribute: c_int, value: c_int, kernel: Opaque, device: c_int) -> c_int;
    pub fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Opaque) -> c_int;
    pub fn cuFuncSetAttribute(function: Opaque, attribute: c_int, value: c_int) -> c_int;
    pub fn cuMemAlloc_v2(ptr: *mut u64, bytes: usize) -> c_int;
    pub fn cuMemAllocManaged(ptr: *mut u64, bytes: usize, flags: c_uint) -> c_int;
    pub fn cuMemFree_v2(ptr: u64) -> c_int;
    pub fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> c_int;
    pub fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> c_int;
    pub fn cuStreamCreate(stream: *mut Opaque, flags: c_uint) -> c_int;
    pub fn cuStreamQuery(stream: Opaque) -> c_int;
    pub fn cuStreamSynchronize(stream: Opaque) -> c_int;
    pub fn cuEventCreate(event: *mut Opaque, flags: c_uint) -> c_int;
    pub fn cuEventRecord(event: Opaque, stream: Opaque) -> c_int;
    pub fn cuLaunchKernel(
        function: Opaque,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Opaque,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> c_int;
    pub fn cuLaunchCooperativeKernel(
        function: Opaque,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Opaque,
        params: *mut *mut c_void,
    ) -> c_int;
}

/// Calls an API function with the test's own arguments.
macro_rules! cu {
    ($function:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: all pointers are to variables of the calling test that outlive the work.
        unsafe { $crate::cu::$function($($arg),*) }
    };
}
pub(crate) use cu;

/// The addresses of kernel arguments, for cuLaunchKernel.
macro_rules! params {
    ($($arg:expr),* $(,)?) => {
        [$(std::ptr::from_ref(&$arg).cast_mut().cast::<std::ffi::c_void>()),*].as_mut_ptr()
    };
}
pub(crate) use params;

/// The kernels of `data/driver.cu`.
pub const PTX: &str = concat!(include_str!("../data/driver.ptx"), "\0");

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
