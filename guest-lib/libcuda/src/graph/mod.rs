// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Graphs. The device stores them. This module has the C structures of their nodes, and the pageable memory that
//! programs use in nodes.
//!
//! The differences from NVIDIA's library:
//!
//! - A copy of pageable memory is, in the device, a child graph of the copy and of functions that this library runs
//!   (see [`pageable`]). Each function costs a round trip between guest and device whenever the graph runs. Inside of a
//!   child graph the node has its actual type.
//! - Such a copy cannot replace another one in an executable graph (`CUDA_ERROR_NOT_SUPPORTED`), but it can in a graph.
//! - Not supported: allocations that other devices may access.
//! - `cuGraphDebugDotPrint` shows nodes and edges without their details.

pub mod exec;
pub mod node;
pub mod params;
pub mod semaphore;
pub mod structure;
pub mod user_object;
