// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passes the memory that NCCL's ranks share to other workers, for the emulator. Its CPU version of NCCL creates a
//! memory file for each communicator, and cannot create sockets here. The daemon's exchange passes the file to
//! workers of the same user of the same machine that know the communicator's id.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::{BorrowedFd, IntoRawFd};

use vhost_cuda_common::exchange::{COMMUNICATOR, HANDLE_BYTES, Offer, Token};

use super::gpu::{Courier, Driver};
use super::sharing::Sharing;

/// Makes the emulator pass files through the exchange.
pub fn start(gpu: &Driver, sharing: &'static Sharing) {
    gpu.set_courier(Courier { context: sharing, offer, fetch, withdraw });
}

/// # Safety
///
/// The descriptor is open, and there is room for a token.
unsafe extern "C" fn offer(sharing: &'static Sharing, descriptor: c_int, token: *mut Token) -> c_int {
    // SAFETY: `# Safety` promises that the descriptor is open.
    let Ok(file) = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned() else { return -1 };
    let offer = Offer { what: COMMUNICATOR, device: 0, bytes: 0, handle: [0; HANDLE_BYTES] };
    match sharing.offer(offer, Some(&File::from(file))) {
        Ok(given) => {
            // SAFETY: `# Safety` promises that there is room for a token.
            unsafe { token.write(given) };
            0
        }
        Err(_) => -1,
    }
}

/// # Safety
///
/// `token` points to a token.
unsafe extern "C" fn fetch(sharing: &'static Sharing, token: *const Token) -> c_int {
    // SAFETY: `# Safety` promises that `token` points to a token.
    let found = sharing.look_up(unsafe { token.read_unaligned() }, COMMUNICATOR);
    found.ok().and_then(|(_, file)| file).map_or(-1, File::into_raw_fd)
}

/// # Safety
///
/// As [`fetch`].
unsafe extern "C" fn withdraw(sharing: &'static Sharing, token: *const Token) {
    // SAFETY: `fetch` demands that `token` points to a token.
    sharing.withdraw(unsafe { token.read_unaligned() });
}
