// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuFFT, computed in doubles.

pub mod api;
mod plan;

/// `cufftResult`
pub type Status = i32;

/// `CUFFT_SUCCESS`
pub const SUCCESS: Status = 0;
/// `CUFFT_INVALID_PLAN`
pub const INVALID_PLAN: Status = 1;
/// `CUFFT_INVALID_VALUE`
pub const INVALID_VALUE: Status = 4;
/// `CUFFT_EXEC_FAILED`
pub const EXEC_FAILED: Status = 6;
/// `CUFFT_INVALID_SIZE`
pub const INVALID_SIZE: Status = 8;
/// `CUFFT_NOT_SUPPORTED`
pub const NOT_SUPPORTED: Status = 16;
