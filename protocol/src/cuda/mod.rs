// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The CUDA call table: the meaning of an `OP_CALL`'s payload for the guest library and the device.
//!
//! A payload is a [`CallHeader`], the arguments of the row (each [`Wire`] value in turn, little-endian)
//! and, if [`CALL_IN_INLINE`] is set, the bulk input. The reply is a [`ResultHeader`], the row's results
//! and, if [`CALL_OUT_INLINE`] was set, the bulk output. Names, images, kernel parameters and memory are
//! bulk: everything whose length is not fixed.

pub mod descriptor;
pub mod getter;
pub mod graph;
pub mod handle;
pub mod header;
pub mod table;
pub mod value;
pub mod variable;

pub use descriptor::*;
pub use getter::{Getter, Parameter};
pub use graph::*;
pub use handle::*;
pub use header::*;
pub use table::Opcode;
pub use value::*;
pub use variable::*;

/// Version of the call table: the newest one that any row is of.
pub const CALL_TABLE_VERSION: u32 = 7;

/// The oldest version that this release still agrees on. Guest library and worker agree on the newest version that both
/// know ([`agreed_version`]), and use its calls only.
pub const OLDEST_CALL_TABLE_VERSION: u32 = 4;

/// Returns the version that this release uses with a peer whose newest one is `newest`, as far as the peer still knows it.
/// `None`: they have no version in common.
pub const fn agreed_version(newest: u32) -> Option<u32> {
    if newest < OLDEST_CALL_TABLE_VERSION {
        return None;
    }
    Some(if newest < CALL_TABLE_VERSION { newest } else { CALL_TABLE_VERSION })
}

/// The minimum size, in bytes, of an image that the device keeps, and whose digest the guest sends first. For smaller
/// images this question costs more than sending them (`docs/performance/runs/2026-11-21-emulator-images.json`).
pub const MIN_KNOWN_IMAGE_BYTES: u64 = 64 << 10;

/// Maximum bytes of pinned memory that NVIDIA's driver may read while a copy to the device is queued, if the copy's stream
/// has no work. It then does not wait for streams with which that stream synchronises implicitly. It read 4 KiB so, and not
/// 32 KiB (driver 580, H100).
pub const MAX_READ_EARLY_BYTES: u64 = (32 << 10) - 1;

/// The start of the address window: pinned, mapped and managed host memory has the same address in the
/// guest process, in its worker and on the GPU. Both reserve it before they use CUDA.
pub const WINDOW_BASE: u64 = 0x2000_0000_0000;
/// Bytes of the address window.
pub const WINDOW_BYTES: u64 = 1 << 40;
/// The start of the addresses that the guest library chooses for reservations of the program (`cuMemAddressReserve`). The
/// library of the guest keeps the window before them for managed memory. Parts of them can join the address window
/// (`window_claim`). The range is as long as the address window.
pub const RESERVATIONS_BASE: u64 = WINDOW_BASE + 2 * WINDOW_BYTES;
