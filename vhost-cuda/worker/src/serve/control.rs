// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of the guest's driver itself: it takes kept pages back, and adds shared areas.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use vhost_cuda_common::link::{Frame, TO_SHARE, TO_UNPIN};
use virtio_cuda_protocol::cuda::ContextId;
use virtio_cuda_protocol::transport::{REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK};

use crate::gpu::{CuResult, CudaError, with_capture_relaxed};
use crate::memory::pages::PageList;
use crate::memory::window::{Area, Registration, Window};
use crate::objects::Object;
use crate::run::replies::Reply;
use crate::state::SessionState;

/// The time between two checks of whether a context has been destroyed.
const SOON: Duration = Duration::from_millis(1);

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

/// Returns the area with tag `tag`, and the registration that it is part of.
fn find(window: &Window, tag: u64) -> Option<(Area, Option<Registration>)> {
    window.find(tag, false).map(|area| (area, window.registration(&area)))
}

/// Prevents new calls from using the pages with tag `tag`. Returns whether a call still uses them.
pub fn withdraw(session: &SessionState, tag: u64) -> bool {
    let Some((_, Some(registered))) = find(&session.window(), tag) else {
        return false;
    };
    session.allocations().remove(registered.dptr);
    session.holds.is_held(registered.dptr)
}

/// Takes kept pages out of the window, as soon as no call uses them any more. After that this process cannot reach them; if
/// that fails, the process ends. A tag under which nothing is mapped (its call failed) is not an error.
fn unpin(session: &SessionState, tag: u64) {
    withdraw(session, tag);
    loop {
        // Contexts are locked before the window everywhere, so the context is made current without it.
        let Some(found) = find(&session.window(), tag) else { return };
        if let Some(gpu) = found.1 {
            session.holds.wait(gpu.dptr);
        }
        // It stays until the pages are unregistered, and is dropped after the window is unlocked.
        let context = found.1.map(|gpu| (gpu.base, hold_current(session, ContextId(gpu.context))));
        let mut window = session.window();
        if find(&window, tag) != Some(found) {
            // Its context has just ended, or another part of the registration was removed.
            continue;
        }
        if let Some((base, context)) = &context {
            let base = *base;
            if matches!(context, Ok(None)) {
                // The driver is destroying it. The window is updated next.
                drop(window);
                thread::sleep(SOON);
                continue;
            }
            let current = context.as_ref().map(drop).map_err(|error| *error);
            if let Err(error) = current.and_then(|()| unregister(session, base)) {
                crate::end_process(&format!("pages of the guest stay registered with the GPU: {error}"));
            }
            window.set_unregistered(base);
        }
        return window.unmap(found.0.base);
    }
}

/// Makes a context current that lives or is about to end, and keeps it. `None` while the driver destroys it.
fn hold_current(session: &SessionState, context: ContextId) -> CuResult<Option<Arc<Object>>> {
    let held = session.contexts.lock().find(context)?;
    if let Some(context) = &held {
        session.gpu.cuCtxSetCurrent(context.raw())?;
    }
    Ok(held)
}

/// Ends a registration. The guest may take pages back at any time, so a capture in global mode must neither refuse this nor
/// end because of it.
fn unregister(session: &SessionState, base: u64) -> CuResult<()> {
    // SAFETY: the address was registered, and all of that is mapped until the caller has unmapped a part.
    with_capture_relaxed(&session.gpu, || unsafe { session.gpu.cuMemHostUnregister(base as *mut _) })
}

/// Maps an area that driver and process share. It stays until the session ends.
fn share(session: &SessionState, frame: &Frame) -> CuResult<()> {
    let pages = PageList::for_window(session.memory(), frame.out_entries.clone())?;
    session.window().map(&pages.file_pieces()?, 0, frame.header.tag, true).map(drop)
}
