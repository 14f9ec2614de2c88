// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Graphs. The device has them; here are the C structures of their nodes, and the memory that the program
//! gives to nodes and the GPU does not reach.

pub mod copy_params;
pub mod exec;
pub mod kept;
pub mod node;
pub mod pageable;
pub mod params;
pub mod structure;
pub mod user_object;
pub mod wire;
