// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executes lowered code on host threads.

mod printf;

pub use printf::Printf;
