// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Start, end, versions.

use core::ffi::{c_char, c_int};

use virtio_cuda_client::calls;

use crate::api::{store, store_text};
use crate::error::{NVML_ERROR_NOT_FOUND, Result};
use crate::state;

/// Version of the interface, which is CUDA's, and release of the driver.
fn versions() -> Result<(String, String)> {
    let session = state::session()?;
    let interface = (session.driver_version() / 1000).to_string();
    let driver = calls::nvml_driver_version(&mut session.call());
    let driver = driver.map_or(env!("CARGO_PKG_VERSION").into(), |text| {
        String::from_utf8_lossy(text.split(|&byte| byte == 0).next().unwrap_or(&[])).into_owned()
    });
    Ok((interface, driver))
}

api! {
    fn nvmlInit, nvmlInit_v2() {
        state::initialize()
    }

    /// The flags are about GPUs that cannot be reached; of others NVIDIA's library says nothing.
    fn nvmlInitWithFlags(_flags: u32) {
        state::initialize()
    }

    fn nvmlShutdown() {
        state::shut_down()
    }

    /// The host's driver; where it has none, this project's version.
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: u32) {
        let (_, driver) = versions()?;
        store_text(version, length, driver.as_bytes())
    }

    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: u32) {
        let (interface, driver) = versions()?;
        store_text(version, length, format!("{interface}.{driver}").as_bytes())
    }

    fn nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) {
        store(version, state::session()?.driver_version())
    }

    /// The name of a process of this machine.
    fn nvmlSystemGetProcessName(pid: u32, name: *mut c_char, length: u32) {
        state::devices()?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| NVML_ERROR_NOT_FOUND)?;
        let program = command.split(|&byte| byte == 0).next().unwrap_or(&[]);
        let fits = program.len().min((length as usize).saturating_sub(1));
        store_text(name, length, &program[..fits])
    }

    /// There are no units (S-class systems).
    fn nvmlUnitGetCount(count: *mut u32) {
        state::devices()?;
        store(count, 0)
    }

    fn nvmlGetExcludedDeviceCount(count: *mut u32) {
        store(count, 0)
    }
}
