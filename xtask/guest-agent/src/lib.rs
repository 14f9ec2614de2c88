// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent in the test guests, and the protocol it speaks with xtask.

pub mod wire;
