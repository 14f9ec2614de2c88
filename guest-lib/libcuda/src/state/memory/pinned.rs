// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pages that the device keeps.

/// Kept pages of a range.
#[derive(Clone, Copy, Debug)]
pub struct Pinned {
    /// The tag for unpinning.
    pub tag: u64,
}

/// Pages that the device keeps.
#[derive(Debug)]
pub struct Attached {
    /// The address of the first page on the GPU.
    pub device_address: u64,
    /// The tags of the pieces, each of which fits one request.
    pub pinned: Vec<Pinned>,
}
