// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of two and three dimensions, to and from arrays as well.

pub mod api;
pub mod array_api;
pub mod copy;
pub mod layout;
