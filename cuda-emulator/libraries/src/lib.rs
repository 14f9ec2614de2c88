// SPDX-License-Identifier: Apache-2.0 OR MIT

//! NVIDIA's libraries on the CPU, for the emulated GPU, whose memory belongs to this process. Every operation is a
//! host function in the handle's stream ([`stream`]), so that order, events and captured graphs work. A function that
//! is not implemented here returns the library's `not_supported`.

#![allow(non_snake_case, clippy::missing_safety_doc)]

pub mod cublas;
pub mod cublaslt;
pub mod cudnn;
pub mod cufft;
pub mod curand;
pub mod cusolver;
pub mod cusparse;
pub mod cusparselt;
mod exported;
mod handles;
mod lapack;
mod memory;
pub mod nccl;
mod numbers;
#[cfg(test)]
mod signatures;
mod sparse;
mod stream;
mod symbols;
mod version;

// The forms of functions here with sizes of 64 bits (`build.rs`).
include!(concat!(env!("OUT_DIR"), "/long_forms.rs"));

/// For each library, the position behind its last function that is missing here (`build.rs`), and its status `not_supported`.
static ANSWERS: &[(u32, i32)] = include!(concat!(env!("OUT_DIR"), "/answers.rs"));

/// Implements the functions that are missing here.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_library_absent(name: u32) -> i32 {
    let library = ANSWERS.iter().find(|(end, _)| name < *end);
    library.map_or(1, |(_, not_supported)| *not_supported)
}
