// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program's own `dlmopen`, `dlsym` and `dlerror`.
//!
//! The functions of the auditor's namespace would write into memory of the program. Before 2.34, glibc's libdl finds
//! its per-thread state by a key of pthread_key_create(3). Each namespace counts its keys separately, but a thread has
//! one table of values for all of them. The libdl of the auditor's namespace would therefore mistake a value of the
//! program, such as Python's thread state, for its own state.

use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use object::LittleEndian;
use object::elf::{FileHeader64, SHN_LORESERVE, SHT_DYNSYM};
use object::read::elf::{FileHeader, Sym};
use object::read::{ReadCache, ReadRef};

use crate::link_map::Object;

/// Libraries that have the functions: libc since 2.34, before that libdl.
const LIBRARIES: [&str; 2] = ["libc.so.", "libdl.so."];
/// The functions, in the order of [`Functions`].
const NAMES: [&str; 3] = ["dlmopen", "dlsym", "dlerror"];

type Dlmopen = unsafe extern "C" fn(libc::Lmid_t, *const c_char, c_int) -> *mut c_void;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlerror = unsafe extern "C" fn() -> *mut c_char;

/// The functions.
#[derive(Debug, Clone, Copy)]
pub struct Functions {
    /// dlmopen(3)
    pub dlmopen: Dlmopen,
    /// dlsym(3)
    pub dlsym: Dlsym,
    /// dlerror(3)
    pub dlerror: Dlerror,
}

static FOUND: Mutex<Option<Functions>> = Mutex::new(None);

/// Returns the functions of the program's namespace; `None` before [`see`] has found their library there.
pub fn functions() -> Option<Functions> {
    *FOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores the functions, if this object of the program's namespace has them.
pub fn see(object: &Object) {
    let Some(file) = object.name() else { return };
    let name = file.file_name().unwrap_or_default().as_encoded_bytes();
    if !LIBRARIES.iter().any(|library| name.starts_with(library.as_bytes())) {
        return;
    }
    let Some(addresses) = addresses_in(file) else { return };
    let [dlmopen, dlsym, dlerror] = addresses.map(|address| {
        std::ptr::with_exposed_provenance::<c_void>(object.base().wrapping_add(address as usize))
    });
    // SAFETY: a C library maps these functions of these names there. It stays loaded for as long as an object that
    // needs it. Such objects are static runtimes, from which the entries come, and our libcudart, which is never
    // unloaded.
    let functions = unsafe {
        Functions {
            dlmopen: std::mem::transmute::<*const c_void, Dlmopen>(dlmopen),
            dlsym: std::mem::transmute::<*const c_void, Dlsym>(dlsym),
            dlerror: std::mem::transmute::<*const c_void, Dlerror>(dlerror),
        }
    };
    *FOUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(functions);
}

/// Returns the addresses of [`NAMES`] in the file; `None` unless it defines all.
fn addresses_in(file: &Path) -> Option<[u64; NAMES.len()]> {
    let cache = ReadCache::new(File::open(file).ok()?);
    let addresses = addresses(&cache);
    let [dlmopen, dlsym, dlerror] = addresses?;
    Some([dlmopen?, dlsym?, dlerror?])
}

fn addresses<'data>(data: impl ReadRef<'data>) -> Option<[Option<u64>; NAMES.len()]> {
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let sections = header.sections(LittleEndian, data).ok()?;
    let symbols = sections.symbols(LittleEndian, data, SHT_DYNSYM).ok()?;
    let mut addresses = [None; NAMES.len()];
    for symbol in symbols.iter() {
        let section = symbol.st_shndx(LittleEndian);
        if section == 0 || section >= SHN_LORESERVE {
            continue;
        }
        let Ok(name) = symbol.name(LittleEndian, symbols.strings()) else { continue };
        // Versions of one name are the same function.
        if let Some(at) = NAMES.iter().position(|wanted| wanted.as_bytes() == name) {
            addresses[at] = Some(symbol.st_value(LittleEndian));
        }
    }
    Some(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_c_library_has_them() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our mappings");
        let files = maps.lines().filter_map(|line| Some(Path::new(line.get(line.find('/')?..)?)));
        let libraries = files.filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libc.so.") || name.starts_with("libc-") || name.starts_with("libdl")
        });
        let found = libraries.filter_map(addresses_in).next().expect("a library with the functions");
        assert!(found.iter().all(|address| *address != 0), "{found:?}");
    }

    #[test]
    fn other_files_have_none() {
        assert_eq!(addresses_in(Path::new("/proc/self/exe")), None);
        assert_eq!(addresses_in(Path::new("/proc/self/maps")), None);
        assert_eq!(addresses_in(Path::new("/nonexistent")), None);
    }
}
