// SPDX-License-Identifier: GPL-2.0-only

//! Time.

use crate::{
    ffi::{c_uint, c_ulong},
    glue,
};
use core::marker::PhantomData;

/// Milliseconds.
pub type Msecs = c_uint;
/// Ticks of the kernel's clock.
pub type Jiffies = c_ulong;

/// Converts milliseconds to jiffies, rounding up.
pub fn msecs_to_jiffies(ms: Msecs) -> Jiffies {
    // SAFETY: Arithmetic.
    unsafe { glue::stock_msecs_to_jiffies(ms) }
}

/// The monotonic clock.
#[derive(Clone, Copy)]
pub struct Monotonic;

/// A point in time, in nanoseconds.
#[derive(Clone, Copy)]
pub struct Instant<C>(i64, PhantomData<C>);

/// A duration in nanoseconds.
#[derive(Clone, Copy)]
pub struct Delta(i64);

impl Instant<Monotonic> {
    /// Returns the current time.
    pub fn now() -> Self {
        // SAFETY: Reads a clock.
        Self(unsafe { glue::stock_ktime_ns() }, PhantomData)
    }

    /// Returns the time since this instant.
    pub fn elapsed(&self) -> Delta {
        Delta(Self::now().0.wrapping_sub(self.0))
    }
}

impl Delta {
    /// Returns the duration in nanoseconds.
    pub fn as_nanos(self) -> i64 {
        self.0
    }
}
