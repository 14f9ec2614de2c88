// SPDX-License-Identifier: GPL-2.0-only

//! Watches kept pages of pageable memory: the kernel reports when a process's mapping of them is about to change
//! (munmap, mremap, madvise, fork, …). From then on the pages are not used for copies any more, and the session asks
//! the device to release them.

use crate::{
    error::Fault,
    linux::bindings as glue,
    memory::span::Span,
    session::Session,
    transport::PAGE_BYTES, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// Maximum number of watches per session. Limits the time of mapping changes, for which the kernel walks over the
/// watches.
const MAX_WATCHES: usize = 4096;

/// A watch of the pages that are kept under a tag.
///
/// # Invariants
///
/// `raw` is a watch of `glue/memory.c` that only [`Drop`] frees; its cookie is a reference to the session that
/// this value owns.
pub(crate) struct Watch {
    raw: NonNull<glue::virtio_cuda_watch>,
    cookie: *const Session,
    pub(crate) tag: u64,
}

// SAFETY: The C side may be asked and freed by any task.
unsafe impl Send for Watch {}
// SAFETY: The C side takes its own lock for concurrent calls of tasks.
unsafe impl Sync for Watch {}

impl Watch {
    /// Starts watching `span` in the current process.
    pub(crate) fn new(session: Arc<Session>, tag: u64, span: &Span) -> Result<Self> {
        let bytes = span.pages.checked_mul(PAGE_BYTES).ok_or(EINVAL)?;
        let cookie = session.into_raw();
        let mut raw = ptr::null_mut();
        // SAFETY: `changed` is called with the cookie while the watch exists, and the reference lives longer.
        let made = unsafe {
            glue::virtio_cuda_watch_new(
                &mut raw,
                span.first_page as c_ulong,
                bytes as c_ulong,
                changed,
                cookie.cast_mut().cast(),
            )
        };
        match to_result(made).and_then(|()| NonNull::new(raw).ok_or(ENOMEM)) {
            // INVARIANT: Just created; the reference is this value's.
            Ok(raw) => Ok(Self { raw, cookie, tag }),
            Err(error) => {
                // SAFETY: From `into_raw` above; it has no other owner.
                drop(unsafe { Arc::from_raw(cookie) });
                Err(error)
            }
        }
    }

    /// Returns whether a mapping has changed or is about to change.
    pub(crate) fn is_stale(&self) -> bool {
        // SAFETY: Valid by the invariant.
        unsafe { glue::virtio_cuda_watch_is_stale(self.raw.as_ptr()) }
    }

    /// Forgets earlier changes.
    pub(crate) fn reset(&self) {
        // SAFETY: Valid by the invariant.
        unsafe { glue::virtio_cuda_watch_reset(self.raw.as_ptr()) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: By the invariant; after this `changed` is not called any more.
        unsafe { glue::virtio_cuda_watch_free(self.raw.as_ptr()) };
        // SAFETY: From `into_raw` in `new`, once.
        drop(unsafe { Arc::from_raw(self.cookie) });
    }
}

/// Handles a mapping that is about to change. Must not sleep.
///
/// # Safety
///
/// `cookie` is that of an existing [`Watch`].
unsafe extern "C" fn changed(cookie: *mut c_void) {
    // SAFETY: The watch has a reference to the session until after its end.
    let session = unsafe { ArcBorrow::from_raw(cookie.cast_const().cast::<Session>()) };
    Session::sweep_soon(&session.into());
}

/// The watches of a session; None once it is closed.
pub(crate) struct Watches(Option<KVec<Watch>>);

impl Watches {
    pub(crate) fn new() -> Self {
        Self(Some(KVec::new()))
    }

    /// Adds a watch. `ENOLINK`: the session is closed; `EDQUOT`: there are too many.
    pub(crate) fn add(&mut self, watch: Watch) -> Result<(), (Watch, Error)> {
        let Some(list) = &mut self.0 else {
            return Err((watch, Fault::Lost.into()));
        };
        if list.len() >= MAX_WATCHES {
            return Err((watch, Fault::Quota.into()));
        }
        match list.reserve(1, GFP_KERNEL_ACCOUNT) {
            // The vector has room.
            Ok(()) => {
                let _ = list.push_within_capacity(watch);
                Ok(())
            }
            Err(_) => Err((watch, ENOMEM)),
        }
    }

    fn list(&self) -> &[Watch] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// Returns whether `tag` is watched and nothing has changed.
    pub(crate) fn is_fresh(&self, tag: u64) -> bool {
        self.list().iter().any(|w| w.tag == tag && !w.is_stale())
    }

    /// Takes the first watch that has seen a change and for which `leave` returns true.
    pub(crate) fn take_stale(&mut self, mut leave: impl FnMut(u64) -> bool) -> Option<Watch> {
        let index = self
            .list()
            .iter()
            .position(|w| w.is_stale() && leave(w.tag))?;
        self.0.as_mut()?.remove(index).ok()
    }

    /// Takes the watch of `tag`.
    pub(crate) fn take(&mut self, tag: u64) -> Option<Watch> {
        let index = self.list().iter().position(|w| w.tag == tag)?;
        self.0.as_mut()?.remove(index).ok()
    }

    /// Takes all watches; no more can be added.
    pub(crate) fn end(&mut self) -> Option<KVec<Watch>> {
        self.0.take()
    }
}
