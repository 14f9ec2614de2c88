// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address of every exported name, for cuGetProcAddress.

/// A variant of an API function.
pub(super) struct Symbol {
    /// The name without suffix, which programs request.
    pub(super) base: &'static str,
    /// The first CUDA version whose headers use this variant, in the format of cuDriverGetVersion.
    pub(super) version: i32,
    /// The exported name.
    pub(super) name: &'static str,
    /// The exported function. Its real arguments differ: the address is only passed on.
    pub(super) address: unsafe extern "C" fn(),
}

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));

impl Symbol {
    /// Returns whether its default stream is the per-thread one.
    pub(super) fn per_thread(&self) -> bool {
        self.name.ends_with("_ptsz") || self.name.ends_with("_ptds")
    }
}
