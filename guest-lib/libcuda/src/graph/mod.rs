// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Graphs. The device has them; here are the C structures of their nodes, and the memory that the program
//! gives to nodes and the GPU does not reach.
//!
//! The differences from NVIDIA's library:
//!
//! - A copy of memory that the GPU does not reach is, in the device, a graph of the copy and of functions that
//!   this library runs (see [`pageable`]): each costs a turn between guest and device whenever the graph runs.
//!   Inside of a child graph its node is shown as what it is.
//! - Such a copy cannot take the place of another in an executable graph (`CUDA_ERROR_NOT_SUPPORTED`); in a
//!   graph it can.
//! - Not there: allocations that other devices may access.
//! - `cuGraphDebugDotPrint` shows nodes and edges without their details.

pub mod copy_params;
pub mod exec;
pub mod kept;
pub mod node;
pub mod pageable;
pub mod pageable_table;
pub mod params;
pub mod semaphore;
pub mod structure;
pub mod user_object;
pub mod wire;
