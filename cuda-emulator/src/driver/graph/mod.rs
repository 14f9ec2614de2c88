// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CUDA graphs: work that is described once and launched many times.

mod body;
mod child;
mod conditional;
mod device_launch;
mod dot;
mod edit_api;
mod exec;
mod exec_api;
mod exec_set_api;
mod footprint;
mod kernel_api;
mod memory;
mod memory_api;
mod node_api;
mod params;
mod semaphore_api;
mod update;
mod user_object;
mod user_object_api;
mod work;

pub use body::{CUgraph, CUgraphNode, Graph};
pub(super) use body::{Node, find, loses_edges};
pub(super) use memory::free_outside;
pub(super) use memory_api::{capture_allocation, free_of};
pub(super) use work::{CopyWork, HostWork, Work};
