// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions that are written by hand: `custom` in the rows.

#![allow(non_snake_case, clippy::too_many_arguments)]

mod cublas;
mod cudnn;
mod curand;
mod cusparse;
mod cusparselt;
mod nccl;
