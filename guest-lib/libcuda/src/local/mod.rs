// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls that this library handles without the device, and the state of calls.

pub mod bench;
pub mod exit;
pub mod init;
mod injection;
pub mod logs;
pub mod results;
