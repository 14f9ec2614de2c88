// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of the guest's driver itself: kept pages go back, shared areas come.

use virtio_cuda_protocol::cuda::ContextId;
use virtio_cuda_protocol::transport::{REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK};

use super::call::{Reply, ThreadState};
use super::gpu::{CuResult, CudaError};
use super::pages::PageList;
use super::state::SessionState;
use crate::link::{Frame, TO_SHARE, TO_UNPIN};

/// Executes an unpin or a share.
pub fn execute(session: &SessionState, frame: &Frame) -> Reply {
    let status = match frame.header.kind {
        TO_UNPIN => {
            unpin(session, frame.header.tag);
            REPLY_OK
        }
        TO_SHARE => match share(session, frame) {
            Ok(()) => REPLY_OK,
            Err(CudaError::OUT_OF_MEMORY) => REPLY_NO_RESOURCES,
            Err(_) => REPLY_INVALID,
        },
        _ => REPLY_INVALID,
    };
    (status, Vec::new())
}

/// Lets no call begin to use the pages named `tag`. Whether one uses them still.
pub fn withdraw(session: &SessionState, tag: u64) -> bool {
    let Some(registered) = session.window().find(tag, false).and_then(|area| area.registered) else {
        return false;
    };
    session.allocations().remove(registered.dptr);
    session.holds.is_held(registered.dptr)
}

/// Takes kept pages out of the window, as soon as no call uses them any more. After that nothing here reaches them; if
/// that cannot be had, the process ends. A tag under which nothing is mapped (its call failed) is fine.
fn unpin(session: &SessionState, tag: u64) {
    withdraw(session, tag);
    loop {
        // Contexts are locked before the window everywhere, so the context is made current without it.
        let Some(found) = session.window().find(tag, false) else { return };
        if let Some(gpu) = found.registered {
            session.holds.wait(gpu.dptr);
        }
        let current = found.registered.map(|gpu| make_current(session, ContextId(gpu.context)));
        let mut window = session.window();
        if window.find(tag, false) != Some(found) {
            // Its context has just ended.
            continue;
        }
        if let Some(current) = current
            && let Err(error) = current.and_then(|()| unregister(session, found.base))
        {
            super::end_process(&format!("pages of the guest stay registered with the GPU: {error}"));
        }
        return window.unmap(found.base);
    }
}

fn make_current(session: &SessionState, context: ContextId) -> CuResult<()> {
    ThreadState::default().make_current(session, context)
}

fn unregister(session: &SessionState, base: u64) -> CuResult<()> {
    // SAFETY: the address was registered and is mapped until the caller has unmapped it.
    unsafe { session.gpu.cuMemHostUnregister(base as *mut _) }
}

/// Maps an area that driver and process share. It stays until the session ends.
fn share(session: &SessionState, frame: &Frame) -> CuResult<()> {
    let pages = PageList::new(session.memory(), frame.out_entries.clone())?;
    session.window().map(&pages.file_pieces()?, 0, frame.header.tag, true).map(drop)
}
