// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions for features that a virtual machine lacks: accounting, video encoder sessions, licences, an NVLink fabric,
//! confidential computing, and GPM measurements. NVIDIA's library returns the same for a card that does not use them.
//! No call reaches the host, because the host's own data must not be reported.

use core::ffi::c_void;

use crate::error::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT,
    NVML_ERROR_NOT_FOUND, Result,
};
use crate::pointers::Out;
use crate::state::{self, nvmlDevice_t};

/// Bytes of `nvmlGpuFabricInfo_t`, and of each version of `nvmlGpuFabricInfoV_t` without its version field.
const FABRIC_BYTES: usize = 28;
const FABRIC_VERSIONS: &[(u32, usize)] = &[(2, 36), (3, 40)];

#[repr(C)]
pub struct nvmlGpmSupport_t {
    version: u32,
    isSupportedDevice: u32,
}

fn zeros<const BYTES: usize>(device: nvmlDevice_t, to: Out<[u8; BYTES]>) -> Result {
    state::device(device)?;
    to.set([0; BYTES])
}

api! {
    /// Accounting is always off.
    fn nvmlDeviceGetAccountingMode(device: nvmlDevice_t, mode: Out<u32>) {
        state::device(device)?;
        mode.set(0)
    }

    fn nvmlDeviceGetAccountingStats(device: nvmlDevice_t, _pid: u32, stats: *mut c_void) {
        state::device(device)?;
        Err(if stats.is_null() { NVML_ERROR_INVALID_ARGUMENT } else { NVML_ERROR_NOT_FOUND })
    }

    fn nvmlDeviceGetAccountingStats_v2(device: nvmlDevice_t, stats: *mut c_void) {
        state::device(device)?;
        Err(if stats.is_null() { NVML_ERROR_INVALID_ARGUMENT } else { NVML_ERROR_NOT_FOUND })
    }

    fn nvmlDeviceGetAccountingPids(device: nvmlDevice_t, count: Out<u32>, list: *mut c_void) {
        state::device(device)?;
        count.set(0)?;
        if list.is_null() { Err(NVML_ERROR_INSUFFICIENT_SIZE) } else { Ok(()) }
    }

    fn nvmlDeviceGetEncoderSessions, nvmlDeviceGetFBCSessions(
        device: nvmlDevice_t, count: Out<u32>, list: *mut c_void,
    ) {
        state::device(device)?;
        let room = count.get()?;
        if list.is_null() && room > 0 {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        count.set(0)
    }

    /// No licences are needed: zero features.
    fn nvmlDeviceGetGridLicensableFeatures, nvmlDeviceGetGridLicensableFeatures_v2(
        device: nvmlDevice_t, features: Out<[u8; 8]>,
    ) {
        zeros(device, features)
    }

    fn nvmlDeviceGetGridLicensableFeatures_v3, nvmlDeviceGetGridLicensableFeatures_v4(
        device: nvmlDevice_t, features: Out<[u8; 8]>,
    ) {
        zeros(device, features)
    }

    /// Reports `NVML_GPU_FABRIC_STATE_NOT_SUPPORTED`, and no cluster name.
    fn nvmlDeviceGetGpuFabricInfo(device: nvmlDevice_t, info: Out<[u8; FABRIC_BYTES]>) {
        zeros(device, info)
    }

    fn nvmlDeviceGetGpuFabricInfoV(device: nvmlDevice_t, info: Out<u32>) {
        state::device(device)?;
        let given = info.get()?;
        let known = FABRIC_VERSIONS.iter().find(|(version, bytes)| *bytes as u32 | version << 24 == given);
        let (_, bytes) = known.ok_or(NVML_ERROR_ARGUMENT_VERSION_MISMATCH)?;
        // SAFETY: not null and of this version, so `bytes` bytes long.
        unsafe { info.as_ptr().add(1).cast::<u8>().write_bytes(0, bytes - size_of::<u32>()) };
        Ok(())
    }

    fn nvmlDeviceGetConfComputeProtectedMemoryUsage(device: nvmlDevice_t, memory: Out<[u8; 24]>) {
        zeros(device, memory)
    }

    /// Not supported: GPM functions measure the whole card.
    fn nvmlGpmQueryDeviceSupport(device: nvmlDevice_t, support: *mut nvmlGpmSupport_t) {
        state::device(device)?;
        // SAFETY: the program promises a structure, or null.
        let support = unsafe { support.as_mut() }.ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        if support.version != 1 {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        support.isSupportedDevice = 0;
        Ok(())
    }

    /// There are no units (S-class systems).
    fn nvmlUnitGetHandleByIndex(_index: u32, _unit: *mut c_void) {
        state::devices().and(Err(NVML_ERROR_INVALID_ARGUMENT))
    }
}
