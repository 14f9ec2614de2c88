// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Hand-written functions, which are marked `custom` or `wrap` in the rows.

#![allow(non_snake_case, clippy::too_many_arguments)]

mod cublas;
mod cudnn;
pub(crate) mod curand;
mod cusparse;
mod cusparselt;
mod nccl;
