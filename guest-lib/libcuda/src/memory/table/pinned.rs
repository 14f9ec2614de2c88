// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pages that the device keeps.

/// Kept pages that belong to a range.
#[derive(Clone, Copy, Debug)]
pub struct Pinned {
    /// The name for unpinning.
    pub tag: u64,
}

/// Pages that the device keeps.
#[derive(Debug)]
pub struct Attached {
    /// The address of the first page on the GPU.
    pub device_address: u64,
    /// Their names: of pieces that a request has room for.
    pub pinned: Vec<Pinned>,
}
