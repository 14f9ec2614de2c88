// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions of the emulator's libcuda, which this process has loaded already.

use std::ffi::{CStr, c_void};

/// Defines a structure `Driver` with these functions, and a function `driver` that looks them up once. Its answer is `None` if
/// libcuda lacks one of them: NVIDIA's own lacks those that only the emulator has.
///
/// # Safety
///
/// Functions of these names have these types.
macro_rules! driver_functions {
    ($($field:ident: $type:ty = $name:literal;)*) => {
        struct Driver { $($field: $type,)* }

        fn driver() -> Option<&'static Driver> {
            static DRIVER: std::sync::OnceLock<Option<Driver>> = std::sync::OnceLock::new();
            let find = || {
                let library = crate::symbols::libcuda()?;
                // SAFETY: the library is never closed, and functions of these names have these types (the macro's contract).
                unsafe {
                    Some(Driver { $($field: {
                        let found = crate::symbols::symbol(library, $name)?;
                        std::mem::transmute::<*mut std::ffi::c_void, $type>(found)
                    },)* })
                }
            };
            DRIVER.get_or_init(find).as_ref()
        }
    };
}
pub(crate) use driver_functions;

/// The handle of libcuda.
pub fn libcuda() -> Option<*mut c_void> {
    // SAFETY: the name is a C string; the library is the one that this process has loaded already.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!library.is_null()).then_some(library)
}

/// The address of a name.
///
/// # Safety
///
/// `library` is a library that is loaded.
pub unsafe fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is loaded by this function's contract; the name is a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
