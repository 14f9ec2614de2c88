// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The numbers of the program's API calls. Requests carry them while a profiler measures, so that the worker can match the
//! work of a GPU with a call.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use virtio_cuda_protocol::cuda::{CALL_CORRELATION_BITS, CALL_CORRELATION_SHIFT};

/// Returns the number of the calling thread's API call; 0 for none.
pub type Correlation = extern "C" fn() -> u32;

static CORRELATION: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Makes requests carry numbers, or no numbers.
pub fn set(correlation: Option<Correlation>) {
    CORRELATION.store(correlation.map_or(null_mut(), |function| function as *mut ()), Ordering::Relaxed);
}

/// Returns the bits of a call's flags.
#[inline]
pub fn flags() -> u32 {
    let function = CORRELATION.load(Ordering::Relaxed);
    if function.is_null() { 0 } else { flags_of(function) }
}

#[cold]
fn flags_of(function: *mut ()) -> u32 {
    // SAFETY: not NULL, so `set` stored it: a function with this signature.
    let correlation = unsafe { std::mem::transmute::<*mut (), Correlation>(function) }();
    (correlation & ((1 << CALL_CORRELATION_BITS) - 1)) << CALL_CORRELATION_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_carry_low_bits_of_numbers() {
        extern "C" fn number() -> u32 {
            0xab12_3456
        }
        assert_eq!(flags(), 0);
        set(Some(number));
        assert_eq!(flags(), 0x1234_5600);
        set(None);
        assert_eq!(flags(), 0);
    }
}
