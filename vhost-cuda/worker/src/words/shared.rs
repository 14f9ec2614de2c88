// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for objects that another process of the guest has offered, and for functions of the program.

use std::fs::File;
use std::os::fd::AsRawFd;

use vhost_cuda_common::exchange::{EVENT, HANDLE_BYTES, POOL, TOKEN_BYTES};
use virtio_cuda_protocol::cuda::CallbackId;

use crate::call::CallContext;
use crate::gpu::{CuResult, CudaError, RawIpcHandle, SharedEvent, StreamCallback};
use crate::run::callbacks::run_stream_callback;

/// The first bytes of the emulator's handles. Workers may not create sockets, over which the emulator shares
/// otherwise.
pub const EMULATED: &[u8] = b"cudaemu\x01";
/// Offset of the descriptor of the memory file in such a handle.
pub const EMULATED_DESCRIPTOR: usize = 48;
/// Offset of the number that defines the process of the descriptor.
const EMULATED_PLACE: usize = 52;
/// The value for a descriptor of the process that opens the handle.
const EMULATED_HERE: u32 = 1;

/// Returns a handle for this process, with the descriptor of a file that came with it.
pub fn handle_with(mut handle: [u8; HANDLE_BYTES], file: Option<&File>) -> [u8; HANDLE_BYTES] {
    if let Some(file) = file {
        handle[EMULATED_DESCRIPTOR..][..4].copy_from_slice(&file.as_raw_fd().to_ne_bytes());
        handle[EMULATED_PLACE..][..4].copy_from_slice(&EMULATED_HERE.to_ne_bytes());
    }
    handle
}

/// An event of another process, by its token.
pub fn shared_event(cx: &CallContext<'_>, token: [u8; TOKEN_BYTES]) -> CuResult<SharedEvent> {
    let (offer, file) = cx.session.sharing.look_up(token, EVENT)?;
    cx.thread.opened_event.set(Some(token));
    let handle = RawIpcHandle { reserved: handle_with(offer.handle, file.as_ref()) };
    Ok(SharedEvent { handle, file })
}

/// A pool of another process, by its token.
pub fn shared_pool(cx: &CallContext<'_>, token: [u8; TOKEN_BYTES]) -> CuResult<File> {
    let (_, file) = cx.session.sharing.look_up(token, POOL)?;
    file.ok_or(CudaError::INVALID_VALUE)
}

/// A function of the program that the guest runs.
pub fn in_guest(_cx: &CallContext<'_>, callback: CallbackId) -> CuResult<StreamCallback> {
    // SAFETY: the function takes any number.
    Ok(unsafe { StreamCallback::new(run_stream_callback, callback.0) })
}
