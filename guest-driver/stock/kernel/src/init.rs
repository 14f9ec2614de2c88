// SPDX-License-Identifier: GPL-2.0-only

//! Initialisation in place.

/// [`pinned_init::try_pin_init!`] with the kernel's [`Error`](crate::error::Error).
#[macro_export]
macro_rules! try_pin_init {
    ($($args:tt)*) => {
        ::pinned_init::try_pin_init!($($args)* ? $crate::error::Error)
    };
}
