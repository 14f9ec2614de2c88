// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices.

use std::ffi::c_char;

use virtio_cuda_protocol::cuda::DeviceOrdinal;

use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError, Driver};

/// Attributes that are asked for: twice of what CUDA 13 has.
const MAX_ATTRIBUTES: i32 = 300;

/// What never changes about a device.
#[derive(Debug)]
pub struct DeviceFacts {
    total_bytes: u64,
    uuid: [u8; 16],
    pci_bus_id: [u8; 32],
    name: [u8; 256],
    /// Attributes from 1 on, little-endian.
    attributes: Vec<u8>,
}

impl DeviceFacts {
    fn of(gpu: &Driver, device: i32) -> CuResult<Self> {
        let mut name = [0u8; 256];
        let mut pci_bus_id = [0u8; 32];
        // SAFETY: the driver writes a NUL-terminated string of at most the given length.
        unsafe {
            gpu.cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), name.len() as i32, device)?;
            gpu.cuDeviceGetPCIBusId(
                pci_bus_id.as_mut_ptr().cast::<c_char>(),
                pci_bus_id.len() as i32,
                device,
            )?;
        }
        let value =
            |attribute| gpu.cuDeviceGetAttribute(attribute, device).map_or(i32::MIN, |(value,)| value);
        Ok(Self {
            total_bytes: gpu.cuDeviceTotalMem_v2(device)?.0 as u64,
            uuid: gpu.cuDeviceGetUuid_v2(device)?.0.bytes.map(|byte| byte as u8),
            pci_bus_id,
            name,
            attributes: (1..=MAX_ATTRIBUTES).flat_map(|attribute| value(attribute).to_le_bytes()).collect(),
        })
    }
}

/// Everything constant about a device, asked of the driver once.
pub fn device_snapshot(
    cx: &mut CallContext<'_>,
    device: DeviceOrdinal,
) -> CuResult<(u64, [u8; 16], [u8; 32], [u8; 256])> {
    let total = total_bytes(cx, device)?;
    let facts = facts_of(cx, device)?;
    // Attributes that the driver cannot know are marked as such, not left out.
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

/// Bytes of memory of a device that this session may use.
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
