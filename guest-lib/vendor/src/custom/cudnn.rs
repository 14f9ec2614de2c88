// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuDNN's attributes, whose arrays may be shorter than programs say; and its variant packs. Their addresses are
//! device addresses, except those of tensors "by value": these point to a number in host memory, which the library
//! reads when it executes. The worker cannot access the program's memory, so the number is copied to pinned memory,
//! which has the same address there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use cuda_library_rows::block::{MAX_BYTES, SLOT, attribute_type_bytes};
use smallvec::SmallVec;

use crate::bridge;
use crate::exports::CUDNN;

/// `CUDNN_TYPE_VOID_PTR`
const ADDRESSES: i32 = 6;
/// `CUDNN_TYPE_BACKEND_DESCRIPTOR`
const DESCRIPTORS: i32 = 15;
/// Maximum number of elements of an attribute that are examined.
const MAX_ELEMENTS: i64 = 1 << 16;
/// Numbers that are stored at once. A new number replaces the oldest, whose call has been executed by then: fewer calls
/// than this are outstanding.
const SLOTS: usize = 1 << 13;
const SLOT_BYTES: usize = 16;

/// Pinned memory for numbers; 0 if its allocation failed.
static NUMBERS: LazyLock<usize> = LazyLock::new(|| bridge::pinned(SLOTS * SLOT_BYTES).unwrap_or(0));
/// The row of cudnnBackendSetAttribute, which programs call for each execution.
static SET_ATTRIBUTE: LazyLock<Option<usize>> = LazyLock::new(|| CUDNN.index("cudnnBackendSetAttribute"));
/// The row of cudnnBackendGetAttribute.
static GET_ATTRIBUTE: LazyLock<Option<usize>> = LazyLock::new(|| CUDNN.index("cudnnBackendGetAttribute"));
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Sets an attribute of a descriptor.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendSetAttribute(
    descriptor: u64,
    name: i32,
    kind: i32,
    count: i64,
    elements: *const u64,
) -> i32 {
    let mut addresses: SmallVec<[u64; 16]> = SmallVec::new();
    let mut place = elements as u64;
    if kind == ADDRESSES && !elements.is_null() && (1..=MAX_ELEMENTS).contains(&count) {
        // SAFETY: not null, and NVIDIA's function demands `count` addresses of its caller. Addresses of this kind are null, of
        // memory that CUDA knows or of numbers.
        addresses.extend((0..count as usize).map(|index| unsafe { reachable(elements.add(index).read()) }));
        place = addresses.as_ptr() as u64;
    }
    let Some(index) = *SET_ATTRIBUTE else { return NOT_SUPPORTED };
    let slots = [descriptor, name as u64, kind as u64, count as u64, place];
    // SAFETY: the slots are the arguments of this function, whose caller keeps the contract of NVIDIA's; `addresses`
    // lives until the call returns.
    unsafe { crate::forward(&CUDNN, index, &slots) as i32 }
}

/// Returns the elements of an attribute. NVIDIA's function writes those that exist. Programs of its C++ library have room
/// for these only, although they request as many as there can be, so the rest of the array must not be touched.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendGetAttribute(
    descriptor: u64,
    name: i32,
    kind: i32,
    requested: i64,
    count: *mut i64,
    elements: *mut u8,
) -> i32 {
    let (mut copy, mut place, mut existing) = (SmallVec::<[u64; 32]>::new(), elements as u64, 0_i64);
    let each = attribute_type_bytes(kind.into()).unwrap_or(0);
    let bytes =
        usize::try_from(requested).ok().and_then(|requested| requested.checked_mul(each)).unwrap_or(0);
    // The row refuses what is longer.
    if !elements.is_null() && (1..=MAX_BYTES).contains(&bytes) {
        copy.resize(bytes.div_ceil(SLOT), 0);
        if kind == DESCRIPTORS {
            // SAFETY: not null, and the program passes so many descriptors, which the function fills in. The copy is as
            // long.
            unsafe { std::ptr::copy_nonoverlapping(elements, copy.as_mut_ptr().cast(), bytes) };
        }
        place = copy.as_mut_ptr() as u64;
    }
    let Some(index) = *GET_ATTRIBUTE else { return NOT_SUPPORTED };
    let slots = [descriptor, name as u64, kind as u64, requested as u64, &raw mut existing as u64, place];
    // SAFETY: the slots are the arguments of this function, whose caller keeps the contract of NVIDIA's, but for two places
    // that are locals of the sizes in the row.
    let status = unsafe { crate::forward(&CUDNN, index, &slots) as i32 };
    if status == 0 {
        if !copy.is_empty() {
            let written = existing.clamp(0, requested) as usize * each;
            // SAFETY: the program has room for the elements that exist, of those that it requested. The copy has all that
            // it requested.
            unsafe { std::ptr::copy_nonoverlapping(copy.as_ptr().cast(), elements, written) };
        }
        // SAFETY: null, or a place for a number by the contract of NVIDIA's function.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = existing;
        }
    }
    status
}

/// Returns an address at which the worker finds the data that the program has at `address`.
///
/// # Safety
///
/// `address` is null, or points to memory that CUDA knows, or to a number.
unsafe fn reachable(address: u64) -> u64 {
    if address == 0 || *NUMBERS == 0 || bridge::is_known(address) {
        return address;
    }
    let slot = *NUMBERS + NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS * SLOT_BYTES;
    // A number is aligned to its size, so at least this many bytes are readable.
    let bytes = 1 << address.trailing_zeros().min(3);
    // SAFETY: an address that CUDA does not know is that of a number by this function's contract; the slot is within
    // the pinned memory, and no call under way reads it (see `SLOTS`).
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, slot as *mut u8, bytes) };
    slot as u64
}

/// Bytes per element of a `cudnnDataType_t`, for types that may have padding.
fn bytes_of(data_type: i32) -> usize {
    match data_type {
        // DOUBLE, INT64
        1 | 10 => 8,
        // HALF, BFLOAT16
        2 | 9 => 2,
        // INT8, UINT8, BOOLEAN, FP8_E4M3, FP8_E5M2
        3 | 6 | 11..=13 => 1,
        _ => 4,
    }
}

/// Calls a getter of a descriptor. The last argument points to a padding value of the descriptor's data type.
///
/// # Safety
///
/// The arguments are those of the function `name`; the second points to the data type.
unsafe fn with_padding<const COUNT: usize>(name: &str, mut arguments: [u64; COUNT]) -> i32 {
    let (place, mut value) = (arguments[COUNT - 1] as *mut u8, [0_u8; 8]);
    if !place.is_null() {
        arguments[COUNT - 1] = value.as_mut_ptr() as u64;
    }
    // SAFETY: the arguments are those of the function by this function's contract, but for the last one: a local as
    // long as the row says.
    let status = unsafe { crate::forward_named(&CUDNN, name, &arguments) };
    // SAFETY: the second argument is null or the place of the type by this function's contract.
    let data_type = unsafe { (arguments[1] as *const i32).as_ref() };
    if let (0, false, Some(data_type)) = (status, place.is_null(), data_type) {
        // SAFETY: the last argument is not null, so it has room for a value of that type, as NVIDIA's function
        // demands.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), place, bytes_of(*data_type)) };
    }
    status
}

/// Returns the parameters of a sequence descriptor for recurrent networks.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetRNNDataDescriptor(
    descriptor: u64,
    data_type: u64,
    layout: u64,
    max_length: u64,
    batch: u64,
    vector: u64,
    requested: i32,
    lengths: u64,
    padding: u64,
) -> i32 {
    let arguments =
        [descriptor, data_type, layout, max_length, batch, vector, requested as u64, lengths, padding];
    // SAFETY: the arguments are those of the function of this name, the second the place of the type.
    unsafe { with_padding("cudnnGetRNNDataDescriptor", arguments) }
}

/// Returns the parameters of a sequence descriptor for attention.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetSeqDataDescriptor(
    descriptor: u64,
    data_type: u64,
    dimensions: u64,
    requested: i32,
    lengths: u64,
    axes: u64,
    sequences: u64,
    sequences_requested: u64,
    sequence_lengths: u64,
    padding: u64,
) -> i32 {
    let (first, second) = (requested as u64, sequences_requested);
    let arguments = [
        descriptor,
        data_type,
        dimensions,
        first,
        lengths,
        axes,
        sequences,
        second,
        sequence_lengths,
        padding,
    ];
    // SAFETY: the arguments are those of the function of this name, the second the place of the type.
    unsafe { with_padding("cudnnGetSeqDataDescriptor", arguments) }
}

/// `CUDNN_STATUS_NOT_SUPPORTED`
const NOT_SUPPORTED: i32 = 3000;
/// `CUDNN_STATUS_BAD_PARAM_NULL_POINTER`
const NULL_POINTER: i32 = 2002;

/// The program's settings for messages: the mask, its data, and the function. This library emits no messages.
static CALLBACK: Mutex<(u32, usize, usize)> = Mutex::new((0, 0, 0));

/// Stores the program's callback, which is never called.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetCallback(mask: u32, data: usize, function: usize) -> i32 {
    *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner) = (mask, data, function);
    0
}

/// Returns the settings of [`cudnnSetCallback`].
///
/// # Safety
///
/// Each pointer is null or has room for its value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetCallback(mask: *mut u32, data: *mut usize, function: *mut usize) -> i32 {
    // SAFETY: each is null or has room for its value by this function's contract.
    let places = unsafe { (mask.as_mut(), data.as_mut(), function.as_mut()) };
    let (Some(mask), Some(data), Some(function)) = places else { return NULL_POINTER };
    (*mask, *data, *function) = *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callback_is_kept() {
        let (mut mask, mut data, mut function) = (0, 0, 0);
        cudnnSetCallback(7, 0x10, 0x20);
        // SAFETY: the places are locals, or null.
        unsafe {
            assert_eq!(cudnnGetCallback(&raw mut mask, &raw mut data, &raw mut function), 0);
            assert_eq!(
                cudnnGetCallback(std::ptr::null_mut(), &raw mut data, &raw mut function),
                NULL_POINTER
            );
        }
        assert_eq!((mask, data, function), (7, 0x10, 0x20));
    }
}
