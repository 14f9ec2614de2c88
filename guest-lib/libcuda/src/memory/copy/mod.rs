// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of contiguous memory. [`plan`] chooses a plan, and [`run`] executes it with one of these modules:
//!
//! - [`address`]: the GPU copies between its own addresses.
//! - [`cached`]: the GPU copies from or to pageable pages that the device keeps.
//! - [`staged`]: threads of this process copy to or from pinned memory ([`staging`]), as a [`pipeline`] of pieces.
//! - [`pages`]: the calls transfer the memory, inside their record or as pages.
//! - [`program`]: the calling thread copies.
//!
//! [`between`] copies between contexts.

pub mod address;
pub mod api;
pub mod batch;
pub mod between;
pub mod cached;
pub mod division;
pub mod helpers;
pub mod once;
mod pages;
pub mod pieces;
pub mod pipeline;
pub mod plan;
pub mod program;
pub mod run;
pub mod staged;
pub mod staging;
pub mod transfer;
pub mod turn;
