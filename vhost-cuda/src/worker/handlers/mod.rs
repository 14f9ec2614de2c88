// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers of the `custom` rows, one file an area, each function named as its row.

#![allow(non_snake_case)]

mod context;
mod device;
mod event;
mod launch;
mod memory;
mod memory_box;
mod memory_set;
mod module;
mod occupancy;
mod session;
mod stream;

pub use context::*;
pub use device::*;
pub use event::*;
pub use launch::*;
pub use memory::*;
pub use memory_box::*;
pub use memory_set::*;
pub use module::*;
pub use occupancy::*;
pub use session::*;
pub use stream::*;
