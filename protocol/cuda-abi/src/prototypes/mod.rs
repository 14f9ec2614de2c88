// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The prototypes of the driver API, each once. `prototypes!` passes them all to a macro of the caller as
//!
//! ```text
//! fn cuStreamGetFlags(hStream: CUstream, flags: *mut c_uint);
//! ```
//!
//! `cargo xtask generate` writes those that the crate cudarc declares, of all versions of `cuda.h` that it knows. Names are
//! the versioned ones, so that each has exactly one signature. A variant for the per-thread default stream (`_ptsz`,
//! `_ptds`) has the prototype of the plain name. All functions return a `CUresult`. The type names in a row refer to the
//! types in the caller's scope: those of [`types`], or other types with the same names.
//!
//! Libraries that export the API compare each entry point with the constant of the same name in this module
//! ([`check_prototype!`](crate::check_prototype)).

mod bound;
mod others;
mod shape;
pub mod types;

pub use shape::{Parameter, Prototype, Shape};

use types::*;

/// Passes all prototypes to a macro.
#[macro_export]
macro_rules! prototypes {
    ($callback:ident) => {
        $crate::bound_prototypes!($callback);
        $crate::other_prototypes!($callback);
    };
}

/// Defines the shape of each prototype, and the type of pointers to the function.
macro_rules! constants_and_types {
    ($(fn $name:ident($($parameter:ident: $t:ty),* $(,)?);)*) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[allow(non_upper_case_globals, reason = "CUDA's names")]
        pub const $name: Prototype = Prototype(&[$(<$t as Parameter>::SHAPE),*]);
        #[doc = concat!("The type of `", stringify!($name), "`.")]
        pub type $name = unsafe extern "C" fn($($t),*) -> CUresult;
    )* };
}
crate::prototypes!(constants_and_types);

/// Types of pointers to the functions.
pub mod functions {
    pub use super::*;
}
