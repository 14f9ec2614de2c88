// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The context that owns what a call makes.

/// The context that owns what a call makes, and its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Home {
    /// The context's name; 0 is none.
    pub context: u64,
    /// The driver's number of the device.
    pub device: i32,
}
