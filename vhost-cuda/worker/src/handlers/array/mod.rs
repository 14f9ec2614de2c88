// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays and mipmapped arrays.

pub mod map;

use virtio_cuda_protocol::cuda::{ArrayDescriptor, ArrayId, MipmappedArrayId};

use crate::call::CallContext;
use crate::call::lifecycle::described;
use crate::gpu::{CUarray, CuResult, CudaError, Driver, RawArray};
use crate::memory::formats::Shape;
use crate::memory::pools;
use crate::memory::quota::{self, Holder};
use crate::objects::{Object, Parent, Table};
use crate::state::SessionState;

/// The maximum number of levels of a mipmapped array. The driver clamps it to the size, at most 32 halvings.
const MAX_LEVELS: u32 = 64;

/// The driver's allocation unit for arrays, in bytes.
const ARRAY_BYTES: u64 = 64 << 10;

fn create(cx: &CallContext<'_>, descriptor: &RawArray) -> CuResult<(CUarray, ArrayDescriptor)> {
    // SAFETY: the description lives across the call.
    let (raw,) = unsafe { cx.gpu().cuArray3DCreate_v2(descriptor) }?;
    let actual = described(cx, raw).inspect_err(|_| {
        let _ = cx.gpu().cuArrayDestroy(raw);
    })?;
    Ok((raw, actual))
}

/// Charges `bytes` bytes for an array or mipmapped array. One without memory of its own is charged nothing.
fn charge(cx: &CallContext<'_>, name: u64, bytes: u64) -> CuResult<()> {
    let charged = bytes.checked_next_multiple_of(ARRAY_BYTES).map_or(u64::MAX, quota::rounded);
    pools::charge(cx.session, |allocations| allocations.quota.hold(Holder::Array(name), charged, cx.home()))
}

fn let_go(cx: &CallContext<'_>, name: u64) {
    cx.session.allocations().quota.let_go(Holder::Array(name));
}

/// Releases the charge of an array or mipmapped array, and the memory that only its mappings held.
fn discharge(session: &SessionState, name: u64) {
    let mut reservations = session.reservations();
    let unused = reservations.externals.unmap_array(name);
    let free = reservations.free_external(unused) + reservations.forget_array(name);
    let mut allocations = session.allocations();
    allocations.quota.let_go(Holder::Array(name));
    allocations.discharge(free);
}

/// Returns an array or mipmapped array that is charged by its name. The name is free again when `end` has destroyed
/// it.
pub(super) fn counted<T: 'static>(
    cx: &CallContext<'_>,
    context: Option<Parent>,
    name: u64,
    table: &'static Table,
    raw: *mut T,
    end: fn(&Driver, *mut T) -> CuResult<()>,
) -> Object {
    let session = cx.session;
    let object = cx.made_in(context, raw, move |gpu, raw| {
        let destroyed = end(gpu, raw);
        discharge(session, name);
        table.free_name(name);
        destroyed
    });
    object.keeps_name()
}

/// Creates an array.
pub fn cuArray3DCreate_v2(
    cx: &mut CallContext<'_>,
    array: ArrayId,
    descriptor: ArrayDescriptor,
) -> CuResult<(ArrayDescriptor,)> {
    let raw = RawArray::from(&descriptor);
    let bytes = Shape::bytes_at_once(&raw)?;
    let reserved = cx.session.objects.arrays.reserve(array.0)?;
    charge(cx, array.0, bytes)?;
    let made = create(cx, &raw);
    let (raw, actual) = made.inspect_err(|_| let_go(cx, array.0))?;
    cx.fill(
        reserved,
        counted(cx, cx.home_of(), array.0, &cx.session.objects.arrays, raw, Driver::cuArrayDestroy),
    )?;
    Ok((actual,))
}

/// Creates a mipmapped array. The quota counts each level with half the previous size in each direction, rounded up.
pub fn cuMipmappedArrayCreate(
    cx: &mut CallContext<'_>,
    mipmap: MipmappedArrayId,
    descriptor: ArrayDescriptor,
    levels: u32,
) -> CuResult<()> {
    let raw = RawArray::from(&descriptor);
    let first = Shape::bytes_at_once(&raw)?;
    // Each level is at most half as large as the previous one, so all together are at most twice the first.
    let bytes = if levels > 1 { first.checked_mul(2).ok_or(CudaError::INVALID_VALUE)? } else { first };
    let reserved = cx.session.objects.mipmaps.reserve(mipmap.0)?;
    charge(cx, mipmap.0, bytes)?;
    // SAFETY: the description lives across the call.
    let made = unsafe { cx.gpu().cuMipmappedArrayCreate(&raw, levels.min(MAX_LEVELS)) };
    let (raw,) = made.inspect_err(|_| let_go(cx, mipmap.0))?;
    cx.fill(
        reserved,
        counted(
            cx,
            cx.home_of(),
            mipmap.0,
            &cx.session.objects.mipmaps,
            raw,
            Driver::cuMipmappedArrayDestroy,
        ),
    )
}
