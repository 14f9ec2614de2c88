// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a session between moves.

use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::parts::Part;
use super::store::Store;

/// The state of a session's moves.
#[derive(Debug, Default)]
pub struct Suspension {
    /// True while a thread moves.
    pub is_moving: AtomicBool,
    /// `None` while the session runs. Locked across each move.
    pub suspended: Mutex<Option<Suspended>>,
}

/// A suspended session.
#[derive(Debug)]
pub struct Suspended {
    /// The contents.
    pub store: Store,
    /// Allocations of `cuMemCreate` by their names. Memory of `cuMemAlloc` stays in its table, because it may end
    /// meanwhile with its context.
    pub created: Vec<(u64, Part)>,
    /// Device memory that was given back, in bytes.
    pub moved_bytes: u64,
}
