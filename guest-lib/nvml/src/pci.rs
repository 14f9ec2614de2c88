// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI addresses.

use core::ffi::c_char;
use core::mem::size_of;

use crate::error::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_FOUND, Result,
};
use crate::pointers::Out;
use crate::state::{self, Device, nvmlDevice_t};

/// `CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID` and `…_SUBSYSTEM_ID`.
const PCI_DEVICE_ID: usize = 139;
const PCI_SUBSYSTEM_ID: usize = 140;
/// `NVML_STRUCT_VERSION(PciInfoExt, 1)`.
const PCI_INFO_EXT: u32 = size_of::<nvmlPciInfoExt_t>() as u32 | 1 << 24;
/// The PCI base class of a 3D controller.
const BASE_CLASS: u32 = 3;
const SUB_CLASS: u32 = 2;

/// A parsed PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    domain: u32,
    bus: u32,
    device: u32,
}

#[repr(C)]
pub struct nvmlPciInfo_t {
    busIdLegacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    pciDeviceId: u32,
    pciSubSystemId: u32,
    busId: [u8; 32],
}
const _: () = assert!(size_of::<nvmlPciInfo_t>() == 68);

/// The common first fields of all versions of the structure.
#[repr(C)]
pub struct nvmlPciInfo_v1_t {
    busId: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    pciDeviceId: u32,
}

#[repr(C)]
pub struct nvmlPciInfo_v2_t {
    busId: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    pciDeviceId: u32,
    pciSubSystemId: u32,
}

#[repr(C)]
pub struct nvmlPciInfoExt_t {
    version: u32,
    domain: u32,
    bus: u32,
    device: u32,
    pciDeviceId: u32,
    pciSubSystemId: u32,
    baseClass: u32,
    subClass: u32,
    busId: [u8; 32],
}

impl Address {
    /// Parses `domain:bus:device.function`; domain and function may be missing.
    fn parse(text: &str) -> Option<Self> {
        let path = text.split_once('.').map_or(text, |(path, _)| path);
        let mut parts = path.rsplit(':').map(|part| u32::from_str_radix(part, 16).ok());
        let (device, bus) = (parts.next()??, parts.next()??);
        Some(Self { domain: parts.next().unwrap_or(Some(0))?, bus, device })
    }

    fn of(device: &Device) -> Result<Self> {
        let text = core::str::from_utf8(&device.pci_bus_id).map_err(|_| NVML_ERROR_NOT_FOUND)?;
        Self::parse(text).ok_or(NVML_ERROR_NOT_FOUND)
    }

    fn text<const N: usize>(self, domain_digits: usize) -> [u8; N] {
        let Self { domain, bus, device } = self;
        let text = format!("{domain:0domain_digits$X}:{bus:02X}:{device:02X}.0");
        let mut padded = [0; N];
        let length = text.len().min(N - 1);
        padded[..length].copy_from_slice(&text.as_bytes()[..length]);
        padded
    }
}

/// Returns the device id and the subsystem id of the card, 0 where unknown.
fn identifiers(device: &Device) -> (u32, u32) {
    (device.attribute(PCI_DEVICE_ID).unwrap_or(0), device.attribute(PCI_SUBSYSTEM_ID).unwrap_or(0))
}

api! {
    fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, info: Out<nvmlPciInfo_t>) {
        let device = state::device(device)?;
        let address = Address::of(device)?;
        let (pciDeviceId, pciSubSystemId) = identifiers(device);
        info.set(nvmlPciInfo_t {
            busIdLegacy: address.text(4),
            domain: address.domain,
            bus: address.bus,
            device: address.device,
            pciDeviceId,
            pciSubSystemId,
            busId: address.text(8),
        })
    }

    /// The structure of the first releases, which lacks the subsystem id.
    fn nvmlDeviceGetPciInfo(device: nvmlDevice_t, info: Out<nvmlPciInfo_v1_t>) {
        let device = state::device(device)?;
        let address = Address::of(device)?;
        let (pciDeviceId, _) = identifiers(device);
        info.set(nvmlPciInfo_v1_t {
            busId: address.text(4),
            domain: address.domain,
            bus: address.bus,
            device: address.device,
            pciDeviceId,
        })
    }

    /// The structure before CUDA 9.1, which lacks the longer bus id.
    fn nvmlDeviceGetPciInfo_v2(device: nvmlDevice_t, info: Out<nvmlPciInfo_v2_t>) {
        let device = state::device(device)?;
        let address = Address::of(device)?;
        let (pciDeviceId, pciSubSystemId) = identifiers(device);
        info.set(nvmlPciInfo_v2_t {
            busId: address.text(4),
            domain: address.domain,
            bus: address.bus,
            device: address.device,
            pciDeviceId,
            pciSubSystemId,
        })
    }

    fn nvmlDeviceGetPciInfoExt(device: nvmlDevice_t, info: Out<nvmlPciInfoExt_t>) {
        let device = state::device(device)?;
        let given = info.version()?;
        if given != PCI_INFO_EXT {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let address = Address::of(device)?;
        let (pciDeviceId, pciSubSystemId) = identifiers(device);
        info.set(nvmlPciInfoExt_t {
            version: given,
            domain: address.domain,
            bus: address.bus,
            device: address.device,
            pciDeviceId,
            pciSubSystemId,
            baseClass: BASE_CLASS,
            subClass: SUB_CLASS,
            busId: address.text(8),
        })
    }

    fn nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2(
        text: *const c_char, device: Out<nvmlDevice_t>,
    ) {
        let devices = state::devices()?;
        if text.is_null() || device.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the program promises a string.
        let text = unsafe { cuda_program::text(text) }.and_then(|text| text.into_string().ok());
        let text = text.ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        let wanted = Address::parse(&text).ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        let found = devices.iter().find(|device| Address::of(device) == Ok(wanted));
        device.set(found.ok_or(NVML_ERROR_NOT_FOUND)?.handle())
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_in_all_spellings() {
        let address = Address { domain: 1, bus: 0x3b, device: 2 };
        assert_eq!(Address::parse("00000001:3b:02.0"), Some(address));
        assert_eq!(Address::parse("3B:02"), Some(Address { domain: 0, ..address }));
        assert_eq!(Address::parse("card"), None);
        assert_eq!(&address.text::<32>(8)[..17], b"00000001:3B:02.0\0");
        assert_eq!(&address.text::<16>(4)[..13], b"0001:3B:02.0\0");
    }
}
