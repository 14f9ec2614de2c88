// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exported names that nothing implements yet: each answers CUDA_ERROR_NOT_SUPPORTED.

use super::result::CUresult;

macro_rules! not_supported {
    ($($name:ident)*) => { $(
        #[doc = "Answers CUDA_ERROR_NOT_SUPPORTED."]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "CUDA's name")]
        pub extern "C" fn $name() -> CUresult {
            // The C caller passes arguments; the calling conventions of all Linux targets let a function ignore them.
            answer(stringify!($name))
        }
    )* };
}

fn answer(name: &str) -> CUresult {
    super::ffi::before_init(|| {
        log::info!("{name} is not supported by the emulated device");
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    })
}

include!(concat!(env!("OUT_DIR"), "/not_supported.rs"));
