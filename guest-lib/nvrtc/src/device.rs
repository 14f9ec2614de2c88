// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detects an emulated GPU.

use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

use cuda_abi::CUuuid;
use cuda_abi::prototypes::functions::{cuDeviceGet, cuDeviceGetUuid_v2, cuInit};
use cuda_program::Library;

/// Prefix of the emulator's UUIDs, both in the process and through the stack
/// (`cuda-emulator/src/driver/device/mod.rs`).
const EMULATOR: &[u8] = b"CUDA-Emulator";

/// Returns whether device 0 is emulated. Starts CUDA in this process if the program has not: a program that requests
/// machine code is about to load it.
pub fn is_emulated() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return *known;
    }
    // A failure is not cached: the device may become available later.
    match uuid() {
        Some(uuid) => *KNOWN.get_or_init(|| uuid.starts_with(EMULATOR)),
        None => false,
    }
}

fn uuid() -> Option<[u8; 16]> {
    let library = Library::libcuda()?;
    let function = |name: &CStr| Some(library.symbol(name)?.as_ptr());
    let initialise = function(c"cuInit")?;
    let get = function(c"cuDeviceGet")?;
    let get_uuid = function(c"cuDeviceGetUuid_v2").or_else(|| function(c"cuDeviceGetUuid"))?;
    // SAFETY: the function of this prototype.
    let initialise = unsafe { transmute::<*mut c_void, cuInit>(initialise) };
    // SAFETY: the function of this prototype.
    let get = unsafe { transmute::<*mut c_void, cuDeviceGet>(get) };
    // SAFETY: the function of this prototype, which both versions have.
    let get_uuid = unsafe { transmute::<*mut c_void, cuDeviceGetUuid_v2>(get_uuid) };
    let (mut device, mut uuid) = (0, CUuuid::ZERO);
    // SAFETY: the flags must be 0, and a second call has no effect.
    let initialised = unsafe { initialise(0) } == 0;
    // SAFETY: `device` is an int that may be written.
    let found = initialised && unsafe { get(&mut device, 0) } == 0;
    // SAFETY: `uuid` may be written.
    (found && unsafe { get_uuid(&mut uuid, device) } == 0).then_some(uuid.bytes)
}
