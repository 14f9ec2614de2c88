// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tensor maps: only the driver knows how they are encoded. No memory is looked at here.

use virtio_cuda_protocol::cuda::DevicePtr;

use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, RawTensorMap};

type Map = [u8; 128];

/// Puts another address into a map.
pub fn cuTensorMapReplaceAddress(cx: &mut CallContext<'_>, map: Map, address: DevicePtr) -> CuResult<(Map,)> {
    let mut map = RawTensorMap { opaque: map };
    // SAFETY: the map has its size and alignment; the address is only put into it.
    unsafe {
        cx.gpu().cuTensorMapReplaceAddress(&mut map, std::ptr::without_provenance_mut(address.0 as usize))
    }?;
    Ok((map.opaque,))
}
