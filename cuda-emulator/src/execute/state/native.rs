// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of translated code (`jit`) in a worker and in a warp.

use crate::native::{Place, Shape, Table, View};

/// A worker's way into translated code.
pub(in crate::execute) struct NativeState<'l> {
    pub(in crate::execute) shape: Shape,
    /// The places for warps that are complete, and for parts of warps.
    pub(in crate::execute) tables: [Option<&'l Table>; 2],
    /// Arrivals since the last look.
    pub(in crate::execute) arrivals: [u32; 2],
    pub(in crate::execute) view: Box<View>,
    /// The addresses of all variables, when the launch does not give that many.
    pub(in crate::execute) globals: Vec<u64>,
}

/// A warp that left translated code at a barrier: some of its registers are in `Warp::barrier_words` rather than in the
/// frame.
#[derive(Debug)]
pub(in crate::execute) struct AtBarrier {
    /// The place at which it continues, if the same lanes do.
    pub(in crate::execute) place: *const Place,
    pub(in crate::execute) active: u32,
    pub(in crate::execute) base: u32,
}
