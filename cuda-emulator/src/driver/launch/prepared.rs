// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a function that the launch calls of CUDA 3 set.

/// The settings of a function for its next launch.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) parameters: Vec<u8>,
    pub(super) parameter_bytes: u32,
}
