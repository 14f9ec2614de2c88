// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The constant properties of devices.

use std::ffi::{CStr, c_char};

use vhost_cuda_common::nvml::Nvml;

use crate::gpu::{CuResult, Driver};

/// The number of queried attributes: twice as many as CUDA 13 has.
const MAX_ATTRIBUTES: i32 = 300;
/// The size of the buffer for a PCI address, as cuDeviceGetPCIBusId requires it.
const PCI_BYTES: usize = 16;

/// Returns what NVIDIA's management library knows as the device that CUDA calls `device`, or `None` if there is no such library,
/// or it does not know the device, as with the emulator.
pub fn nvml_of(gpu: &Driver, device: i32) -> Option<Nvml> {
    let mut pci = [0; PCI_BYTES];
    // SAFETY: the driver writes at most the length of `pci`, which lives through the call.
    unsafe { gpu.cuDeviceGetPCIBusId(pci.as_mut_ptr().cast::<c_char>(), PCI_BYTES as i32, device) }.ok()?;
    Nvml::at(CStr::from_bytes_until_nul(&pci).ok()?)
}

/// The constant properties of a device.
#[derive(Debug)]
pub struct DeviceFacts {
    pub total_bytes: u64,
    pub uuid: [u8; 16],
    pub pci_bus_id: [u8; 32],
    pub name: [u8; 256],
    /// Attributes from 1 on, little-endian.
    pub attributes: Vec<u8>,
}

/// Returns the name of a device, with zeros behind it.
///
/// Errors: the driver's.
pub fn name_of(gpu: &Driver, device: i32) -> CuResult<[u8; 256]> {
    let mut name = [0; 256];
    // SAFETY: the driver writes a NUL-terminated string of at most the given length.
    unsafe { gpu.cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), name.len() as i32, device)? };
    Ok(name)
}

impl DeviceFacts {
    /// Queries the driver.
    pub fn of(gpu: &Driver, device: i32) -> CuResult<Self> {
        let mut pci_bus_id = [0u8; 32];
        // SAFETY: the driver writes a NUL-terminated string of at most the given length.
        unsafe {
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
            name: name_of(gpu, device)?,
            attributes: (1..=MAX_ATTRIBUTES).flat_map(|attribute| value(attribute).to_le_bytes()).collect(),
        })
    }
}
