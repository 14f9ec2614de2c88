// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libnvJitLink. With an emulated device this library returns PTX where the program requests machine code:
//!
//! - NVIDIA's library makes it from LTO-IR, if an option requests it when the linker is created. This library adds that
//!   option.
//! - A linker whose only input is PTX returns that input.
//!
//! The functions' names contain the release of the header; they do not differ otherwise.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::behind::{NVJITLINK, forward};
use crate::device::is_emulated;

/// An nvJitLinkHandle.
type Linker = *mut c_void;
/// NVJITLINK_SUCCESS.
const SUCCESS: c_int = 0;
/// NVJITLINK_INPUT_PTX of nvJitLinkInputType.
const INPUT_PTX: c_int = 2;
/// NVJITLINK_ERROR_INTERNAL: NVIDIA's library, or the function in it, is missing.
const MISSING: c_int = 6;

/// The PTX that a linker returns in place of machine code.
enum Replacement {
    /// NVIDIA's library generates it from LTO-IR.
    Generated,
    /// It is the linker's only input, with a NUL at the end, as the functions that load modules demand.
    Input(Vec<u8>),
    /// The linker has several inputs, or one that is not PTX, so it returns machine code.
    Nothing,
}

/// The linkers of an emulated device that have an input, or that generate PTX although the program has not requested it.
static LINKERS: Mutex<Option<HashMap<usize, Replacement>>> = Mutex::new(None);

fn linkers() -> MutexGuard<'static, Option<HashMap<usize, Replacement>>> {
    LINKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether PTX must be requested in addition to these options.
fn wants_ptx(options: &[*const c_char]) -> bool {
    let has = |wanted: &CStr| {
        options.iter().any(|option| {
            // SAFETY: nvJitLinkCreate's options are texts that end with a NUL.
            let text = if option.is_null() { None } else { unsafe { cuda_program::text(*option) } };
            text.as_deref() == Some(wanted)
        })
    };
    has(c"-lto") && !has(c"-ptx") && is_emulated()
}

type Create = unsafe extern "C" fn(*mut Linker, u32, *const *const c_char) -> c_int;
type AddData = unsafe extern "C" fn(Linker, c_int, *const c_void, usize, *const c_char) -> c_int;
type AddFile = unsafe extern "C" fn(Linker, c_int, *const c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Linker) -> c_int;

/// Implements nvJitLinkCreate with NVIDIA's function `name`.
///
/// # Safety
///
/// The contract of NVIDIA's function.
unsafe fn create(name: &CStr, linker: *mut Linker, count: u32, options: *const *const c_char) -> c_int {
    let Some(native) = NVJITLINK.function(name) else { return MISSING };
    // SAFETY: nvJitLink.h's signature.
    let native: Create = unsafe { transmute(native.as_ptr()) };
    if !linker.is_null() && !options.is_null() && count > 0 {
        // SAFETY: not null, so `# Safety` promises `count` options, as NVIDIA's function demands.
        let mut all: Vec<_> = (0..count as usize).map(|index| unsafe { options.add(index).read() }).collect();
        if wants_ptx(&all) {
            all.push(c"-ptx".as_ptr());
            // SAFETY: `# Safety` promises a place for a linker. The list has the program's options and one more text,
            // and so says the count.
            let result = unsafe { native(linker, count.saturating_add(1), all.as_ptr()) };
            if result == SUCCESS {
                // SAFETY: NVIDIA's function has just written it.
                let linker = unsafe { *linker } as usize;
                linkers().get_or_insert_default().insert(linker, Replacement::Generated);
            }
            return result;
        }
    }
    // SAFETY: `# Safety` promises what NVIDIA's function demands of these arguments, and it gets them unchanged.
    unsafe { native(linker, count, options) }
}

/// Implements nvJitLinkDestroy with NVIDIA's function `name`.
///
/// # Safety
///
/// The contract of NVIDIA's function.
unsafe fn destroy(name: &CStr, linker: *mut Linker) -> c_int {
    let Some(native) = NVJITLINK.function(name) else { return MISSING };
    if !linker.is_null()
        && let Some(linkers) = linkers().as_mut()
    {
        // SAFETY: not null, so `# Safety` promises a handle. It is removed first: after its destruction another
        // thread may get an equal handle.
        linkers.remove(&(unsafe { *linker } as usize));
    }
    // SAFETY: nvJitLink.h's signature.
    let native: Destroy = unsafe { transmute(native.as_ptr()) };
    // SAFETY: `# Safety` promises what NVIDIA's function demands of this argument, and it gets it unchanged.
    unsafe { native(linker) }
}

/// Implements nvJitLinkAddData with NVIDIA's function `name`.
///
/// # Safety
///
/// The contract of NVIDIA's function.
unsafe fn add_data(
    name: &CStr,
    linker: Linker,
    kind: c_int,
    data: *const c_void,
    size: usize,
    input: *const c_char,
) -> c_int {
    let Some(native) = NVJITLINK.function(name) else { return MISSING };
    // SAFETY: nvJitLink.h's signature.
    let native: AddData = unsafe { transmute(native.as_ptr()) };
    // SAFETY: `# Safety` promises what NVIDIA's function demands of these arguments, and it gets them unchanged.
    let result = unsafe { native(linker, kind, data, size, input) };
    if result == SUCCESS && is_emulated() {
        // SAFETY: NVIDIA's function has accepted them, so there are `size` bytes at `data`.
        let ptx = (kind == INPUT_PTX).then(|| unsafe { slice::from_raw_parts(data.cast::<u8>(), size) });
        note_input(linker, ptx);
    }
    result
}

/// Implements nvJitLinkAddFile with NVIDIA's function `name`.
///
/// # Safety
///
/// The contract of NVIDIA's function.
unsafe fn add_file(name: &CStr, linker: Linker, kind: c_int, file: *const c_char) -> c_int {
    let Some(native) = NVJITLINK.function(name) else { return MISSING };
    // SAFETY: nvJitLink.h's signature.
    let native: AddFile = unsafe { transmute(native.as_ptr()) };
    // SAFETY: `# Safety` promises what NVIDIA's function demands of these arguments, and it gets them unchanged.
    let result = unsafe { native(linker, kind, file) };
    if result == SUCCESS && is_emulated() {
        note_input(linker, None);
    }
    result
}

/// Notes that `linker` has got an input: this PTX, or something else.
fn note_input(linker: Linker, ptx: Option<&[u8]>) {
    let mut linkers = linkers();
    match linkers.get_or_insert_default().entry(linker as usize) {
        Entry::Vacant(first) => {
            first.insert(ptx.map_or(Replacement::Nothing, |ptx| {
                let text = ptx.iter().copied().take_while(|byte| *byte != 0);
                Replacement::Input(text.chain([0]).collect())
            }));
        }
        Entry::Occupied(mut known) => {
            if !matches!(known.get(), Replacement::Generated) {
                known.insert(Replacement::Nothing);
            }
        }
    }
}

/// Implements nvJitLinkGetLinkedCubinSize or nvJitLinkGetLinkedCubin with NVIDIA's function `cubin`, or with `ptx` in
/// its place. If an input replaces the code, `give` writes it, or its size, to `out`.
///
/// # Safety
///
/// The contract of NVIDIA's function. `give` can be called with `out`, unless that is null.
unsafe fn linked(
    cubin: &CStr,
    ptx: &CStr,
    linker: Linker,
    out: *mut c_void,
    give: unsafe fn(&[u8], *mut c_void),
) -> c_int {
    let name = match linkers().as_ref().and_then(|linkers| linkers.get(&(linker as usize))) {
        Some(Replacement::Input(text)) if !out.is_null() => {
            // SAFETY: `# Safety` allows it.
            unsafe { give(text, out) };
            return SUCCESS;
        }
        Some(Replacement::Generated) => ptx,
        _ => cubin,
    };
    let Some(native) = NVJITLINK.function(name) else { return MISSING };
    // SAFETY: nvJitLink.h's signatures: one points to a size, one to bytes.
    let native: unsafe extern "C" fn(Linker, *mut c_void) -> c_int = unsafe { transmute(native.as_ptr()) };
    // SAFETY: `# Safety` promises a linker, and room for a size or for as many bytes as the same choice of name has
    // returned.
    unsafe { native(linker, out) }
}

/// Writes the size of `text`.
///
/// # Safety
///
/// `out` has room for a size.
unsafe fn give_size(text: &[u8], out: *mut c_void) {
    // SAFETY: there is room by this function's contract.
    unsafe { out.cast::<usize>().write(text.len()) };
}

/// Writes `text`.
///
/// # Safety
///
/// `out` has room for it.
unsafe fn give_text(text: &[u8], out: *mut c_void) {
    // SAFETY: there is room by this function's contract; the program's memory is not part of `text`, which is a copy.
    unsafe { out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
}

/// Defines all functions under the names of one release's header.
macro_rules! release {
    ($module:ident, $prefix:literal, $suffix:literal) => {
        /// The names of one release.
        pub mod $module {
            use super::*;

            const fn name(text: &'static str) -> &'static CStr {
                match CStr::from_bytes_with_nul(text.as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has a NUL"),
                }
            }

            /// `nvJitLinkCreate`: additionally requests PTX if the device is emulated.
            ///
            /// # Safety
            ///
            /// The contract of NVIDIA's function.
            #[unsafe(export_name = concat!($prefix, "Create", $suffix))]
            pub unsafe extern "C" fn nvJitLinkCreate(
                linker: *mut Linker,
                count: u32,
                options: *const *const c_char,
            ) -> c_int {
                // SAFETY: the caller answers for the arguments.
                unsafe { create(name(concat!($prefix, "Create", $suffix, "\0")), linker, count, options) }
            }

            /// `nvJitLinkDestroy`.
            ///
            /// # Safety
            ///
            /// The contract of NVIDIA's function.
            #[unsafe(export_name = concat!($prefix, "Destroy", $suffix))]
            pub unsafe extern "C" fn nvJitLinkDestroy(linker: *mut Linker) -> c_int {
                // SAFETY: the caller answers for the argument.
                unsafe { destroy(name(concat!($prefix, "Destroy", $suffix, "\0")), linker) }
            }

            /// `nvJitLinkAddData`: also keeps PTX if the device is emulated.
            ///
            /// # Safety
            ///
            /// The contract of NVIDIA's function.
            #[unsafe(export_name = concat!($prefix, "AddData", $suffix))]
            pub unsafe extern "C" fn nvJitLinkAddData(
                linker: Linker,
                kind: c_int,
                data: *const c_void,
                size: usize,
                input: *const c_char,
            ) -> c_int {
                const NAME: &CStr = name(concat!($prefix, "AddData", $suffix, "\0"));
                // SAFETY: the caller answers for the arguments.
                unsafe { add_data(NAME, linker, kind, data, size, input) }
            }

            /// `nvJitLinkAddFile`.
            ///
            /// # Safety
            ///
            /// The contract of NVIDIA's function.
            #[unsafe(export_name = concat!($prefix, "AddFile", $suffix))]
            pub unsafe extern "C" fn nvJitLinkAddFile(
                linker: Linker,
                kind: c_int,
                file: *const c_char,
            ) -> c_int {
                const NAME: &CStr = name(concat!($prefix, "AddFile", $suffix, "\0"));
                // SAFETY: the caller answers for the arguments.
                unsafe { add_file(NAME, linker, kind, file) }
            }

            /// `nvJitLinkGetLinkedCubinSize`: returns the size of the PTX where that replaces machine code.
            ///
            /// # Safety
            ///
            /// The contract of NVIDIA's function.
            #[unsafe(export_name = concat!($prefix, "GetLinkedCubinSize", $suffix))]
            pub unsafe extern "C" fn nvJitLinkGetLinkedCubinSize(linker: Linker, size: *mut usize) -> c_int {
                const CUBIN: &CStr = name(concat!($prefix, "GetLinkedCubinSize", $suffix, "\0"));
                const PTX: &CStr = name(concat!($prefix, "GetLinkedPtxSize", $suffix, "\0"));
                // SAFETY: the caller answers for the arguments.
                unsafe { linked(CUBIN, PTX, linker, size.cast(), give_size) }
            }

            /// `nvJitLinkGetLinkedCubin`: returns the machine code, or the PTX in its place.
            ///
            /// # Safety
            ///
            /// The contract of NVIDIA's function.
            #[unsafe(export_name = concat!($prefix, "GetLinkedCubin", $suffix))]
            pub unsafe extern "C" fn nvJitLinkGetLinkedCubin(linker: Linker, code: *mut c_void) -> c_int {
                const CUBIN: &CStr = name(concat!($prefix, "GetLinkedCubin", $suffix, "\0"));
                const PTX: &CStr = name(concat!($prefix, "GetLinkedPtx", $suffix, "\0"));
                // SAFETY: the caller answers for the arguments.
                unsafe { linked(CUBIN, PTX, linker, code, give_text) }
            }

            forward! { NVJITLINK, MISSING;
                (concat!($prefix, "Complete", $suffix)) fn nvJitLinkComplete(linker: Linker);
                (concat!($prefix, "GetLinkedPtxSize", $suffix)) fn nvJitLinkGetLinkedPtxSize(linker: Linker, size: *mut usize);
                (concat!($prefix, "GetLinkedPtx", $suffix)) fn nvJitLinkGetLinkedPtx(linker: Linker, code: *mut c_char);
                (concat!($prefix, "GetErrorLogSize", $suffix)) fn nvJitLinkGetErrorLogSize(linker: Linker, size: *mut usize);
                (concat!($prefix, "GetErrorLog", $suffix)) fn nvJitLinkGetErrorLog(linker: Linker, log: *mut c_char);
                (concat!($prefix, "GetInfoLogSize", $suffix)) fn nvJitLinkGetInfoLogSize(linker: Linker, size: *mut usize);
                (concat!($prefix, "GetInfoLog", $suffix)) fn nvJitLinkGetInfoLog(linker: Linker, log: *mut c_char);
            }
        }
    };
}

release!(plain, "nvJitLink", "");
release!(v12_0, "__nvJitLink", "_12_0");
release!(v12_1, "__nvJitLink", "_12_1");
release!(v12_2, "__nvJitLink", "_12_2");
release!(v12_3, "__nvJitLink", "_12_3");
release!(v12_4, "__nvJitLink", "_12_4");
release!(v12_5, "__nvJitLink", "_12_5");
release!(v12_6, "__nvJitLink", "_12_6");
release!(v12_7, "__nvJitLink", "_12_7");
release!(v12_8, "__nvJitLink", "_12_8");
release!(v12_9, "__nvJitLink", "_12_9");
release!(v13_0, "__nvJitLink", "_13_0");
release!(v13_1, "__nvJitLink", "_13_1");
release!(v13_2, "__nvJitLink", "_13_2");
release!(v13_3, "__nvJitLink", "_13_3");
release!(v13_4, "__nvJitLink", "_13_4");
release!(v13_5, "__nvJitLink", "_13_5");

forward! { NVJITLINK, MISSING;
    ("nvJitLinkVersion") fn nvJitLinkVersion(major: *mut u32, minor: *mut u32);
}
