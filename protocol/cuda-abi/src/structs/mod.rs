// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The structures, by area.

mod activity;
mod array;
mod copy;
mod external;
mod graph;
mod launch;
mod memory;
mod node;
mod texture;
mod trace;

pub use activity::*;
pub use array::*;
pub use copy::*;
pub use external::*;
pub use graph::*;
pub use launch::*;
pub use memory::*;
pub use node::*;
pub use texture::*;
pub use trace::*;
