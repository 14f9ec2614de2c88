// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers of the `custom` rows, one file an area, each function named as its row.

// A row's results are a tuple, as long as it is.
#![allow(non_snake_case, clippy::type_complexity)]

mod array;
mod array_map;
mod capture;
mod context;
mod device;
mod external;
mod graph;
mod graph_exec;
mod graph_node;
mod green;
pub mod image;
mod ipc;
mod link;
mod linked;
mod memory;
mod memory_box;
mod module;
mod names;
mod nvml;
mod pool;
mod pool_share;
mod session;
mod stream;
mod tensor_map;
pub mod variable;
mod vendor;
mod vmm;

pub use array::*;
pub use array_map::*;
pub use capture::*;
pub use context::*;
pub use device::*;
pub use external::*;
pub use graph::*;
pub use graph_exec::*;
pub use graph_node::*;
pub use green::*;
pub use ipc::*;
pub use link::*;
pub use memory::*;
pub use memory_box::*;
pub use module::*;
pub use names::*;
pub use nvml::*;
pub use pool::*;
pub use pool_share::*;
pub use session::*;
pub use stream::*;
pub use tensor_map::*;
pub use vendor::*;
pub use vmm::*;
