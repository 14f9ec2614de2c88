// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies as nodes of graphs: their parameters, and memory for pageable ends.

pub mod copy;
pub mod pageable;
