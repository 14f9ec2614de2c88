// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions that are written by hand: `custom` in the rows.

#![allow(non_snake_case)]

mod cublas;
mod cublaslt;
mod cudnn;
mod nccl;
