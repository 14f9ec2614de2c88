// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Device code.

use crate::c_structs;

c_structs! {
    /// `__fatBinC_Wrapper_t`.
    __fatBinC_Wrapper_t: 24 {
        /// `FATBINC_MAGIC`.
        magic: u32,
        /// `FATBINC_VERSION` or `FATBINC_LINK_VERSION`.
        version: u32,
        /// The address of the container.
        data: usize,
        /// In version 2: the address of a null-terminated array of the containers that were linked into `data`.
        parts: usize,
    }
}
