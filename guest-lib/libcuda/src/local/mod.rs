// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls that this library answers by itself, and the state that it keeps of its own calls.

pub mod bench;
pub mod error_log;
pub mod exit;
pub mod init;
pub mod logs;
pub mod result_texts;
pub mod results;
pub mod states;
