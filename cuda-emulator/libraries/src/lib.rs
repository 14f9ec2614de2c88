// SPDX-License-Identifier: Apache-2.0 OR MIT

//! NVIDIA's libraries on the CPU, for the emulated GPU, whose memory belongs to this process. Every operation is a
//! host function in the handle's stream ([`stream`]), so that order, events and captured graphs work. A function that
//! is not implemented here returns the library's `not_supported`.

#![allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]

pub mod cublas;
pub mod cublaslt;
pub mod cudnn;
pub mod cufft;
pub mod curand;
pub mod cusolver;
pub mod cusparse;
pub mod cusparselt;
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

/// The functions that are not implemented.
mod missing {
    macro_rules! missing {
        ($($library:literal)*) => { $(include!(concat!(env!("OUT_DIR"), "/", $library, ".rs"));)* };
    }
    missing!("cublas" "cublasLt" "cudnn" "cufft" "curand" "cusparse" "cusolver" "nccl" "cusparseLt" "cusolverMg");
}
