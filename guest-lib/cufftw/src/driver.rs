// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The functions of libcuda that this library uses.

use std::ffi::{CStr, c_int};
use std::mem::transmute;
use std::sync::OnceLock;

use cuda_abi::prototypes::functions;
use cuda_abi::prototypes::types::CUcontext;
use cuda_program::Library;

use crate::error::{Error, Result};

/// `CUDA_SUCCESS`
const SUCCESS: c_int = 0;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`
const MEMORY_TYPE: u32 = 2;
/// `CU_MEMORYTYPE_DEVICE`, also of managed memory that is on the device.
const DEVICE: u32 = 2;
/// `CU_STREAM_LEGACY`
const LEGACY_STREAM: u64 = 1;

/// Defines `Driver`, a structure of pointers to functions of libcuda: field and function.
macro_rules! driver {
    ($($field:ident: $function:ident;)*) => {
        /// Functions of libcuda.
        pub struct Driver {
            $($field: functions::$function,)*
        }

        impl Driver {
            fn find(library: &Library) -> Result<Self> {
                $(
                    let name = const {
                        match CStr::from_bytes_with_nul(concat!(stringify!($function), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("a name has a NUL"),
                        }
                    };
                    // SAFETY: a function of the driver API, with its prototype.
                    let $field = unsafe { transmute::<*mut std::ffi::c_void, functions::$function>(symbol(library, name)?) };
                )*
                Ok(Self { $($field,)* })
            }
        }
    };
}

driver! {
    init: cuInit;
    current: cuCtxGetCurrent;
    set_current: cuCtxSetCurrent;
    retain: cuDevicePrimaryCtxRetain;
    push: cuCtxPushCurrent_v2;
    pop: cuCtxPopCurrent_v2;
    allocate: cuMemAlloc_v2;
    free: cuMemFree_v2;
    copy: cuMemcpy;
    wait: cuStreamSynchronize;
    attribute: cuPointerGetAttribute;
}

/// Returns the address of a library's function.
pub fn symbol(library: &Library, name: &'static CStr) -> Result<*mut std::ffi::c_void> {
    let missing = Error::Function(name.to_str().unwrap_or_default());
    library.symbol(name).map(|found| found.as_ptr()).ok_or(missing)
}

/// Returns the functions of libcuda, after `cuInit`.
pub fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
    let find = || {
        let library = Library::libcuda().ok_or_else(|| Error::Library("libcuda.so.1".to_owned()))?;
        Driver::find(&library)
    };
    let driver = DRIVER.get_or_init(find).as_ref().map_err(Error::clone)?;
    // SAFETY: a plain call.
    check(unsafe { (driver.init)(0) })?;
    Ok(driver)
}

impl Driver {
    /// Returns the calling thread's context. Without one, makes that of the first device current, as the runtime does.
    pub fn context(&self) -> Result<CUcontext> {
        let mut context = CUcontext::default();
        // SAFETY: `context` is a local.
        check(unsafe { (self.current)(&raw mut context) })?;
        if context != CUcontext::default() {
            return Ok(context);
        }
        // SAFETY: `context` is a local.
        check(unsafe { (self.retain)(&raw mut context, 0) })?;
        // SAFETY: a context, which stays retained.
        check(unsafe { (self.set_current)(context) })?;
        Ok(context)
    }

    /// Runs `body` in a context.
    pub fn within<T>(&self, context: CUcontext, body: impl FnOnce() -> Result<T>) -> Result<T> {
        // SAFETY: libcuda checks the context.
        check(unsafe { (self.push)(context) })?;
        let value = body();
        let mut popped = CUcontext::default();
        // SAFETY: `popped` is a local.
        let result = check(unsafe { (self.pop)(&raw mut popped) });
        value.and_then(|value| result.map(|()| value))
    }

    /// Allocates device memory.
    pub fn allocate(&self, bytes: usize) -> Result<u64> {
        let mut address = 0;
        // SAFETY: `address` is a local.
        check(unsafe { (self.allocate)(&raw mut address, bytes) })?;
        Ok(address)
    }

    /// Frees device memory.
    pub fn free(&self, address: u64) -> Result {
        // SAFETY: libcuda checks the address.
        check(unsafe { (self.free)(address) })
    }

    /// Copies between memory of any kind, after all work of the default stream.
    ///
    /// # Safety
    ///
    /// Host memory has `bytes` bytes, which may be read or written.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result {
        // SAFETY: host memory is valid by this function's contract; libcuda checks device memory.
        check(unsafe { (self.copy)(to, from, bytes) })
    }

    /// Waits for the work of the default stream.
    pub fn wait(&self) -> Result {
        // SAFETY: a plain call.
        check(unsafe { (self.wait)(LEGACY_STREAM) })
    }

    /// Returns whether an address is in device memory.
    pub fn is_device(&self, address: usize) -> bool {
        let mut kind = 0_u32;
        // SAFETY: libcuda writes a number of 32 bits for this attribute, and looks `address` up without following it.
        let result = unsafe { (self.attribute)((&raw mut kind).cast(), MEMORY_TYPE, address as u64) };
        result == SUCCESS && kind == DEVICE
    }
}

fn check(result: c_int) -> Result {
    if result == SUCCESS { Ok(()) } else { Err(Error::Cuda(result)) }
}
