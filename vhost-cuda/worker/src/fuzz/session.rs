// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session for one input, in this process.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};

use parking_lot::{Mutex, MutexGuard};
use vhost_cuda_common::link::Region;
use virtio_cuda_protocol::cuda::{RESERVATIONS_BASE, WINDOW_BASE, WINDOW_BYTES};

use super::super::gpu::{Driver, null};
use super::super::memory::pages::{GuestFile, GuestPages, fixture::memory_file};
use super::super::memory::window::{IN_USE, Window};
use super::super::objects::images::Images;
use super::super::run::output::Output;
use super::super::sharing::Sharing;
use super::super::state::{Services, SessionLimits, SessionState};
use super::super::trace::Trace;
use super::super::vendor::Vendor;

/// Guest-physical address and bytes of the guest's memory. A part of it is mapped a second time.
pub const MEMORY_BASE: u64 = 0x1_0000;
pub const MEMORY_BYTES: u64 = 64 << 12;

/// The guest's memory, shared by all inputs, because creating it is slow.
static MEMORY: LazyLock<GuestFile> = LazyLock::new(|| GuestFile::Whole(Arc::new(memory_file(MEMORY_BYTES))));
/// Kept, so that requests for images and offers fail at once.
static IMAGES: LazyLock<Arc<Images>> = LazyLock::new(|| Images::new(dead_socket()));

/// The file of the guest's memory.
pub fn memory() -> &'static File {
    match &*MEMORY {
        GuestFile::Whole(file) => file,
        GuestFile::Huge(_) | GuestFile::Named(_) => unreachable!("it is made above"),
    }
}

fn dead_socket() -> UnixStream {
    UnixStream::pair().expect("a socket").0
}

/// A session, which ends when it is dropped.
pub struct FuzzSession {
    /// The session.
    pub state: &'static SessionState,
    _window: MutexGuard<'static, ()>,
}

impl FuzzSession {
    /// Creates a session with options: a limit of device memory, and the emulator's behaviour.
    pub fn new(limited: bool, emulated: bool) -> Self {
        Self::with(limited, emulated, Vendor::open_none)
    }

    /// A session that sees so many of the driver's devices, which are emulated, with the libraries of NVIDIA that `open` opens.
    #[cfg(test)]
    pub fn with_devices(devices: u32, open: impl FnOnce(&Vendor)) -> Self {
        Self::of(false, true, devices, open, Trace::open_none)
    }

    /// A session that sees one emulated device, with a limit of memory if `limited`, and the libraries of NVIDIA that `open` opens.
    pub fn with_one_device(limited: bool, open: impl FnOnce(&Vendor)) -> Self {
        Self::of(limited, true, 1, open, Trace::open_none)
    }

    /// A session whose launches are prepared, with the CUPTI that `open` opens.
    #[cfg(test)]
    pub fn with_trace(open: impl FnOnce(&Trace)) -> Self {
        Self::of(false, true, null::DEVICES, Vendor::open_none, open)
    }

    /// As [`Self::new`], with the libraries of NVIDIA that `open` opens.
    pub fn with(limited: bool, emulated: bool, open: impl FnOnce(&Vendor)) -> Self {
        Self::of(limited, emulated, null::DEVICES, open, Trace::open_none)
    }

    fn of(
        limited: bool,
        emulated: bool,
        devices: u32,
        open: impl FnOnce(&Vendor),
        open_trace: impl FnOnce(&Trace),
    ) -> Self {
        let lock = IN_USE.lock();
        null::reset();
        let window = Window::reserve().expect("the window is free");
        let limits = SessionLimits {
            memory: limited.then_some(64 << 20),
            copy_threads: 1,
            libraries: Vec::new(),
            emulated,
            plain: false,
        };
        static OUTPUT: Mutex<Option<Output>> = Mutex::new(None);
        let output = OUTPUT.lock().get_or_insert_with(Output::fixture).again();
        let services = Services { images: IMAGES.clone(), sharing: Sharing::new(dead_socket()) };
        let session = SessionState::new(Driver::null(), services, output, window, devices, limits);
        open(&session.vendor);
        session.vendor.open_none();
        open_trace(&session.trace);
        let region =
            Region { guest_addr: MEMORY_BASE, bytes: MEMORY_BYTES, page_bytes: 1 << 12, ..Region::default() };
        // Adjacent, so that an entry can lie in both.
        let again = Region {
            guest_addr: MEMORY_BASE + MEMORY_BYTES,
            bytes: 16 << 12,
            file_offset: 1 << 12,
            page_bytes: 1 << 12,
            number: 0,
        };
        let regions = [region, again].map(|region| (region, MEMORY.clone()));
        session.set_memory(GuestPages::map(regions.into()).expect("they do not overlap"));
        Self { state: Box::leak(Box::new(session)), _window: lock }
    }
}

impl Drop for FuzzSession {
    fn drop(&mut self) {
        null::script(0, 0, 0);
        self.state.end_everything();
        let session = std::ptr::from_ref(self.state).cast_mut();
        // SAFETY: the box that `new` has leaked. All objects that referred to the session are destroyed, and the threads that it
        // has started refer to parts that they own.
        drop(unsafe { Box::from_raw(session) });
        for base in [WINDOW_BASE, RESERVATIONS_BASE] {
            // SAFETY: the range is the window's, or has its claims; nothing of it is used any more.
            unsafe { libc::munmap(base as *mut _, WINDOW_BYTES as usize) };
        }
    }
}
