// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of contiguous memory: [`plan`] decides how, [`run`] has it done.

pub mod address;
pub mod api;
pub mod batch;
pub mod cached;
pub mod crew;
pub mod division;
pub mod helpers;
pub mod pages;
pub mod pieces;
pub mod plan;
pub mod program;
pub mod run;
pub mod staged;
pub mod staging;
pub mod transfer;
