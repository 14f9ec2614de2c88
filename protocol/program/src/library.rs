// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Libraries of the program.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use libloading::os::unix;

/// A library that the process has loaded. It is never closed, unless by [`Self::close`]: what was found in it stays good.
#[derive(Debug)]
pub struct Library(ManuallyDrop<unix::Library>);

impl Library {
    /// Loads a library, by a path or by the name that the loader looks for. `None` if it cannot be loaded. Its names serve
    /// other libraries, too, if they are `global`.
    ///
    /// # Safety
    ///
    /// The library's constructors expect nothing of the caller.
    pub unsafe fn open(name: impl AsRef<OsStr>, global: bool) -> Option<Self> {
        let visible = if global { unix::RTLD_GLOBAL } else { unix::RTLD_LOCAL };
        // SAFETY: the library's constructors expect nothing by this function's contract.
        unsafe { Self::open_with(name.as_ref(), unix::RTLD_NOW | visible) }
    }

    /// The driver API's library. The program loads the same one if it uses CUDA.
    pub fn libcuda() -> Option<Self> {
        // SAFETY: the constructors of all drivers, ours, NVIDIA's and the emulator, run wherever a program loads them.
        unsafe { Self::open("libcuda.so.1", false) }
    }

    /// A library of that name if it is loaded already. None is loaded.
    pub fn loaded(name: &str) -> Option<Self> {
        // SAFETY: with this flag no constructor runs.
        unsafe { Self::open_with(name.as_ref(), unix::RTLD_NOW | libc::RTLD_NOLOAD) }
    }

    /// # Safety
    ///
    /// The constructors that run expect nothing of the caller.
    unsafe fn open_with(name: &OsStr, flags: c_int) -> Option<Self> {
        // SAFETY: the constructors expect nothing by this function's contract. No destructor runs: the handle is not dropped.
        let library = unsafe { unix::Library::open(Some(name), flags) };
        Some(Self(ManuallyDrop::new(library.ok()?)))
    }

    /// The address of a name; `None` if the library lacks it.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: nothing is read at the address, of which only the number leaves this function.
        let symbol = unsafe { self.0.get::<*mut c_void>(name) };
        NonNull::new(symbol.ok()?.as_raw_ptr())
    }

    /// Gives the handle back.
    ///
    /// # Safety
    ///
    /// Nothing that was found in the library is used any longer, or the program keeps the library loaded.
    pub unsafe fn close(self) {
        // An error would leave the library loaded, which is harmless.
        let _ = ManuallyDrop::into_inner(self.0).close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_loaded_library_are_found() {
        let libc = Library::loaded("libc.so.6").expect("every Rust program has it");
        assert!(libc.symbol(c"strnlen").is_some());
        assert!(libc.symbol(c"vhost_cuda_has_no_such_function").is_none());
        assert!(Library::loaded("libvhost-cuda-none.so.1").is_none());
    }
}
