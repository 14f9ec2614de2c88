// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuBLASLt: products of matrices with layouts and epilogues (chapter 3 of NVIDIA's cuBLAS manual).

pub(crate) mod algorithm;
mod epilogue;
mod layout;
pub(crate) mod matmul;
pub(crate) mod transform;

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

// Exports the functions of descriptors, whose contents are those of the guest's library.
use cublaslt_descriptors as _;
use cuda_library_rows::CUBLASLT;
use cuda_library_rows::attributes::Descriptor;
pub use epilogue::gelu;
pub use layout::View;
pub use matmul::Factor;

use crate::cublas::handle::{VERSION, cublasGetStatusName};
use crate::cublas::{INVALID_VALUE, NOT_INITIALIZED, SUCCESS, Status};
use crate::handles::{self, Handle};

/// A `cublasLtHandle_t` of this library. It has no state, since all settings are in descriptors. A `cublasHandle_t` is
/// a handle here, too, but lives in another file of ours.
struct Light;

/// Creates a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtCreate(handle: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    let Some(place) = (unsafe { handle.as_mut() }) else { return INVALID_VALUE };
    *place = handles::make(Light);
    SUCCESS
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtDestroy(handle: Handle) -> Status {
    if handles::end::<Light>(handle) { SUCCESS } else { NOT_INITIALIZED }
}

/// The capacity that the program has set. The emulator has no cache of heuristics.
static CAPACITY: AtomicUsize = AtomicUsize::new(8192);

/// Returns the capacity.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtHeuristicsCacheGetCapacity(capacity: *mut usize) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(place) = (unsafe { capacity.as_mut() }) else { return INVALID_VALUE };
    *place = CAPACITY.load(Ordering::Relaxed);
    SUCCESS
}

/// Sets the capacity.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtHeuristicsCacheSetCapacity(capacity: usize) -> Status {
    CAPACITY.store(capacity, Ordering::Relaxed);
    SUCCESS
}

/// The version of the API that these functions follow.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    VERSION as usize
}

/// Returns the name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetStatusName(status: Status) -> *const c_char {
    cublasGetStatusName(status)
}

/// Returns the name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetStatusString(status: Status) -> *const c_char {
    cublasGetStatusName(status)
}

/// The attributes of a descriptor in memory.
struct Attributes<'a> {
    kind: &'static Descriptor,
    contents: &'a [u8],
}

impl Attributes<'_> {
    /// Returns the contents of the descriptor at an address.
    ///
    /// # Safety
    ///
    /// `address` is null or a descriptor of that kind.
    unsafe fn at(name: &str, address: usize) -> Result<Self, Status> {
        let kind = CUBLASLT.descriptors.iter().find(|kind| kind.name == name).ok_or(NOT_INITIALIZED)?;
        if address == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, so a descriptor of this kind, of its size, by this function's contract.
        let contents = unsafe { std::slice::from_raw_parts(address as *const u8, kind.bytes) };
        Ok(Self { kind, contents })
    }

    /// The attribute of that number, which the kind has.
    fn get(&self, number: u32) -> u64 {
        let Some((index, attribute)) = self.kind.attribute(number) else { return 0 };
        self.kind.value(index, self.contents).unwrap_or(attribute.default)
    }

    /// The same, as a number of 32 bits.
    fn int(&self, number: u32) -> c_int {
        self.get(number) as c_int
    }
}
