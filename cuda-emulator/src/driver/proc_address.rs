// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuGetProcAddress: returns the newest variant of a function up to the requested version.

use std::ffi::c_void;

use super::ffi::{Out, Text};
use super::result::{CUresult, CuResult};
use super::symbols::{SYMBOLS, Symbol};

/// The result of cuDriverGetVersion.
pub(super) const DRIVER_VERSION: i32 = 13000;

const LEGACY_STREAM: u64 = 1;
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// CUdriverProcAddressQueryResult
const SUCCESS: u32 = 0;
const SYMBOL_NOT_FOUND: u32 = 1;
const VERSION_NOT_SUFFICIENT: u32 = 2;

/// An upper bound for CUDA versions.
const MAX_VERSION: i32 = 1_000_000;

/// Stores the address, or NULL, and returns the CUdriverProcAddressQueryResult.
fn look_up(symbol: Text, function: Out<*mut c_void>, version: i32, flags: u64) -> CuResult<u32> {
    function.check()?;
    let name = symbol.text()?;
    if version > MAX_VERSION || flags & !(LEGACY_STREAM | PER_THREAD_DEFAULT_STREAM) != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    match find(&name, version, flags & PER_THREAD_DEFAULT_STREAM != 0) {
        Ok(found) => {
            function.set_if_wanted(found.address as *mut c_void);
            Ok(SUCCESS)
        }
        Err(reason) => {
            function.set_if_wanted(std::ptr::null_mut());
            // Not an error by itself, as in NVIDIA's driver.
            Ok(reason)
        }
    }
}

fn find(name: &str, version: i32, per_thread: bool) -> Result<&'static Symbol, u32> {
    let start = SYMBOLS.partition_point(|symbol| symbol.base < name);
    let variants = SYMBOLS[start..].iter().take_while(|symbol| symbol.base == name);
    let newest = |wanted: bool| {
        let fits = |symbol: &&Symbol| symbol.per_thread() == wanted && symbol.version <= version;
        variants.clone().filter(fits).max_by_key(|symbol| symbol.version)
    };
    // Functions that take no stream have only a legacy variant, which serves both modes.
    let found = if per_thread { newest(true).or_else(|| newest(false)) } else { newest(false) };
    found.ok_or(if variants.clone().next().is_some() { VERSION_NOT_SUFFICIENT } else { SYMBOL_NOT_FOUND })
}

fn get_proc_address(
    symbol: Text,
    function: Out<*mut c_void>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> CuResult<()> {
    status.set_if_wanted(look_up(symbol, function, version, flags)?);
    Ok(())
}

fn get_proc_address_v1(symbol: Text, function: Out<*mut c_void>, version: i32, flags: u64) -> CuResult<()> {
    let status = look_up(symbol, function, version, flags)?;
    if status == SUCCESS { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_FOUND) }
}

fn driver_get_version(version: Out<i32>) -> CuResult<()> {
    version.check()?;
    version.set_if_wanted(DRIVER_VERSION);
    Ok(())
}

/// NVIDIA's private tables are not implemented.
fn get_export_table(table: Out<*const c_void>, id: *const c_void) -> CuResult<()> {
    table.check()?;
    if id.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    table.set_if_wanted(std::ptr::null());
    Err(CUresult::CUDA_ERROR_NOT_FOUND)
}

super::ffi::entries! { before_init
    cuGetProcAddress => get_proc_address_v1(symbol: Text, function: Out<*mut c_void>, version: i32, flags: u64);
    cuGetProcAddress_v2 => get_proc_address(
        symbol: Text, function: Out<*mut c_void>, version: i32, flags: u64, status: Out<u32>);
    cuDriverGetVersion => driver_get_version(version: Out<i32>);
    cuGetExportTable => get_export_table(table: Out<*const c_void>, id: *const c_void);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(base: &str, version: i32, per_thread: bool) -> Result<&'static str, u32> {
        find(base, version, per_thread).map(|symbol| symbol.name)
    }

    #[test]
    fn version_and_flags_select_the_variant() {
        assert_eq!(name_of("cuMemAlloc", 3020, false), Ok("cuMemAlloc_v2"));
        assert_eq!(name_of("cuMemAlloc", 2000, false), Ok("cuMemAlloc"));
        assert_eq!(name_of("cuCtxCreate", 12000, false), Ok("cuCtxCreate_v3"));
        assert_eq!(name_of("cuCtxCreate", 13000, false), Ok("cuCtxCreate_v4"));
        assert_eq!(name_of("cuMemcpyHtoD", 13000, true), Ok("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(name_of("cuMemcpyHtoD", 13000, false), Ok("cuMemcpyHtoD_v2"));
        assert_eq!(name_of("cuCtxGetDevice", 12090, true), Ok("cuCtxGetDevice"));
        assert_eq!(name_of("cuMemAllocAsync", 11010, false), Err(VERSION_NOT_SUFFICIENT));
        assert_eq!(name_of("cuNoSuchThing", 13000, false), Err(SYMBOL_NOT_FOUND));
        assert_eq!(name_of("", 0, false), Err(SYMBOL_NOT_FOUND));
    }

    #[test]
    fn every_exported_name_is_reachable() {
        assert!(SYMBOLS.is_sorted_by_key(|symbol| symbol.base));
        for symbol in SYMBOLS {
            assert_eq!(name_of(symbol.base, symbol.version, symbol.per_thread()), Ok(symbol.name));
        }
    }
}
