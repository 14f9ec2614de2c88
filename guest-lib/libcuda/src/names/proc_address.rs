// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `cuGetProcAddress`: a name, a version and flags select the function and so its ABI.

use std::collections::HashMap;
use std::sync::OnceLock;

use virtio_cuda_client::CudaError;

use crate::entry::EntryPoint;
use crate::entry_points;
use crate::ffi::{Name, Out};
use crate::names::unsupported;

/// Lines `base version symbol`: from `version` on, the base name stands for the exported symbol.
const VERSIONS: &str = include_str!("../../../../protocol/names/libcuda-versions.txt");

/// `CU_GET_PROC_ADDRESS_*` flags.
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// `CUdriverProcAddressQueryResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Status {
    Success = 0,
    SymbolNotFound = 1,
    VersionNotSufficient = 2,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    since: i32,
    symbol: &'static str,
    per_thread: bool,
}

struct Table {
    versions: HashMap<&'static str, Vec<Version>>,
    addresses: HashMap<&'static str, usize>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut versions: HashMap<_, Vec<_>> = HashMap::new();
        for line in VERSIONS.lines() {
            let mut words = line.split(' ');
            if let (Some(base), Some(since), Some(symbol)) = (words.next(), words.next(), words.next())
                && let Ok(since) = since.parse()
            {
                let per_thread = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
                versions.entry(base).or_default().push(Version { since, symbol, per_thread });
            }
        }
        // Programs look up all functions that they may call, and fail if one is missing. Unsupported functions are
        // found, too.
        let served = crate::all_entry_points().map(|entry: &EntryPoint| (entry.name, entry.address as usize));
        Table { versions, addresses: unsupported::functions().chain(served).collect() }
    })
}

/// Returns the address for a base name, or why there is none.
fn look_up(base: &str, version: i32, flags: u64) -> Result<usize, Status> {
    let table = table();
    let candidates = table.versions.get(base).ok_or(Status::SymbolNotFound)?;
    let newest = |per_thread: bool| {
        let fitting = candidates.iter().filter(|one| one.per_thread == per_thread && one.since <= version);
        fitting.max_by_key(|one| one.since)
    };
    // A call without a per-thread variant has only one function.
    let per_thread = if flags & PER_THREAD_DEFAULT_STREAM != 0 { newest(true) } else { None };
    let found = per_thread.or_else(|| newest(false)).ok_or(Status::VersionNotSufficient)?;
    // An older variant would have another ABI than the caller expects.
    table.addresses.get(found.symbol).copied().ok_or(Status::SymbolNotFound)
}

/// Exceeds every CUDA version.
const MAX_VERSION: i32 = 50_000;

fn get(symbol: Name, pfn: Out<usize>, version: i32, flags: u64) -> Result<Result<usize, Status>, CudaError> {
    if version > MAX_VERSION || flags & !(LEGACY_STREAM | PER_THREAD_DEFAULT_STREAM) != 0 || pfn.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    // NVIDIA's driver treats a negative version as a large one.
    let version = if version < 0 { MAX_VERSION } else { version };
    let name = symbol.get()?.into_string().map_err(|_| CudaError::INVALID_VALUE)?;
    let found = look_up(&name, version, flags);
    if found == Err(Status::SymbolNotFound) {
        log::debug!("cuGetProcAddress: {name} is not there");
    }
    Ok(found)
}

entry_points! {
    /// Returns the function that `symbol` stood for in version `cudaVersion`.
    early cuGetProcAddress(_, symbol: Name, pfn: Out<usize>, cudaVersion: i32, flags: u64) {
        pfn.set(get(symbol, pfn, cudaVersion, flags)?.map_err(|_| CudaError::NOT_FOUND)?)
    }

    /// Same as above. A missing function is not an error; the reason is returned as a status.
    early cuGetProcAddress_v2 (_, symbol: Name, pfn: Out<usize>, cudaVersion: i32, flags: u64, symbolStatus: Out<i32>) {
        let found = get(symbol, pfn, cudaVersion, flags)?;
        symbolStatus.set_if_wanted(found.err().unwrap_or(Status::Success) as i32);
        pfn.set(found.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address_of(name: &str) -> usize {
        crate::all_entry_points().find(|entry| entry.name == name).expect("is defined").address as usize
    }

    #[test]
    fn version_selects_the_abi() {
        assert_eq!(look_up("cuCtxCreate", 3020, 0), Ok(address_of("cuCtxCreate_v2")));
        assert_eq!(look_up("cuCtxCreate", 11040, 0), Ok(address_of("cuCtxCreate_v3")));
        assert_eq!(look_up("cuCtxCreate", 13000, 0), Ok(address_of("cuCtxCreate_v4")));
        assert_ne!(look_up("cuMemAlloc", 2000, 0), look_up("cuMemAlloc", 3020, 0), "the 32-bit variant");
    }

    #[test]
    fn flags_select_the_default_stream() {
        assert_eq!(look_up("cuMemcpyHtoD", 12000, 0), Ok(address_of("cuMemcpyHtoD_v2")));
        assert_eq!(look_up("cuMemcpyHtoD", 12000, LEGACY_STREAM), Ok(address_of("cuMemcpyHtoD_v2")));
        assert_eq!(
            look_up("cuMemcpyHtoD", 12000, PER_THREAD_DEFAULT_STREAM),
            Ok(address_of("cuMemcpyHtoD_v2_ptds"))
        );
        assert_eq!(
            look_up("cuInit", 12000, PER_THREAD_DEFAULT_STREAM),
            Ok(address_of("cuInit")),
            "one meaning only"
        );
    }

    #[test]
    fn refused_functions_are_found() {
        let table = table();
        for name in VERSIONS.lines().filter_map(|line| line.rsplit(' ').next()) {
            assert!(table.addresses.contains_key(name), "{name}");
        }
        assert!(look_up("cuMemBatchDecompressAsync", 12080, PER_THREAD_DEFAULT_STREAM).is_ok());
        assert_eq!(
            look_up("cuMemAlloc", 3020, 0),
            Ok(address_of("cuMemAlloc_v2")),
            "what is served comes first"
        );
    }

    #[test]
    fn reasons_are_told_apart() {
        assert_eq!(look_up("cuNoSuchCall", 13000, 0), Err(Status::SymbolNotFound));
        assert_eq!(look_up("cuMemAllocAsync", 11010, 0), Err(Status::VersionNotSufficient));
        assert_eq!(look_up("", 0, 0), Err(Status::SymbolNotFound));
    }

    #[test]
    fn entry_points_are_names_of_the_driver_api() {
        for entry in crate::all_entry_points() {
            assert!(
                VERSIONS.lines().any(|line| line.rsplit(' ').next() == Some(entry.name)),
                "{} is not in protocol/names/libcuda-versions.txt",
                entry.name
            );
        }
    }
}
