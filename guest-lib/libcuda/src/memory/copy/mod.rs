// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of contiguous memory.

pub mod api;
pub mod batch;
pub mod cached;
pub mod crew;
pub mod helpers;
pub mod pieces;
pub mod run;
pub mod staged;
pub mod staging;
pub mod timing;
