// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions by which the emulator passes files to other processes.

use crate::sharing::Sharing;

/// A courier with the worker's state that it needs.
pub type Courier = cuda_abi::Courier<&'static Sharing>;
