// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a daemon needs to be replaced by a newer process of itself while programs run: [`crate::replace`] does it, and the parts
//! of the daemon use this to say what they hand over.
//!
//! The process stays. It executes the new program, so workers remain its children, and all descriptors stay open. Only what the
//! daemon has in its own memory is written down.

pub mod files;
pub mod freeze;
pub mod main_thread;
