// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Local memory of threads, which the driver takes for a whole context.

use super::CallContext;
use crate::gpu::CuResult;
use crate::home::Home;
use crate::memory::pools;
use crate::memory::quota::{self, Holder};

/// The default stack of a thread.
const STACK_BYTES: u64 = 1024;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT` and `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR`.
const MULTIPROCESSORS: i32 = 16;
const THREADS_PER_MULTIPROCESSOR: i32 = 39;

/// Returns the bytes that the driver takes if threads have `each` bytes of local memory: for the maximum number of resident
/// threads, beyond the bytes that every context has.
pub fn bytes_of_stacks(cx: &CallContext<'_>, each: u64) -> CuResult<u64> {
    let device = cx.owner()?.device;
    let number =
        |attribute| Ok(u64::from(cx.gpu().cuDeviceGetAttribute(attribute, device)?.0.unsigned_abs()));
    let threads = number(MULTIPROCESSORS)?.saturating_mul(number(THREADS_PER_MULTIPROCESSOR)?);
    Ok(quota::rounded(each.saturating_sub(STACK_BYTES).saturating_mul(threads)))
}

/// Charges the local memory of a function's threads, which the driver takes at its first launch and keeps: that of the
/// largest function of each context. `ask` queries the bytes per thread on a device.
pub fn charge_local(cx: &CallContext<'_>, ask: impl FnOnce(i32) -> CuResult<(i32,)>) -> CuResult<()> {
    let (true, Ok(Home { context, device })) = (cx.session.is_limited(), cx.owner()) else { return Ok(()) };
    let each = ask(device)?.0.unsigned_abs();
    let (holder, bytes) = (Holder::Local(context), bytes_of_stacks(cx, each.into())?);
    pools::charge(cx.session, |allocations| {
        let before = allocations.quota.held(holder);
        allocations.quota.hold(holder, bytes.max(before), context)
    })
}
