// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Initialisation, shutdown, versions.

use core::ffi::{c_char, c_int};

use virtio_cuda_client::{Call, calls};

use crate::error::{NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_NO_DATA, NVML_ERROR_NOT_FOUND, Result};
use crate::getters::ask;
use crate::pointers::{Out, store_text};
use crate::state;

/// The row of the table of getters for `nvmlSystemGetDriverBranch`, the version of its structure, and the room for its
/// text.
const BRANCH: u32 = 0x20;
const BRANCH_VERSION: u32 = 84 | 1 << 24;
const BRANCH_ROOM: u32 = 80;

/// Returns the version of the interface (that of CUDA), and the release of the driver.
fn versions() -> Result<(String, String)> {
    let session = state::session()?;
    let interface = (session.driver_version() / 1000).to_string();
    let driver = calls::nvml_driver_version(&mut Call::internal(session));
    let driver = driver.map_or(env!("CARGO_PKG_VERSION").into(), |text| {
        String::from_utf8_lossy(text.split(|&byte| byte == 0).next().unwrap_or(&[])).into_owned()
    });
    Ok((interface, driver))
}

api! {
    fn nvmlInit, nvmlInit_v2() {
        state::initialize()
    }

    /// The flags concern GPUs that cannot be reached; NVIDIA's library accepts any other flags.
    fn nvmlInitWithFlags(_flags: u32) {
        state::initialize()
    }

    fn nvmlShutdown() {
        state::shut_down()
    }

    /// Returns the version of the host's driver; without one, this project's version.
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: u32) {
        let (_, driver) = versions()?;
        // SAFETY: the program promises `length` bytes there, or null.
        unsafe { store_text(version, length, driver.as_bytes()) }
    }

    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: u32) {
        let (interface, driver) = versions()?;
        // SAFETY: the program promises `length` bytes there, or null.
        unsafe { store_text(version, length, format!("{interface}.{driver}").as_bytes()) }
    }

    fn nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) {
        version.set(state::session()?.driver_version())
    }

    /// Returns a text such as `r580_00`. Both the structure and the argument limit its length.
    fn nvmlSystemGetDriverBranch(branch: Out<u32>, length: u32) {
        state::devices()?;
        if branch.get()? != BRANCH_VERSION {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let answer = ask(BRANCH, None, [0; 3])?;
        let text = answer.of(0).get(size_of::<u32>()..).and_then(|text| text.split(|&byte| byte == 0).next());
        // SAFETY: not null and of this version, so after the version there is room for the text.
        unsafe { store_text(branch.as_ptr().add(1).cast(), length.min(BRANCH_ROOM), text.unwrap_or(&[])) }
    }

    /// Returns the name of a process of this machine.
    fn nvmlSystemGetProcessName(pid: u32, name: *mut c_char, length: u32) {
        state::devices()?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| NVML_ERROR_NOT_FOUND)?;
        let program = command.split(|&byte| byte == 0).next().unwrap_or(&[]);
        if program.is_empty() {
            // A kernel thread.
            return Err(NVML_ERROR_NO_DATA);
        }
        let fits = program.len().min((length as usize).saturating_sub(1));
        // SAFETY: the program promises `length` bytes there, or null.
        unsafe { store_text(name, length, &program[..fits]) }
    }

    /// There are no units (S-class systems).
    fn nvmlUnitGetCount(count: Out<u32>) {
        state::devices()?;
        count.set(0)
    }

    fn nvmlGetExcludedDeviceCount(count: Out<u32>) {
        count.set(0)
    }
}
