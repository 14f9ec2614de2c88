// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of libcuda's functions.
//!
//! `libcuda.so.1` is opened at first use and never closed. Each row of the table finds its function by
//! its name when it is first called and keeps the address; a name that the library lacks makes that one call
//! answer cudaErrorCallRequiresNewerDriver. The functions are those of `cuda_abi::prototypes!`, with this library's
//! types of handles.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;

use cuda_abi::prototypes::types::*;
use cuda_program::Library;

use crate::abi::{
    CUarray, CUasyncCallbackHandle, CUcontext, CUevent, CUexternalMemory, CUexternalSemaphore, CUfunction,
    CUgraph, CUgraphExec, CUgraphNode, CUgraphicsResource, CUkernel, CUlibrary, CUlogsCallbackHandle,
    CUmemoryPool, CUmipmappedArray, CUstream, CUuserObject, cudaAsyncCallback as CUasyncCallback,
    cudaLogsCallback_t as CUlogsCallback, cudaStreamCallback_t as CUstreamCallback,
};
#[cfg(cuda_major = "13")]
use crate::abi::{CUdevResourceDesc, CUgreenCtx};
use crate::error::{Result, cudaError_t, cudaErrorCallRequiresNewerDriver, cudaErrorInsufficientDriver};

/// The address of one driver function, once it is known.
pub struct Slot {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Slot {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    pub fn address(&self) -> Result<*mut c_void> {
        let address = self.address.load(Ordering::Acquire);
        if address.is_null() { self.find() } else { Ok(address) }
    }

    #[cold]
    fn find(&self) -> Result<*mut c_void> {
        let library = library().ok_or(cudaErrorInsufficientDriver)?;
        let address = library.symbol(self.name).ok_or(cudaErrorCallRequiresNewerDriver)?.as_ptr();
        self.address.store(address, Ordering::Release);
        Ok(address)
    }
}

fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(Library::libcuda).as_ref()
}

/// Returns whether `libcuda.so.1` could be opened.
pub fn is_present() -> bool {
    library().is_some()
}

/// Defines one function per prototype that returns a `Result`.
macro_rules! driver {
    ($( fn $name:ident($($arg:ident: $ty:ty),* $(,)?); )*) => { $(
        #[doc = concat!("The driver's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// The arguments satisfy NVIDIA's documentation of this function: pointers are valid for what it reads and
        /// writes there, handles are live.
        #[inline]
        #[allow(clippy::too_many_arguments)]
        #[allow(dead_code, reason = "the runtime does without some of the driver's functions")]
        pub unsafe fn $name($($arg: $ty),*) -> Result {
            static SLOT: Slot = Slot::new(
                const { match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!(),
                } },
            );
            let address = SLOT.address()?;
            // SAFETY: the address belongs to the function of this name, whose C signature is this one.
            let function = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> cudaError_t>(address) };
            // SAFETY: the arguments fulfil NVIDIA's contract by this function's own.
            unsafe { function($($arg),*) }.check()
        }
    )* };
}
cuda_abi::prototypes!(driver);

/// As `cuLibraryGetGlobal`, but the address is for copies of the contents only. Only this project's libcuda has it.
///
/// # Safety
/// Those of `cuLibraryGetGlobal`.
pub unsafe fn virtio_cuda_library_variable(
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Result {
    type Function =
        unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, CUlibrary, *const c_char) -> cudaError_t;
    static SLOT: Slot = Slot::new(c"virtio_cuda_library_variable");
    let found = SLOT.address()?;
    // SAFETY: the address belongs to the function of this name in this project's libcuda, whose C signature is this one.
    let function = unsafe { core::mem::transmute::<*mut c_void, Function>(found) };
    // SAFETY: the caller's promise.
    unsafe { function(address, bytes, library, name) }.check()
}
