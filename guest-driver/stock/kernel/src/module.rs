// SPDX-License-Identifier: GPL-2.0-only

//! The module: what modinfo(8) shows, its beginning and its end.

use crate::{bindings, error::Result};

/// The module itself.
pub struct ThisModule(*mut bindings::module);

// SAFETY: Rust only passes the pointer on.
unsafe impl Send for ThisModule {}
// SAFETY: Nothing reads or writes behind the pointer.
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

    /// For C.
    pub const fn as_ptr(&self) -> *mut bindings::module {
        self.0
    }
}

/// A loaded module; its end is the module's.
pub trait Module: Sized + Sync + Send {
    /// Begins.
    fn init(module: &'static ThisModule) -> Result<Self>;
}

/// A string without its length, for `.modinfo`.
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
            // Of the C part's kind: the linker must put both into one section, of which the kernel reads one only.
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
        /// Called once, before all else, with `THIS_MODULE`.
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
        /// Called once, after all else.
        #[no_mangle]
        unsafe extern "C" fn stock_module_exit() {
            // SAFETY: Nothing else runs any more, by the caller.
            drop(unsafe { (*(&raw mut VALUE)).take() });
        }
    };
}
