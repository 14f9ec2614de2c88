// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The state of [`crate::memory::Memory`], without the calls that use it.

pub mod cache;
pub mod claims;
pub mod copy_streams;
pub mod freed;
pub mod pinned;
pub mod ranges;
pub mod ready;

pub mod shadow;
pub mod slabs;
pub mod spares;
pub mod speeds;
pub mod staging;
pub mod window;
