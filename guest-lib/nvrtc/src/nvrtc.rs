// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libnvrtc: all functions of its header, releases 12 and 13.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;

use crate::behind::{NVRTC, forward};
use crate::device::is_emulated;

/// An nvrtcProgram.
type Program = *mut c_void;
/// NVRTC_ERROR_INTERNAL_ERROR: NVIDIA's library, or the function in it, is missing.
const MISSING: c_int = 11;

type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;

/// Returns the size of the machine code, or of the PTX that replaces it. Returns 0, as NVIDIA's library does, if the
/// program was not compiled for a real architecture.
///
/// # Safety
///
/// The contract of NVIDIA's function: a program, and a size that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(program: Program, size: *mut usize) -> c_int {
    let Some(native) = NVRTC.function(c"nvrtcGetCUBINSize") else { return MISSING };
    // SAFETY: nvrtc.h's signature.
    let native: Size = unsafe { transmute(native.as_ptr()) };
    // SAFETY: `# Safety` promises a program, and a size that may be written.
    let result = unsafe { native(program, size) };
    // SAFETY: NVIDIA's function has just written it.
    if result != 0 || unsafe { *size } == 0 || !is_emulated() {
        return result;
    }
    // SAFETY: `# Safety` promises a program, and a size that may be written.
    unsafe { nvrtcGetPTXSize(program, size) }
}

/// Returns the machine code, or the PTX in its place: as many bytes as nvrtcGetCUBINSize says.
///
/// # Safety
///
/// The contract of NVIDIA's function: a program, and room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(program: Program, code: *mut c_char) -> c_int {
    let mut size = 0;
    if let Some(native) = NVRTC.function(c"nvrtcGetCUBINSize") {
        // SAFETY: nvrtc.h's signature.
        let native: Size = unsafe { transmute(native.as_ptr()) };
        // SAFETY: `# Safety` promises a program; the size is a local.
        let result = unsafe { native(program, &mut size) };
        if result == 0 && size != 0 && is_emulated() {
            // SAFETY: `# Safety` promises room for what nvrtcGetCUBINSize says: here that is the PTX's size.
            return unsafe { nvrtcGetPTX(program, code) };
        }
    }
    // SAFETY: `# Safety` promises a program, and room for so many bytes.
    unsafe { native_cubin(program, code) }
}

/// Returns the text of a result; a text of this library if NVIDIA's is missing.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(result: c_int) -> *const c_char {
    let Some(native) = NVRTC.function(c"nvrtcGetErrorString") else {
        return c"NVRTC_ERROR_INTERNAL_ERROR".as_ptr();
    };
    // SAFETY: nvrtc.h's signature.
    let native: unsafe extern "C" fn(c_int) -> *const c_char = unsafe { transmute(native.as_ptr()) };
    // SAFETY: any number may be asked for.
    unsafe { native(result) }
}

/// Calls NVIDIA's nvrtcGetCUBIN.
///
/// # Safety
///
/// The contract of NVIDIA's function.
unsafe fn native_cubin(program: Program, code: *mut c_char) -> c_int {
    let Some(native) = NVRTC.function(c"nvrtcGetCUBIN") else { return MISSING };
    // SAFETY: nvrtc.h's signature.
    let native: unsafe extern "C" fn(Program, *mut c_char) -> c_int = unsafe { transmute(native.as_ptr()) };
    // SAFETY: `# Safety` promises what NVIDIA's function demands of these arguments, and it gets them unchanged.
    unsafe { native(program, code) }
}

forward! { NVRTC, MISSING;
    ("nvrtcVersion") fn nvrtcVersion(major: *mut c_int, minor: *mut c_int);
    ("nvrtcGetNumSupportedArchs") fn nvrtcGetNumSupportedArchs(count: *mut c_int);
    ("nvrtcGetSupportedArchs") fn nvrtcGetSupportedArchs(architectures: *mut c_int);
    ("nvrtcCreateProgram") fn nvrtcCreateProgram(
        program: *mut Program,
        source: *const c_char,
        name: *const c_char,
        count: c_int,
        headers: *const *const c_char,
        names: *const *const c_char
    );
    ("nvrtcDestroyProgram") fn nvrtcDestroyProgram(program: *mut Program);
    ("nvrtcCompileProgram") fn nvrtcCompileProgram(
        program: Program,
        count: c_int,
        options: *const *const c_char
    );
    ("nvrtcGetPTXSize") fn nvrtcGetPTXSize(program: Program, size: *mut usize);
    ("nvrtcGetPTX") fn nvrtcGetPTX(program: Program, code: *mut c_char);
    ("nvrtcGetNVVMSize") fn nvrtcGetNVVMSize(program: Program, size: *mut usize);
    ("nvrtcGetNVVM") fn nvrtcGetNVVM(program: Program, code: *mut c_char);
    ("nvrtcGetLTOIRSize") fn nvrtcGetLTOIRSize(program: Program, size: *mut usize);
    ("nvrtcGetLTOIR") fn nvrtcGetLTOIR(program: Program, code: *mut c_char);
    ("nvrtcGetOptiXIRSize") fn nvrtcGetOptiXIRSize(program: Program, size: *mut usize);
    ("nvrtcGetOptiXIR") fn nvrtcGetOptiXIR(program: Program, code: *mut c_char);
    ("nvrtcGetProgramLogSize") fn nvrtcGetProgramLogSize(program: Program, size: *mut usize);
    ("nvrtcGetProgramLog") fn nvrtcGetProgramLog(program: Program, log: *mut c_char);
    ("nvrtcAddNameExpression") fn nvrtcAddNameExpression(program: Program, expression: *const c_char);
    ("nvrtcGetLoweredName") fn nvrtcGetLoweredName(
        program: Program,
        expression: *const c_char,
        name: *mut *const c_char
    );
    ("nvrtcGetPCHHeapSize") fn nvrtcGetPCHHeapSize(size: *mut usize);
    ("nvrtcSetPCHHeapSize") fn nvrtcSetPCHHeapSize(size: usize);
    ("nvrtcGetPCHCreateStatus") fn nvrtcGetPCHCreateStatus(program: Program);
    ("nvrtcGetPCHHeapSizeRequired") fn nvrtcGetPCHHeapSizeRequired(program: Program, size: *mut usize);
    ("nvrtcSetFlowCallback") fn nvrtcSetFlowCallback(
        program: Program,
        callback: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>,
        payload: *mut c_void
    );
}
