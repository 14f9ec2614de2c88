// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The functions of cuBLASLt's descriptors. Descriptors are plain memory, and their contents are sent with each call
//! that uses them ([`cuda_library_rows::attributes`]), so creating and changing one needs no call. The guest's library
//! and the emulator's export them. [`objects`] contains the shared code for objects of cuSPARSELt.

#![allow(non_snake_case, clippy::too_many_arguments)]

pub mod objects;

use cuda_library_rows::CUBLASLT;
use cuda_library_rows::attributes::Descriptor;

/// `cublasStatus_t`
type Status = i32;

const SUCCESS: Status = 0;
const ALLOC_FAILED: Status = 3;
const INVALID_VALUE: Status = 7;
const NOT_SUPPORTED: Status = 15;

fn descriptor(name: &str) -> Option<&'static Descriptor> {
    CUBLASLT.descriptors.iter().find(|descriptor| descriptor.name == name)
}

/// A copy of the contents of a descriptor. It is the program's memory, which other threads may write: no reference to it is made.
///
/// # Safety
///
/// `contents` is a descriptor of that kind.
unsafe fn copy_of(contents: *const u8, descriptor: &Descriptor) -> Vec<u8> {
    let mut copy = vec![0; descriptor.bytes];
    // SAFETY: a descriptor of that kind by this function's contract has that many bytes.
    unsafe { std::ptr::copy_nonoverlapping(contents, copy.as_mut_ptr(), copy.len()) };
    copy
}

/// Makes a descriptor in the program's memory.
///
/// # Safety
///
/// `place` is null or has `bytes` bytes.
unsafe fn init(name: &str, place: *mut u8, bytes: usize, given: &[u64]) -> Status {
    let Some(descriptor) = descriptor(name) else { return NOT_SUPPORTED };
    if place.is_null() {
        return INVALID_VALUE;
    }
    if bytes < descriptor.public_bytes {
        return ALLOC_FAILED;
    }
    let mut contents = vec![0; descriptor.bytes];
    descriptor.make(given, &mut contents);
    // SAFETY: not null, so `bytes` bytes by this function's contract, no fewer than the contents have.
    unsafe {
        std::ptr::write_bytes(place, 0, bytes);
        std::ptr::copy_nonoverlapping(contents.as_ptr(), place, contents.len());
    }
    SUCCESS
}

/// Creates a descriptor on the heap.
///
/// # Safety
///
/// `place` is null or has room for an address.
unsafe fn create(name: &str, place: *mut *mut u8, given: &[u64]) -> Status {
    let Some(descriptor) = descriptor(name) else { return NOT_SUPPORTED };
    // SAFETY: null, or room for an address by this function's contract.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
    // SAFETY: a plain allocation, which `destroy` frees.
    let memory = unsafe { libc::malloc(descriptor.public_bytes) }.cast::<u8>();
    if memory.is_null() {
        return ALLOC_FAILED;
    }
    *place = memory;
    // SAFETY: it has that many bytes.
    unsafe { init(name, memory, descriptor.public_bytes, given) }
}

/// Frees a descriptor that [`create`] allocated.
///
/// # Safety
///
/// `contents` is null or such a descriptor, which is not used afterwards.
unsafe fn destroy(contents: *mut u8) -> Status {
    // SAFETY: null, or a descriptor of `create` that is used no more by this function's contract.
    unsafe { libc::free(contents.cast()) };
    SUCCESS
}

/// Sets an attribute.
///
/// # Safety
///
/// `contents` is null or a descriptor of that kind, and `value` null or has `bytes` bytes.
unsafe fn set(name: &str, contents: *mut u8, number: u32, value: *const u8, bytes: usize) -> Status {
    let Some(descriptor) = descriptor(name) else { return NOT_SUPPORTED };
    let Some((index, attribute)) = descriptor.attribute(number) else { return INVALID_VALUE };
    if contents.is_null() || value.is_null() || bytes != attribute.bytes {
        return INVALID_VALUE;
    }
    let mut word = [0; 8];
    // SAFETY: `value` is not null, so it has `bytes` bytes by this function's contract; an attribute has at most 8.
    unsafe { std::ptr::copy_nonoverlapping(value, word.as_mut_ptr(), bytes) };
    let value = u64::from_le_bytes(word);
    // SAFETY: `contents` is not null, so a descriptor of this kind by this function's contract.
    let mut own = unsafe { copy_of(contents, descriptor) };
    descriptor.set(index, value, &mut own);
    // SAFETY: the same descriptor, which is as long as its copy.
    unsafe { std::ptr::copy_nonoverlapping(own.as_ptr(), contents, own.len()) };
    SUCCESS
}

/// Stores the value of an attribute.
///
/// # Safety
///
/// `contents` is null or a descriptor of that kind, `value` null or has `bytes` bytes, and `written` null or room for a
/// number.
unsafe fn get(
    name: &str,
    contents: *const u8,
    number: u32,
    value: *mut u8,
    bytes: usize,
    written: *mut usize,
) -> Status {
    let Some(descriptor) = descriptor(name) else { return NOT_SUPPORTED };
    let Some((index, attribute)) = descriptor.attribute(number) else { return INVALID_VALUE };
    // SAFETY: null, or room for a number by this function's contract.
    if let Some(written) = unsafe { written.as_mut() } {
        *written = attribute.bytes;
    }
    if contents.is_null() || (bytes == 0 && written.is_null()) || (bytes != 0 && bytes != attribute.bytes) {
        return INVALID_VALUE;
    }
    if bytes == 0 {
        return SUCCESS;
    }
    if value.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: `contents` is not null, so a descriptor of this kind by this function's contract.
    let contents = unsafe { copy_of(contents, descriptor) };
    let word = descriptor.value(index, &contents).unwrap_or(attribute.default).to_le_bytes();
    // SAFETY: `value` is not null, so it has `bytes` bytes by this function's contract; an attribute has at most 8.
    unsafe { std::ptr::copy_nonoverlapping(word.as_ptr(), value, bytes) };
    SUCCESS
}

/// Defines the functions of a kind of descriptor. The arguments of its constructors are its first attributes.
macro_rules! descriptors {
    ($($name:literal ($($given:ident: $type:ty),*): $init:ident $create:ident $destroy:ident $set:ident $get:ident;)*) => { $(
        /// Creates a descriptor in the program's memory.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(place: *mut u8, bytes: usize $(, $given: $type)*) -> Status {
            // SAFETY: NVIDIA's function demands of its caller room for `bytes` bytes at `place`, or null.
            unsafe { init($name, place, bytes, &[$(($given) as u64),*]) }
        }

        /// Creates a descriptor on the heap.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(place: *mut *mut u8 $(, $given: $type)*) -> Status {
            // SAFETY: NVIDIA's function demands of its caller room for an address at `place`, or null.
            unsafe { create($name, place, &[$(($given) as u64),*]) }
        }

        /// Frees a descriptor.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $destroy(contents: *mut u8) -> Status {
            // SAFETY: NVIDIA's function demands of its caller a descriptor that is used no more, or null.
            unsafe { destroy(contents) }
        }

        /// Sets an attribute.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(contents: *mut u8, number: u32, value: *const u8, bytes: usize) -> Status {
            // SAFETY: NVIDIA's function demands of its caller a descriptor of this kind and `bytes` bytes at `value`,
            // or nulls.
            unsafe { set($name, contents, number, value, bytes) }
        }

        /// Stores the value of an attribute.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            contents: *const u8, number: u32, value: *mut u8, bytes: usize, written: *mut usize,
        ) -> Status {
            // SAFETY: NVIDIA's function requires of its caller a descriptor of this kind and room for the results, or
            // nulls.
            unsafe { get($name, contents, number, value, bytes, written) }
        }
    )* };
}

descriptors! {
    "matmul_desc" (compute_type: i32, scale_type: i32):
        cublasLtMatmulDescInit_internal cublasLtMatmulDescCreate cublasLtMatmulDescDestroy
        cublasLtMatmulDescSetAttribute cublasLtMatmulDescGetAttribute;
    "matrix_layout" (data_type: i32, rows: u64, columns: u64, leading: i64):
        cublasLtMatrixLayoutInit_internal cublasLtMatrixLayoutCreate cublasLtMatrixLayoutDestroy
        cublasLtMatrixLayoutSetAttribute cublasLtMatrixLayoutGetAttribute;
    "preference" ():
        cublasLtMatmulPreferenceInit_internal cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceDestroy
        cublasLtMatmulPreferenceSetAttribute cublasLtMatmulPreferenceGetAttribute;
    "emulation_desc" ():
        cublasLtEmulationDescInit_internal cublasLtEmulationDescCreate cublasLtEmulationDescDestroy
        cublasLtEmulationDescSetAttribute cublasLtEmulationDescGetAttribute;
    "transform_desc" (scale_type: i32):
        cublasLtMatrixTransformDescInit_internal cublasLtMatrixTransformDescCreate
        cublasLtMatrixTransformDescDestroy cublasLtMatrixTransformDescSetAttribute
        cublasLtMatrixTransformDescGetAttribute;
}

/// Defines the logger functions. They have no effect, because this library writes no log.
macro_rules! loggers {
    ($($name:ident ($($argument:ident: $type:ty),*);)*) => { $(
        /// Accepted, without an effect: this library writes no log.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> Status {
            $(let _ = $argument;)*
            SUCCESS
        }
    )* };
}

loggers! {
    cublasLtLoggerSetCallback(callback: usize);
    cublasLtLoggerSetFile(file: usize);
    cublasLtLoggerOpenFile(name: usize);
    cublasLtLoggerSetLevel(level: i32);
    cublasLtLoggerSetMask(mask: i32);
    cublasLtLoggerForceDisable();
    cusparseLoggerSetCallback(callback: usize);
    cusparseLoggerSetFile(file: usize);
    cusparseLoggerOpenFile(name: usize);
    cusparseLoggerSetLevel(level: i32);
    cusparseLoggerSetMask(mask: i32);
    cusparseLoggerForceDisable();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_keeps_its_attributes() {
        let mut memory = [0_u64; 32];
        let place = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the memory is as long as a descriptor, and values are as long as their sizes say.
        unsafe {
            assert_eq!(cublasLtMatmulDescInit_internal(place, 255, 68, 0), ALLOC_FAILED);
            assert_eq!(cublasLtMatmulDescInit_internal(place, 256, 68, 0), SUCCESS);
            let bias = 0x7000_u64;
            let set = |bytes| cublasLtMatmulDescSetAttribute(place, 8, (&raw const bias).cast(), bytes);
            assert_eq!(set(4), INVALID_VALUE);
            assert_eq!(set(8), SUCCESS);
            let (mut value, mut written) = (0_u64, 0);
            let get = |number, value: *mut u64, bytes, written| {
                cublasLtMatmulDescGetAttribute(place, number, value.cast(), bytes, written)
            };
            assert_eq!(get(8, &raw mut value, 8, &raw mut written), SUCCESS);
            assert_eq!((value, written), (bias, 8));
            value = 0;
            assert_eq!(get(0, &raw mut value, 4, &raw mut written), SUCCESS);
            assert_eq!((value, written), (68, 4), "CUBLAS_COMPUTE_32F");
            assert_eq!(get(7, &raw mut value, 4, std::ptr::null_mut()), SUCCESS);
            assert_eq!(value, 1, "CUBLASLT_EPILOGUE_DEFAULT, which nobody has set");
            assert_eq!(get(16, &raw mut value, 4, &raw mut written), INVALID_VALUE);
        }
    }
}
