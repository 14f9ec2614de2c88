// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers of the `custom` rows. Each area has one file or folder, and each function has the name of its row.

// The results of a row form a tuple, which may be long.
#![allow(non_snake_case, clippy::type_complexity)]

mod array;
mod context;
mod device;
mod event;
mod external;
pub mod graph;
mod green;
mod ipc;
mod launch;
mod memory;
mod memory_box;
pub mod module;
mod nvml;
mod peer;
mod pool;
mod session;
mod trace;
mod vendor;
mod vmm;

pub use array::map::*;
pub use array::*;
pub use context::*;
pub use device::*;
pub use event::*;
pub use external::*;
pub use graph::capture::*;
pub use graph::exec::*;
pub use graph::node::*;
pub use graph::*;
pub use green::*;
pub use ipc::*;
pub use launch::*;
pub use memory::*;
pub use memory_box::*;
pub use module::link::*;
pub use module::variable::library_variable;
pub use nvml::*;
pub use peer::*;
pub use pool::share::*;
pub use pool::*;
pub use session::*;
pub use trace::*;
pub use vendor::*;
pub use vmm::*;
