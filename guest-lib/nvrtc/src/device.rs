// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detects an emulated GPU.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Prefix of the emulator's UUIDs, in the process and through the stack (`cuda-emulator/src/driver/device/mod.rs`).
const EMULATOR: &[u8] = b"CUDA-Emulator";

/// Returns whether device 0 is emulated. Starts CUDA in this process if the program has not: a program that compiles
/// code and requests machine code is about to load it.
pub fn is_emulated() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return *known;
    }
    // A failure is not kept: the device may be there later.
    match uuid() {
        Some(uuid) => *KNOWN.get_or_init(|| uuid.starts_with(EMULATOR)),
        None => false,
    }
}

fn uuid() -> Option<[u8; 16]> {
    // SAFETY: the name ends with a NUL; the program's driver library is what it would load itself.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let function = |name: &CStr| {
        // SAFETY: the library was opened above and is never closed; the name ends with a NUL.
        let address = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    };
    if library.is_null() {
        return None;
    }
    let initialise = function(c"cuInit")?;
    let get = function(c"cuDeviceGet")?;
    let get_uuid = function(c"cuDeviceGetUuid_v2").or_else(|| function(c"cuDeviceGetUuid"))?;
    // SAFETY: the driver API's signature of the function of this name.
    let initialise: unsafe extern "C" fn(c_uint) -> c_int = unsafe { std::mem::transmute(initialise) };
    // SAFETY: the driver API's signature of `cuDeviceGet`.
    let get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int = unsafe { std::mem::transmute(get) };
    type GetUuid = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
    // SAFETY: the driver API's signature of `cuDeviceGetUuid`, which its second version shares.
    let get_uuid: GetUuid = unsafe { std::mem::transmute(get_uuid) };
    let (mut device, mut uuid) = (0, [0_u8; 16]);
    // SAFETY: the flags must be 0, and a second call has no effect.
    let initialised = unsafe { initialise(0) } == 0;
    // SAFETY: `device` is an int that may be written.
    let found = initialised && unsafe { get(&mut device, 0) } == 0;
    // SAFETY: a CUuuid is 16 bytes.
    (found && unsafe { get_uuid(uuid.as_mut_ptr().cast(), device) } == 0).then_some(uuid)
}
