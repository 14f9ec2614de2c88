// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The functions of cuFFT that this library uses, in the file of this library's own version.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null;
use std::sync::OnceLock;

use cuda_program::Library;

use crate::driver::symbol;
use crate::error::{Error, Result};

/// `CUFFT_SUCCESS`
const SUCCESS: c_int = 0;
/// Versions to use if this library's file has no version in its name.
const USUAL_VERSION: &str = "12";

type Create = unsafe extern "C" fn(*mut c_int) -> c_int;
type Destroy = unsafe extern "C" fn(c_int) -> c_int;
type Layout = *const i64;
type MakePlanMany64 = unsafe extern "C" fn(
    c_int,
    c_int,
    *const i64,
    Layout,
    i64,
    i64,
    Layout,
    i64,
    i64,
    c_int,
    i64,
    *mut usize,
) -> c_int;
type Execute = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, c_int) -> c_int;

/// Functions of cuFFT.
pub struct CuFft {
    create: Create,
    destroy: Destroy,
    make: MakePlanMany64,
    execute: Execute,
}

/// Returns the functions of cuFFT.
pub fn cufft() -> Result<&'static CuFft> {
    static CUFFT: OnceLock<Result<CuFft>> = OnceLock::new();
    CUFFT.get_or_init(|| CuFft::find(&open()?)).as_ref().map_err(Error::clone)
}

impl CuFft {
    fn find(library: &Library) -> Result<Self> {
        let find = |name| symbol(library, name);
        // SAFETY: cufft.h and cufftXt.h declare the functions with these types.
        unsafe {
            Ok(Self {
                create: transmute::<*mut c_void, Create>(find(c"cufftCreate")?),
                destroy: transmute::<*mut c_void, Destroy>(find(c"cufftDestroy")?),
                make: transmute::<*mut c_void, MakePlanMany64>(find(c"cufftMakePlanMany64")?),
                execute: transmute::<*mut c_void, Execute>(find(c"cufftXtExec")?),
            })
        }
    }

    /// Creates a plan for elements that are side by side. `kind` is a `cufftType`.
    pub fn plan(&self, sizes: &[i64], kind: c_int, batch: i64) -> Result<c_int> {
        let (mut plan, mut work) = (0, 0);
        // SAFETY: `plan` is a local.
        check(unsafe { (self.create)(&raw mut plan) })?;
        let (rank, packed) = (sizes.len() as c_int, null());
        // SAFETY: there are `rank` sizes; without layouts, strides and distances are ignored. `work` is a local.
        let made = unsafe {
            (self.make)(plan, rank, sizes.as_ptr(), packed, 1, 0, packed, 1, 0, kind, batch, &raw mut work)
        };
        if let Err(error) = check(made) {
            self.destroy(plan);
            return Err(error);
        }
        Ok(plan)
    }

    /// Ends a plan.
    pub fn destroy(&self, plan: c_int) {
        // SAFETY: a plan that this library has created. Nothing can be done about an error.
        let _ = unsafe { (self.destroy)(plan) };
    }

    /// Queues a transform in the default stream.
    ///
    /// # Safety
    ///
    /// The device memory has the elements of the plan.
    pub unsafe fn execute(&self, plan: c_int, input: u64, output: u64, direction: c_int) -> Result {
        // SAFETY: the memory is large enough by this function's contract.
        check(unsafe { (self.execute)(plan, input as *mut c_void, output as *mut c_void, direction) })
    }
}

fn check(result: c_int) -> Result {
    if result == SUCCESS { Ok(()) } else { Err(Error::Fft(result)) }
}

/// Opens the library where the dynamic linker looks, or else beside this library.
fn open() -> Result<Library> {
    let own = own_file();
    let name = format!("libcufft.so.{}", version(own.as_deref()));
    // SAFETY: the constructors of this project's and of NVIDIA's libraries run wherever a program loads them.
    let open = |path: &Path| unsafe { Library::open(path, false) };
    let beside = || open(&own.as_deref()?.parent()?.join(&name));
    open(Path::new(&name)).or_else(beside).ok_or_else(|| Error::Library(name.clone()))
}

/// Returns the file from which the loader loaded this library.
fn own_file() -> Option<PathBuf> {
    // SAFETY: the structure has only pointers and numbers, for which zero is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = own_file as fn() -> Option<PathBuf> as *const c_void;
    // SAFETY: the address is only looked up, and `info` may be written.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a text that ends with a NUL and stays while this library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Returns the `12` of `…/libcufftw.so.12`.
fn version(own: Option<&Path>) -> &str {
    let name = own.and_then(Path::file_name).and_then(OsStr::to_str);
    let version = name.and_then(|name| name.strip_prefix("libcufftw.so.")?.split('.').next());
    version.filter(|version| version.parse::<u32>().is_ok()).unwrap_or(USUAL_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_files_name() {
        let version = |name: &'static str| version(Some(Path::new(name)));
        assert_eq!(version("/a/libcufftw.so.11"), "11");
        assert_eq!(version("/a/libcufftw.so.12.5.0.14"), "12");
        assert_eq!(version("/a/libcufftw.so"), USUAL_VERSION);
        assert_eq!(version("/a/program"), USUAL_VERSION);
    }
}
