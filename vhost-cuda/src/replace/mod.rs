// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replaces the daemon's program by a newer one while guests' programs run.
//!
//! [`leave`] is the part of the present program. It stops the daemon's threads between two messages, writes down what only the
//! daemon's memory has ([`state`]), lets the new program check that, and executes it. The process and its descriptors stay, and so
//! do the workers, its children, and their lanes to the guests.
//!
//! [`enter`] is the part of the new program. Until it has everything that it needs, it can go back: it executes the program before
//! it again, which goes on with the same state.

pub mod enter;
pub mod leave;
pub mod state;
