// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of libcuda's functions.
//!
//! `libcuda.so.1` is opened at first use and never closed. Each row of the table finds its function with `dlsym` at the
//! first call and keeps the address. If the library lacks a name, only that call returns
//! cudaErrorCallRequiresNewerDriver. The functions are those of `cuda_abi::prototypes!`, with this library's handle
//! types.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;

use cuda_abi::prototypes::types::*;

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
        // SAFETY: `library` came from dlopen and is never closed; the name ends with NUL.
        let address = unsafe { libc::dlsym(library.0, self.name.as_ptr()) };
        if address.is_null() {
            return Err(cudaErrorCallRequiresNewerDriver);
        }
        self.address.store(address, Ordering::Release);
        Ok(address)
    }
}

#[derive(Clone, Copy)]
struct Library(*mut c_void);

// SAFETY: a dlopen handle may be used from every thread.
unsafe impl Send for Library {}
// SAFETY: a dlopen handle may be shared by threads; it is never closed.
unsafe impl Sync for Library {}

fn library() -> Option<Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    *LIBRARY.get_or_init(|| {
        // SAFETY: the name ends with NUL. Loading runs the library's constructors, as a user of CUDA expects.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Library(handle))
    })
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
