// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sharing of pools between processes of a guest. libcuda's file and data go to the daemon's exchange and never to a
//! guest.

use vhost_cuda_common::exchange::{HANDLE_BYTES, Offer, POINTER, POOL, Token};
use virtio_cuda_protocol::cuda::{DevicePtr, MemoryPoolId};

use crate::call::CallContext;
use crate::gpu::{CuResult, RawIpcHandle};
use crate::memory::pools;
use crate::memory::quota;

/// Offers a pool as a file.
pub fn cuMemPoolExportToShareableHandle(cx: &mut CallContext<'_>, pool: MemoryPoolId) -> CuResult<(Token,)> {
    let raw = cx.resolve(pool)?;
    let file = cx.gpu().pool_file(raw)?;
    let offer = Offer { what: POOL, device: 0, bytes: 0, handle: [0; HANDLE_BYTES] };
    // Pools belong to no context.
    Ok((cx.session.sharing.offer_named(pool.0, 0, offer, Some(&file))?,))
}

/// Offers the allocation that begins at an address.
pub fn cuMemPoolExportPointer(cx: &mut CallContext<'_>, dptr: DevicePtr) -> CuResult<(Token,)> {
    let range = cx.session.allocations().allocated_at(dptr.0)?;
    let (data,) = cx.gpu().cuMemPoolExportPointer(dptr.0)?;
    let offer = Offer { what: POINTER, device: 0, bytes: range.bytes, handle: data.reserved };
    Ok((cx.session.sharing.offer_named(range.base, range.context, offer, None)?,))
}

/// Opens an allocation of another process. It is charged to this session too, because its owner may end first: in whole chunks, because
/// nothing of one ends before all that is in it.
pub fn cuMemPoolImportPointer(
    cx: &mut CallContext<'_>,
    pool: MemoryPoolId,
    token: Token,
) -> CuResult<(DevicePtr, u64)> {
    let (raw, home) = (cx.resolve(pool)?, cx.owner()?);
    let (offer, _) = cx.session.sharing.look_up(token, POINTER)?;
    let ahead = quota::imported(offer.bytes);
    pools::charge(cx.session, |allocations| allocations.charge(ahead))?;
    let mut data = RawIpcHandle { reserved: offer.handle };
    // SAFETY: the data lives across the call, and came from the driver.
    let opened = unsafe { cx.gpu().cuMemPoolImportPointer(raw, &mut data) };
    let (dptr,) = opened.inspect_err(|_| cx.session.allocations().discharge(ahead))?;
    let entered = cx.session.allocations().import(dptr, offer.bytes, ahead, home);
    entered.inspect_err(|_| {
        // SAFETY: opened above, and the guest does not have its address yet.
        let _ = unsafe { cx.gpu().cuMemFree_v2(dptr) };
    })?;
    Ok((DevicePtr(dptr), offer.bytes))
}
