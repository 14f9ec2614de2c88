// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions and the worker processes that serve them: start, communication, end.

pub mod endings;
pub mod environment;
#[cfg(test)]
pub mod fixture;
pub mod library;
pub mod messages;
pub mod named_pages;
pub mod pool;
pub mod predecessor;
pub mod process;
pub mod report;
pub mod residence;
pub mod session;
pub mod watchdog;
