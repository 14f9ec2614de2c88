// SPDX-License-Identifier: GPL-2.0-only

//! Devices, for log messages.

use crate::{bindings, glue, print::Line, sync::aref::AlwaysRefCounted, types::Opaque};
use core::{fmt, ptr::NonNull};

/// A device.
#[repr(transparent)]
pub struct Device(Opaque<bindings::device>);

// SAFETY: The functions used here may be called by any task.
unsafe impl Send for Device {}
// SAFETY: The functions used here may be called by several tasks at once.
unsafe impl Sync for Device {}

impl Device {
    /// # Safety
    ///
    /// `dev` is valid during `'a`.
    pub unsafe fn from_raw<'a>(dev: *mut bindings::device) -> &'a Self {
        // SAFETY: `# Safety` promises that the device is valid during `'a`; the type is transparent.
        unsafe { &*dev.cast() }
    }

    /// Prints a message. Use [`dev_err!`](crate::dev_err) and similar macros.
    #[doc(hidden)]
    pub fn print(&self, level: u32, arguments: fmt::Arguments<'_>) {
        let line = Line::new(arguments);
        let text = line.bytes();
        // SAFETY: The device is valid, and so is the text.
        unsafe { glue::stock_print_dev(level, self.0.get(), text.as_ptr(), text.len()) }
    }
}

// SAFETY: `get_device` and `put_device` count references.
unsafe impl AlwaysRefCounted for Device {
    fn inc_ref(&self) {
        // SAFETY: `self` is valid.
        unsafe { glue::stock_device_get(self.0.get()) }
    }

    unsafe fn dec_ref(this: NonNull<Self>) {
        // SAFETY: `AlwaysRefCounted::dec_ref` demands a reference that is not used any more.
        unsafe { glue::stock_device_put(this.as_ptr().cast()) }
    }
}

/// Prints an error about a device.
#[macro_export]
macro_rules! dev_err {
    ($dev:expr, $($args:tt)*) => { $dev.print(3, ::core::format_args!($($args)*)) };
}

/// Prints a warning about a device.
#[macro_export]
macro_rules! dev_warn {
    ($dev:expr, $($args:tt)*) => { $dev.print(4, ::core::format_args!($($args)*)) };
}

/// Prints an information message about a device.
#[macro_export]
macro_rules! dev_info {
    ($dev:expr, $($args:tt)*) => { $dev.print(6, ::core::format_args!($($args)*)) };
}
