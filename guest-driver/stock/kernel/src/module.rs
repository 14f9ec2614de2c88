// SPDX-License-Identifier: GPL-2.0-only

//! The module: its modinfo(8) lines, initialisation and exit.

use crate::{bindings, error::Result};

/// The module itself.
pub struct ThisModule(*mut bindings::module);

// SAFETY: Rust only passes the pointer on.
unsafe impl Send for ThisModule {}
// SAFETY: Rust code does not access what the pointer refers to.
unsafe impl Sync for ThisModule {}

impl ThisModule {
    /// Use [`module!`](crate::module).
    ///
    /// # Safety
    ///
    /// `module` is `THIS_MODULE`.
    #[doc(hidden)]
    pub const unsafe fn from_ptr(module: *mut bindings::module) -> Self {
        Self(module)
    }

    /// Returns a pointer for C.
    pub const fn as_ptr(&self) -> *mut bindings::module {
        self.0
    }
}

/// A loaded module; it is dropped when the module is unloaded.
pub trait Module: Sized + Sync + Send {
    /// Initialises the module.
    fn init(module: &'static ThisModule) -> Result<Self>;
}

/// Returns the bytes of a string, for `.modinfo`.
#[doc(hidden)]
pub const fn text<const BYTES: usize>(text: &str) -> [u8; BYTES] {
    let (mut bytes, mut at) = ([0; BYTES], 0);
    while at < BYTES {
        bytes[at] = text.as_bytes()[at];
        at += 1;
    }
    bytes
}

/// One line of modinfo(8).
#[doc(hidden)]
#[macro_export]
macro_rules! modinfo {
    ($tag:literal, $value:literal) => {
        const _: () = {
            const TEXT: &str = concat!($tag, "=", $value, "\0");
            #[link_section = ".modinfo"]
            // The same kind of section as the C part's: the linker must put both into one section, because the kernel
            // reads only one.
            #[used(compiler)]
            static LINE: [u8; TEXT.len()] = $crate::module::text(TEXT);
        };
    };
}

/// Declares the module; `glue.c` calls its two functions.
#[macro_export]
macro_rules! module {
    (
        type: $type:ident,
        name: $name:literal,
        authors: [$($author:literal),* $(,)?],
        description: $description:literal,
        license: $license:literal,
        alias: [$($alias:literal),* $(,)?],
    ) => {
        $($crate::modinfo!("author", $author);)*
        $crate::modinfo!("description", $description);
        $crate::modinfo!("license", $license);
        $($crate::modinfo!("alias", $alias);)*

        static mut THIS_MODULE: ::core::mem::MaybeUninit<$crate::ThisModule> =
            ::core::mem::MaybeUninit::uninit();
        static mut VALUE: Option<$type> = None;

        /// # Safety
        ///
        /// Called once, before anything else, with `THIS_MODULE`.
        #[no_mangle]
        unsafe extern "C" fn stock_module_init(
            module: *mut $crate::bindings::module,
        ) -> $crate::ffi::c_int {
            // SAFETY: `module` is `THIS_MODULE`, by the caller.
            let module = unsafe { $crate::ThisModule::from_ptr(module) };
            // SAFETY: Written once, here, before all else.
            let module = unsafe { (*(&raw mut THIS_MODULE)).write(module) };
            match <$type as $crate::Module>::init(module) {
                Ok(value) => {
                    // SAFETY: Used by this function and the one below only, which never run at the same time.
                    unsafe { VALUE = Some(value) };
                    0
                }
                Err(error) => error.to_errno(),
            }
        }

        /// # Safety
        ///
        /// Called once, after everything else.
        #[no_mangle]
        unsafe extern "C" fn stock_module_exit() {
            // SAFETY: Nothing else runs any more, by the caller.
            drop(unsafe { (*(&raw mut VALUE)).take() });
        }
    };
}
