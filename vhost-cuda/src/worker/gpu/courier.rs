// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions by which the emulator passes files to other processes.

use crate::worker::sharing::Sharing;

/// With what they need of the worker.
pub type Courier = cuda_abi::Courier<&'static Sharing>;
