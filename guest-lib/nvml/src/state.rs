// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Initialisation, and the constant properties of devices.

use core::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use virtio_cuda_client::protocol::DeviceOrdinal;
use virtio_cuda_client::{Call, Session, calls, open};

use crate::error::{
    NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED,
    NVML_ERROR_UNINITIALIZED, Result, of_call,
};

/// Number of attributes to query.
const MAX_ATTRIBUTES: usize = 192;

/// `nvmlDevice_t`: a device's number plus 1.
pub type nvmlDevice_t = *mut c_void;

/// Number of initialisations minus number of shutdowns.
static USERS: AtomicU32 = AtomicU32::new(0);

/// The constant properties of a device.
pub struct Device {
    /// Number of the device, from 0.
    pub number: u32,
    /// Name of the device, without NUL.
    pub name: Vec<u8>,
    /// UUID as `GPU-` and hexadecimal digits.
    pub uuid: String,
    /// PCI address in CUDA's spelling.
    pub pci_bus_id: Vec<u8>,
    /// CUDA's attributes, from number 1 on.
    attributes: Vec<i32>,
}

static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

/// Initialises the library; may be called repeatedly.
pub fn initialize() -> Result {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if DEVICES.get().is_none() {
        let session = open::session().map_err(|_| NVML_ERROR_DRIVER_NOT_LOADED)?;
        let devices = (0..session.device_count()).map(|number| Device::fetch(session, number));
        let devices = devices.collect::<Result<Vec<_>>>()?;
        DEVICES.get_or_init(|| devices);
    }
    USERS.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

/// Reverts one call of [`initialize`].
pub fn shut_down() -> Result {
    let less = |users: u32| users.checked_sub(1);
    USERS
        .try_update(Ordering::AcqRel, Ordering::Acquire, less)
        .map(|_| ())
        .map_err(|_| NVML_ERROR_UNINITIALIZED)
}

/// Returns the devices. Fails if the library is not initialised.
pub fn devices() -> Result<&'static [Device]> {
    if USERS.load(Ordering::Acquire) == 0 {
        return Err(NVML_ERROR_UNINITIALIZED);
    }
    DEVICES.get().map(Vec::as_slice).ok_or(NVML_ERROR_UNINITIALIZED)
}

/// Returns the session. Fails if the library is not initialised.
pub fn session() -> Result<&'static Session> {
    devices()?;
    open::session().map_err(of_call)
}

/// Starts a call. Fails if the library is not initialised.
pub fn call() -> Result<Call<'static>> {
    session().map(Call::internal)
}

/// Returns the device of a handle.
pub fn device(handle: nvmlDevice_t) -> Result<&'static Device> {
    let index = handle.addr().checked_sub(1).ok_or(NVML_ERROR_INVALID_ARGUMENT);
    devices().and_then(|devices| devices.get(index?).ok_or(NVML_ERROR_INVALID_ARGUMENT))
}

impl Device {
    /// Returns the device's number for calls to the host.
    pub fn ordinal(&self) -> DeviceOrdinal {
        DeviceOrdinal(self.number)
    }

    fn fetch(session: &Session, number: u32) -> Result<Self> {
        let mut raw = [0u8; MAX_ATTRIBUTES * 4];
        let mut call = Call::internal(session).output(&mut raw);
        let (_, uuid, pci_bus_id, name) =
            calls::device_snapshot(&mut call, DeviceOrdinal(number)).map_err(of_call)?;
        let count = call.output_bytes() / 4;
        let value = |bytes: &[u8; 4]| i32::from_le_bytes(*bytes);
        let text = |padded: &[u8]| padded.split(|&byte| byte == 0).next().unwrap_or(&[]).to_vec();
        Ok(Self {
            number,
            name: text(&name),
            uuid: uuid_text(&uuid),
            pci_bus_id: text(&pci_bus_id),
            attributes: raw.as_chunks().0.iter().take(count).map(value).collect(),
        })
    }

    /// Returns the handle that programs get.
    pub fn handle(&self) -> nvmlDevice_t {
        core::ptr::without_provenance_mut(self.number as usize + 1)
    }

    /// Returns a `CU_DEVICE_ATTRIBUTE_*` value by number.
    pub fn attribute(&self, number: usize) -> Result<u32> {
        let value = number.checked_sub(1).and_then(|index| self.attributes.get(index)).copied();
        value.and_then(|value| u32::try_from(value).ok()).ok_or(NVML_ERROR_NOT_SUPPORTED)
    }
}

/// Formats a UUID as `GPU-00112233-4455-6677-8899-aabbccddeeff`.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU");
    let mut rest = uuid.iter();
    for group in [4, 2, 2, 2, 6] {
        text.push('-');
        for byte in rest.by_ref().take(group) {
            text.push_str(&format!("{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::uuid_text;

    #[test]
    fn uuids_are_spelled_as_nvidia_smi_does() {
        let uuid = core::array::from_fn(|index| index as u8 * 0x11);
        assert_eq!(uuid_text(&uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
