// SPDX-License-Identifier: Apache-2.0 OR MIT

//! State of copies, without the calls that use it: what [`crate::memory::Memory`] holds of it.

pub mod cache;
pub mod pinned;
pub mod shadow;
pub mod staging;
