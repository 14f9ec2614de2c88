// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Families that move data: registers, memory, textures; and the checks of the addresses that they name.

pub(crate) mod access;
pub(crate) mod atomic;
pub(crate) mod bulk;
pub(crate) mod check;
pub(crate) mod load_store;
pub(crate) mod moves;
mod pattern;
pub(crate) mod tensor_copy;
pub(crate) mod texture_ops;
mod vector;
