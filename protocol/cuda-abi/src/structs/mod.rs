// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The structures, by area.

mod activity;
mod array;
mod context;
mod copy;
mod courier;
mod external;
mod graph;
mod launch;
mod memory;
mod module;
mod node;
mod nvml;
mod opaque;
mod texture;
mod trace;

pub use activity::*;
pub use array::*;
pub use context::*;
pub use copy::*;
pub use courier::*;
pub use external::*;
pub use graph::*;
pub use launch::*;
pub use memory::*;
pub use module::*;
pub use node::*;
pub use nvml::*;
pub use opaque::*;
pub use texture::*;
pub use trace::*;
