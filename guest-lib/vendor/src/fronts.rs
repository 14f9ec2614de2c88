// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The libraries and their exported functions.

#![allow(non_snake_case, clippy::too_many_arguments, clippy::unnecessary_cast)]

use crate::Front;

macro_rules! fronts {
    ($($front:ident $name:literal)*) => { $(
        #[doc = concat!("NVIDIA's ", $name, ".")]
        pub static $front: Front = Front::new($name);
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"));
    )* };
}

fronts! {
    CUBLAS "cublas"
    CUBLASLT "cublasLt"
    CUDNN "cudnn"
    CUFFT "cufft"
    CURAND "curand"
    CUSPARSE "cusparse"
    CUSOLVER "cusolver"
    NCCL "nccl"
    CUSPARSELT "cusparseLt"
    CUSOLVERMG "cusolverMg"
}
