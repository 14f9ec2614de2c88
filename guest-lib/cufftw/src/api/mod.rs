// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The exported functions. Each exists for double precision (`fftw_…`) and for single precision (`fftwf_…`).

mod execution;
mod lists;
mod plans;
mod support;

use std::ffi::c_void;

/// `fftw_plan`
type FftwPlan = *mut c_void;
/// An array of the program.
type Array = *mut c_void;

/// Exports pairs of functions. In the body, a name of the caller's choice is the precision.
macro_rules! exports {
    ($(
        $(#[$doc:meta])*
        fn $double:ident $single:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? |$precision:pat_param| $body:block
    )*) => { $(
        $crate::api::exports! { @ Double $(#[$doc])* $double ($($argument: $type),*) ($($result)?) $precision, $body }
        $crate::api::exports! { @ Single $(#[$doc])* $single ($($argument: $type),*) ($($result)?) $precision, $body }
    )* };
    (
        @ $which:ident $(#[$doc:meta])* $name:ident ($($argument:ident: $type:ty),*) ($($result:ty)?)
        $precision:pat_param, $body:block
    ) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// The contract of FFTW's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            let $precision = $crate::problem::Precision::$which;
            $body
        }
    };
}
use exports;
