// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Structures whose bytes only the driver interprets.

use crate::c_structs;

c_structs! {
    /// `CUipcMemHandle`.
    CUipcMemHandle: 64 (Eq) {
        /// The driver's bytes.
        reserved: [u8; 64],
    }

    /// `CUuuid`.
    CUuuid: 16 (Eq, Default) {
        /// The number.
        bytes: [u8; 16],
    }
}

/// `CUipcEventHandle`.
pub type CUipcEventHandle = CUipcMemHandle;
/// `CUmemPoolPtrExportData`.
pub type CUmemPoolPtrExportData = CUipcMemHandle;

/// `CUtensorMap`. Programs of earlier CUDA versions align it to 64 bytes, those of 13 to 128.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct CUtensorMap {
    /// The encoded map.
    pub opaque: [u8; 128],
}

const _: () = assert!(size_of::<CUtensorMap>() == 128);
