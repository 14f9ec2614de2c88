// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions of the emulator's libcuda, which this process has loaded already.

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
                let library = cuda_program::Library::libcuda()?;
                // SAFETY: the library is never closed, and functions of these names have these types (the macro's contract).
                unsafe {
                    Some(Driver { $($field: {
                        let found = library.symbol($name)?;
                        std::mem::transmute::<*mut std::ffi::c_void, $type>(found.as_ptr())
                    },)* })
                }
            };
            DRIVER.get_or_init(find).as_ref()
        }
    };
}
pub(crate) use driver_functions;
