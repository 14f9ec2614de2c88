// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers of NVIDIA's management library on the host, reduced to this virtual machine: its sessions are the
//! workers of one daemon, and processes of others do not count.

use std::sync::OnceLock;

use vhost_cuda_common::exchange::Shortage;
use vhost_cuda_common::family;
use vhost_cuda_common::nvml::Nvml;
use virtio_cuda_protocol::cuda::getter::MAX_INPUTS;
use virtio_cuda_protocol::cuda::{DeviceOrdinal, Getter};

use crate::call::CallContext;
use crate::devices;
use crate::gpu::{CuResult, CudaError};
use crate::handlers::device::total_bytes;

/// Returns the host's library for `device`, opened once per process, or `None` if there is no library, as with the
/// emulator.
pub fn nvml_of(cx: &CallContext<'_>, device: DeviceOrdinal) -> CuResult<Option<&'static Nvml>> {
    static DEVICES: OnceLock<Vec<OnceLock<Option<Nvml>>>> = OnceLock::new();
    let number = cx.resolve(device)?;
    let devices = DEVICES.get_or_init(|| cx.session.devices.iter().map(|_| OnceLock::new()).collect());
    let slot = devices.get(device.0 as usize).ok_or(CudaError::INVALID_DEVICE)?;
    Ok(slot.get_or_init(|| devices::nvml_of(cx.gpu(), number)).as_ref())
}

/// Returns memory: the quota of a session, and the memory that the machine's sessions hold.
pub fn nvml_memory(cx: &mut CallContext<'_>, device: DeviceOrdinal) -> CuResult<(u64, u64)> {
    cx.session.sharing.settle(Shortage::None);
    let total = total_bytes(cx, device)?;
    if let Some((limit, free)) = cx.session.allocations().quota.memory() {
        // As cuMemGetInfo reports.
        return Ok((total, limit.saturating_sub(free).min(total)));
    }
    let used = nvml_of(cx, device)?.and_then(|nvml| nvml.memory_of(&family::workers()));
    let used = used.unwrap_or_else(|| cx.session.allocations().quota.used());
    Ok((total, used.min(total)))
}

/// Calls a function of the host's library that queries the card. The guest identifies it by a number of the table, so
/// that no other function of the library can be called. The table also restricts the inputs.
pub fn nvml_get(
    cx: &mut CallContext<'_>,
    device: DeviceOrdinal,
    getter: u32,
    inputs: [u64; MAX_INPUTS],
) -> CuResult<(u32,)> {
    let getter = Getter::of(getter).ok_or(CudaError::INVALID_VALUE)?;
    getter.check(inputs).map_err(|_| CudaError::INVALID_VALUE)?;
    if cx.bulk_out.room() < getter.bytes() as u64 {
        return Err(CudaError::INVALID_VALUE);
    }
    let nvml = nvml_of(cx, device)?.ok_or(CudaError::NOT_SUPPORTED)?;
    let peer = |number| nvml_of(cx, DeviceOrdinal(number)).ok().flatten().map(Nvml::handle);
    let (code, results) = nvml.get(getter, inputs, peer).ok_or(CudaError::NOT_SUPPORTED)?;
    cx.bulk_out.put(&results)?;
    Ok((code.cast_unsigned(),))
}
