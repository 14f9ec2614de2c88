// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices and their constant properties.

use core::ffi::{c_char, c_int};

use crate::error::{NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_FOUND};
use crate::getters::ask;
use crate::pointers::{Out, store_text};
use crate::state::{self, Device, nvmlDevice_t, uuid_text};

/// `CU_DEVICE_ATTRIBUTE_*`.
const MULTIPROCESSORS: usize = 16;
const COMPUTE_MODE: usize = 20;
const ECC_ENABLED: usize = 32;
const BUS_WIDTH: usize = 37;
const CAPABILITY_MAJOR: usize = 75;
const CAPABILITY_MINOR: usize = 76;

/// `NVML_DEVICE_ARCH_*` by compute capability.
const ARCHITECTURES: &[((u32, u32), u32)] = &[
    ((5, 0), 3),
    ((6, 0), 4),
    ((7, 0), 5),
    ((7, 5), 6),
    ((8, 0), 7),
    ((8, 9), 8),
    ((9, 0), 9),
    ((10, 0), 10),
];
const ARCHITECTURE_UNKNOWN: u32 = 0xffff_ffff;
/// The row of the table of getters for `nvmlDeviceGetDisplayMode`.
const DISPLAY_MODE: u32 = 0x10;
/// `NVML_BRAND_NVIDIA`.
const BRAND_NVIDIA: u32 = 14;
/// `NVML_GPU_VIRTUALIZATION_MODE_NONE`: this is no vGPU and no passthrough.
const VIRTUALIZATION_NONE: u32 = 0;

/// `nvmlUUIDType_t`.
const UUID_TEXT: u32 = 1;
const UUID_BINARY: u32 = 2;

#[repr(C)]
pub struct nvmlUUID_t {
    version: u32,
    kind: u32,
    value: [u8; 41],
}
const _: () = assert!(size_of::<nvmlUUID_t>() == 52);

api! {
    fn nvmlDeviceGetCount, nvmlDeviceGetCount_v2(count: Out<u32>) {
        count.set(state::devices()?.len() as u32)
    }

    fn nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<nvmlDevice_t>) {
        let found = state::devices()?.get(index as usize).ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        device.set(found.handle())
    }

    /// Accepts the prefix `GPU-` with a unique beginning.
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: Out<nvmlDevice_t>) {
        let devices = state::devices()?;
        if uuid.is_null() || device.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the program promises a string.
        let wanted = unsafe { cuda_program::text(uuid) }.and_then(|text| text.into_string().ok());
        let wanted = wanted.ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        let mut found = devices.iter().filter(|device| device.uuid.starts_with(&wanted));
        match (found.next(), found.next()) {
            (Some(only), None) if wanted.len() > "GPU-".len() => device.set(only.handle()),
            _ => Err(NVML_ERROR_NOT_FOUND),
        }
    }

    /// Accepts a complete UUID as text or in bytes.
    fn nvmlDeviceGetHandleByUUIDV(uuid: *const nvmlUUID_t, device: Out<nvmlDevice_t>) {
        let devices = state::devices()?;
        if uuid.is_null() || device.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the program promises an identifier.
        let uuid = unsafe { uuid.read() };
        if uuid.version != size_of::<nvmlUUID_t>() as u32 | 1 << 24 {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let text = uuid.value.split(|&byte| byte == 0).next().unwrap_or(&[]);
        let binary = uuid.value.first_chunk().map(uuid_text);
        let is_it = |device: &&Device| match uuid.kind {
            UUID_TEXT => device.uuid.as_bytes() == text,
            _ => Some(&device.uuid) == binary.as_ref(),
        };
        if !matches!(uuid.kind, UUID_TEXT | UUID_BINARY) {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        device.set(devices.iter().find(is_it).ok_or(NVML_ERROR_NOT_FOUND)?.handle())
    }

    fn nvmlDeviceGetIndex, nvmlDeviceGetMinorNumber(device: nvmlDevice_t, number: Out<u32>) {
        number.set(state::device(device)?.number)
    }

    fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: u32) {
        // SAFETY: the program promises `length` bytes there, or null.
        unsafe { store_text(name, length, &state::device(device)?.name) }
    }

    fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: u32) {
        // SAFETY: the program promises `length` bytes there, or null.
        unsafe { store_text(uuid, length, state::device(device)?.uuid.as_bytes()) }
    }

    fn nvmlDeviceGetBrand(device: nvmlDevice_t, brand: Out<u32>) {
        state::device(device)?;
        brand.set(BRAND_NVIDIA)
    }

    fn nvmlDeviceGetCudaComputeCapability(device: nvmlDevice_t, major: Out<c_int>, minor: Out<c_int>) {
        let device = state::device(device)?;
        major.set(device.attribute(CAPABILITY_MAJOR)? as c_int)?;
        minor.set(device.attribute(CAPABILITY_MINOR)? as c_int)
    }

    fn nvmlDeviceGetArchitecture(device: nvmlDevice_t, architecture: Out<u32>) {
        let device = state::device(device)?;
        let capability = (device.attribute(CAPABILITY_MAJOR)?, device.attribute(CAPABILITY_MINOR)?);
        let known = ARCHITECTURES.iter().rev().find(|(first, _)| *first <= capability);
        architecture.set(known.map_or(ARCHITECTURE_UNKNOWN, |(_, number)| *number))
    }

    fn nvmlDeviceGetNumGpuCores(device: nvmlDevice_t, cores: Out<u32>) {
        // A multiprocessor has 128 cores in 8.6 and 8.9, and in 9.0 and later.
        let device = state::device(device)?;
        let newer = (device.attribute(CAPABILITY_MAJOR)?, device.attribute(CAPABILITY_MINOR)?) >= (8, 6);
        cores.set(device.attribute(MULTIPROCESSORS)? * if newer { 128 } else { 64 })
    }

    fn nvmlDeviceGetMemoryBusWidth(device: nvmlDevice_t, bits: Out<u32>) {
        bits.set(state::device(device)?.attribute(BUS_WIDTH)?)
    }

    fn nvmlDeviceGetComputeMode(device: nvmlDevice_t, mode: Out<u32>) {
        mode.set(state::device(device)?.attribute(COMPUTE_MODE)?)
    }

    fn nvmlDeviceGetEccMode(device: nvmlDevice_t, current: Out<u32>, pending: Out<u32>) {
        let enabled = state::device(device)?.attribute(ECC_ENABLED)?;
        current.set(enabled)?;
        pending.set(enabled)
    }

    /// Returns the card's answer; without one, reports that no display is attached.
    fn nvmlDeviceGetDisplayMode(device: nvmlDevice_t, attached: Out<u32>) {
        let mode = ask(DISPLAY_MODE, Some(device), [0; 3]).map(|answer| answer.number(0));
        state::device(device)?;
        attached.set(mode.unwrap_or(0))
    }

    /// Disabled: nothing in this machine uses a display.
    fn nvmlDeviceGetDisplayActive(device: nvmlDevice_t, enabled: Out<u32>) {
        state::device(device)?;
        enabled.set(0)
    }

    /// Enabled: the worker keeps the device initialised.
    fn nvmlDeviceGetPersistenceMode(device: nvmlDevice_t, enabled: Out<u32>) {
        state::device(device)?;
        enabled.set(1)
    }

    fn nvmlDeviceGetMultiGpuBoard(device: nvmlDevice_t, several: Out<u32>) {
        state::device(device)?;
        several.set(0)
    }

    fn nvmlDeviceGetVirtualizationMode(device: nvmlDevice_t, mode: Out<u32>) {
        state::device(device)?;
        mode.set(VIRTUALIZATION_NONE)
    }

    /// There are no MIG instances.
    fn nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, is_mig: Out<u32>) {
        state::device(device)?;
        is_mig.set(0)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: Out<u32>) {
        state::device(device)?;
        count.set(0)
    }
}
