// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of libcuda's functions.
//!
//! `libcuda.so.1` is opened at first use and never closed. Each row of the table finds its function with
//! `dlsym` when it is first called and keeps the address; a name that the library lacks makes that one call
//! answer cudaErrorCallRequiresNewerDriver. Names are the versioned ones of the 13.0 `cuda.h`, so that each
//! has exactly one signature.

use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;

use crate::error::{Result, cudaError_t, cudaErrorCallRequiresNewerDriver, cudaErrorInsufficientDriver};

mod copies;
mod core_api;
mod graphics;
mod graphs;
#[cfg(cuda_major = "13")]
mod later;
mod memory;
mod modules;

pub use copies::*;
pub use core_api::*;
pub use graphics::*;
pub use graphs::*;
#[cfg(cuda_major = "13")]
pub use later::*;
pub use memory::*;
pub use modules::*;

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
        // SAFETY: the name ends with NUL. Loading runs the library's constructors, which is what a user of
        // CUDA asks for.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Library(handle))
    })
}

/// Returns whether `libcuda.so.1` could be opened.
pub fn is_present() -> bool {
    library().is_some()
}

/// Declares driver functions: `fn name(arguments)`, each giving a `Result`.
macro_rules! driver {
    ($( $(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?); )*) => { $(
        $(#[$meta])*
        #[doc = concat!("The driver's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// The arguments are what NVIDIA's documentation of this function demands: pointers are valid for what it reads
        /// and writes there, handles are live.
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($arg: $ty),*) -> Result {
            static SLOT: Slot = Slot::new(
                const { match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!(),
                } },
            );
            let address = SLOT.address()?;
            // SAFETY: the address belongs to the function of this name, whose C signature is the one declared
            // here.
            let function = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> cudaError_t>(address) };
            // SAFETY: the arguments fulfil NVIDIA's contract by this function's own.
            unsafe { function($($arg),*) }.check()
        }
    )* };
}
use driver;
