// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A translated function, and the conditions of its translation.

use cranelift_jit::JITModule;

use super::entry::{Entry, Exit};
use super::shape::Shape;
use super::view::NativeCode;

/// The kinds of lanes and code that a translation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) shape: Shape,
    /// Other lanes of the warp may be elsewhere: the frame holds their registers, too.
    pub(crate) partial: bool,
}

/// A translated function.
pub(crate) struct Compiled {
    /// `None` only while it is dropped.
    pub(crate) module: Option<JITModule>,
    pub(crate) code: NativeCode,
    pub(crate) entries: Vec<Entry>,
    pub(crate) exits: Vec<Exit>,
    /// Bytes of its instructions.
    pub(crate) bytes: usize,
}

// SAFETY: the module is only kept to be freed; executable memory is the same for all threads.
unsafe impl Send for Compiled {}
// SAFETY: nothing changes a translated function, so threads may execute it at the same time.
unsafe impl Sync for Compiled {}

impl Drop for Compiled {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: `code` is reachable through the program only, and launches borrow the program: nobody runs it any more.
            unsafe { module.free_memory() };
        }
    }
}
