// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An auditor of the dynamic linker (rtld-audit(7)) for programs that were not made for this project.
//!
//! Loaded through `LD_AUDIT`, it does two things to each object of the program:
//!
//! * nvcc links NVIDIA's CUDA runtime statically by default, and that runtime works with NVIDIA's driver only. The
//!   auditor finds such a runtime by the object's symbol table ([`runtime`]), or by its code where the symbols were
//!   removed ([`stripped`]), and makes each of its public functions jump to our libcudart of the same major version
//!   ([`patch`], [`slot`]), before a constructor of the object runs.
//! * Programs find libraries by RPATH, RUNPATH or whole paths, which win over `LD_LIBRARY_PATH`. The auditor replaces
//!   them with the library of the same soname in its own folder ([`libraries`]).
//!
//! The dynamic linker loads an auditor into a separate namespace, with a separate C library. Nothing here may depend on
//! state of the program's C library, and nothing here runs before the auditor's C library is ready.

mod libraries;
mod link_map;
mod loader;
mod patch;
mod report;
mod runtime;
mod slot;
mod stripped;

use std::ffi::{CStr, OsStr, c_char, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use link_map::LinkMap;

/// The version of the auditing interface that is used here; glibc has had it since 2.4.
const INTERFACE: c_uint = 1;
/// Result of `la_objopen`: no symbol binding of this object is of interest.
const NO_BINDINGS: c_uint = 0;
/// Cookie of an object that lies in our folder.
const OWN: usize = 1;
/// Cookie of any other object.
const OTHER: usize = 0;
/// Stage of a search: the name is the program's own (`LA_SER_ORIG`). At later stages it has a folder that is searched.
const BY_NAME: c_uint = 1;
/// No object is mapped below this address: half of Linux' default of `vm.mmap_min_addr`.
const LOWEST_ADDRESS: usize = 0x8000;

/// The handshake: returns the version of the interface that is used here (rtld-audit(7)).
#[unsafe(no_mangle)]
pub extern "C" fn la_version(version: c_uint) -> c_uint {
    version.min(INTERFACE)
}

/// Inspects an object after it was mapped and before it is relocated (rtld-audit(7)).
///
/// # Safety
///
/// Only the dynamic linker calls this: `map` is an object that stays mapped during the call, and `cookie` may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(
    map: *const LinkMap,
    namespace: libc::Lmid_t,
    cookie: *mut usize,
) -> c_uint {
    // SAFETY: `# Safety` promises that `map` is an object that stays mapped during the call.
    let object = unsafe { link_map::Object::new(&*map) };
    // A file of ours that was opened in place of one in a searched folder still has the name of that folder.
    let is_own = object.name().is_some_and(|name| libraries::is_own(name) || libraries::find(name).is_some());
    // SAFETY: `# Safety` promises that `cookie` may be written.
    unsafe { cookie.write(if is_own { OWN } else { OTHER }) };
    if namespace == libc::LM_ID_BASE && !is_own {
        loader::see(&object);
        patch::redirect(&object);
    }
    NO_BINDINGS
}

/// Chooses the file for a library that the program asks for by name or path (rtld-audit(7)).
///
/// # Safety
///
/// Only the dynamic linker calls this: `name` ends with a NUL, and `cookie` is that of the requesting object. If there
/// is none, `cookie` is below [`LOWEST_ADDRESS`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    cookie: *const usize,
    stage: c_uint,
) -> *const c_char {
    // glibc before 2.35 calls this for our own dlmopen, too. It passes the address of a field of a null object then.
    if cookie.addr() < LOWEST_ADDRESS {
        return name;
    }
    // SAFETY: `# Safety` promises that `name` ends with a NUL; `cookie` is not below `LOWEST_ADDRESS`, so an object's.
    let (asked, mark) = unsafe { (cuda_program::text(name), *cookie) };
    let Some(asked) = asked else { return name };
    let path = Path::new(OsStr::from_bytes(asked.to_bytes()));
    if stage == BY_NAME && libraries::keeps_its_name(path) {
        return name;
    }
    let ours = if mark == OWN { libraries::find_for_ours(path) } else { libraries::find(path) };
    ours.map_or(name, CStr::as_ptr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_asking_object_the_name_stays() {
        let name = c"/a/libcudart.so.13".as_ptr();
        // The value that glibc 2.27 passes: the offset of the cookie in its `struct link_map`.
        let cookie = std::ptr::without_provenance(0x470);
        // SAFETY: a constant name, and a cookie as the contract describes it for no object.
        assert_eq!(unsafe { la_objsearch(name, cookie, 0) }, name);
    }
}
