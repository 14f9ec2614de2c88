// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dynamic parallelism (CDP2): kernels that launch kernels.
//!
//! The launches of a grid run when all its blocks have ended, in the order in which they were launched. Every stream
//! and every event allows this order, and a program can rely on no other. If more launches are pending than
//! cudaLimitDevRuntimePendingLaunchCount, the launching thread runs them before it continues, as a GPU would
//! meanwhile. A grid is complete when all its launches are; those into cudaStreamTailLaunch come last.
//!
//! `family`: a launch of the host and all that comes of it. `children`: what one grid has launched. `crate::execute` runs both.
//! `parameters`: the buffers that kernels write parameters to. `transfer`: copies and fills. `device`: the questions that kernels
//! ask the driver. `error`: the runtime's error codes and their texts.

mod children;
mod device;
pub(crate) mod error;
mod family;
mod parameters;
pub(crate) mod transfer;

pub(crate) use children::{Children, LaunchShape, MAX_DEPTH, Prepared, TAIL, lock};
pub use device::{DeviceRuntime, NodeChange, Refusal};
pub(crate) use family::{Family, KernelTask, Slot, Task};
pub(crate) use parameters::MAX_BLOCK_BYTES;
