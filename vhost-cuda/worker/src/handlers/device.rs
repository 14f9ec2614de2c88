// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices.

use virtio_cuda_protocol::cuda::DeviceOrdinal;

use crate::call::CallContext;
use crate::devices::DeviceFacts;
use crate::gpu::{CuResult, CudaError};

/// Returns all constant properties of a device, which are queried from the driver once.
pub fn device_snapshot(
    cx: &mut CallContext<'_>,
    device: DeviceOrdinal,
) -> CuResult<(u64, [u8; 16], [u8; 32], [u8; 256])> {
    let total = total_bytes(cx, device)?;
    let facts = facts_of(cx, device)?;
    // Attributes that the driver does not know are marked as unknown, not left out.
    let room = cx.bulk_out.room() as usize / 4 * 4;
    let unknown = i32::MIN.to_le_bytes();
    let mut attributes: Vec<u8> = facts.attributes.iter().copied().take(room).collect();
    while attributes.len() < room.min(4096) {
        attributes.extend_from_slice(&unknown);
    }
    let answer = (total, facts.uuid, facts.pci_bus_id, facts.name);
    cx.bulk_out.put(&attributes)?;
    Ok(answer)
}

/// Returns the bytes of device memory that this session may use.
pub(super) fn total_bytes(cx: &CallContext<'_>, device: DeviceOrdinal) -> CuResult<u64> {
    let all = facts_of(cx, device)?.total_bytes;
    Ok(cx.session.allocations().quota.memory().map_or(all, |(limit, _)| limit.min(all)))
}

fn facts_of<'s>(cx: &CallContext<'s>, device: DeviceOrdinal) -> CuResult<&'s DeviceFacts> {
    let number = cx.resolve(device)?;
    let slot = cx.session.devices.get(device.0 as usize).ok_or(CudaError::INVALID_DEVICE)?;
    match slot.get() {
        Some(facts) => Ok(facts),
        None => {
            let facts = DeviceFacts::of(cx.gpu(), number)?;
            Ok(slot.get_or_init(|| facts))
        }
    }
}
