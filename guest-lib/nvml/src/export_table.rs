// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The private table that NVIDIA's `nvidia-smi` requests before anything else, and without which it exits. Its
//! functions are not imitated: each returns what an unsupported public function returns.

use crate::error::{
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_FOUND, NVML_ERROR_NOT_SUPPORTED, nvmlReturn_t,
};
use crate::pointers::Out;

/// The table's id (of release 580, and others).
const ID: [u8; 16] =
    [0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4];
/// Number of functions; more than any known release has.
const FUNCTIONS: usize = 1023;

/// As in all of NVIDIA's tables, the first field is the table's size.
#[repr(C)]
struct Table {
    bytes: usize,
    functions: [extern "C" fn() -> nvmlReturn_t; FUNCTIONS],
}

static TABLE: Table = Table { bytes: size_of::<Table>(), functions: [not_supported; FUNCTIONS] };

extern "C" fn not_supported() -> nvmlReturn_t {
    NVML_ERROR_NOT_SUPPORTED
}

api! {
    fn nvmlInternalGetExportTable(table: Out<*const u8>, id: *const [u8; 16]) {
        if table.is_null() || id.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the program promises an identifier.
        if unsafe { *id } != ID {
            return Err(NVML_ERROR_NOT_FOUND);
        }
        table.set((&raw const TABLE).cast())
    }
}
