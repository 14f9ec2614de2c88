// SPDX-License-Identifier: Apache-2.0 OR MIT

//! NCCL functions that are not only forwarded. Some call other functions for each of several devices, and some are
//! implemented in the guest. Each function has a second name that begins with `p`, which profilers call from their
//! wrappers.

use crate::bridge;
use crate::exports::NCCL;
use crate::forward_named;

/// `ncclResult_t`
type Status = i32;

const SUCCESS: Status = 0;
const CUDA_ERROR: Status = 1;
const INVALID_ARGUMENT: Status = 4;
const IN_PROGRESS: Status = 7;
/// `NCCL_SPLIT_NOCOLOR`
const NO_COLOR: i32 = -1;
/// `NCCL_UNIQUE_ID_BYTES`
const ID_BYTES: usize = 128;
/// `ncclScalarDevice`
const IN_DEVICE_MEMORY: i32 = 0;

/// Bytes per element of an `ncclDataType_t`.
fn bytes_of(data_type: i32) -> Option<usize> {
    Some(match data_type {
        // int8, uint8, float8e4m3, float8e5m2
        0 | 1 | 10 | 11 => 1,
        // float16, bfloat16
        6 | 9 => 2,
        // int32, uint32, float32
        2 | 3 | 7 => 4,
        // int64, uint64, float64
        4 | 5 | 8 => 8,
        _ => return None,
    })
}

/// # Safety
///
/// The contract of NVIDIA's `ncclCommInitAll`.
unsafe fn init_all(comms: *mut u64, count: i32, devices: *const i32) -> Status {
    if comms.is_null() || count < 1 {
        return INVALID_ARGUMENT;
    }
    let mut id = [0_u8; ID_BYTES];
    // SAFETY: `id` is a local of that size.
    let mut status = unsafe { forward_named(&NCCL, "ncclGetUniqueId", &[&raw mut id as u64]) };
    if status != SUCCESS {
        return status;
    }
    // SAFETY: it has no arguments.
    status = unsafe { forward_named(&NCCL, "ncclGroupStart", &[]) };
    if status != SUCCESS {
        return status;
    }
    for rank in 0..count {
        // SAFETY: not null, so a device for each rank, as NVIDIA's function demands.
        let device = if devices.is_null() { rank } else { unsafe { *devices.add(rank as usize) } };
        let made = bridge::on_device(device, || {
            // SAFETY: `comms` has a place for each communicator, as NVIDIA's function demands; `id` is a local of
            // that size.
            unsafe {
                let place = comms.add(rank as usize) as u64;
                forward_named(
                    &NCCL,
                    "ncclCommInitRank",
                    &[place, count as u64, &raw const id as u64, rank as u64],
                )
            }
        });
        status = made.unwrap_or(CUDA_ERROR);
        if status != SUCCESS {
            break;
        }
    }
    // SAFETY: it has no arguments. A group that was begun is ended in any case.
    let ended = unsafe { forward_named(&NCCL, "ncclGroupEnd", &[]) };
    if status == SUCCESS { ended } else { status }
}

/// # Safety
///
/// The contract of NVIDIA's `ncclCommSplit`.
unsafe fn split(name: &str, comm: u64, color: i32, key: i32, place: *mut u64, config: u64) -> Status {
    let arguments = [comm, color as u64, key as u64, place as u64, config];
    // SAFETY: the arguments are those of `ncclCommSplit` by this function's contract.
    let status = unsafe { forward_named(&NCCL, name, &arguments) };
    if color == NO_COLOR && matches!(status, SUCCESS | IN_PROGRESS) {
        // SAFETY: null, or a place for a handle, as NVIDIA's function demands.
        if let Some(place) = unsafe { place.as_mut() } {
            *place = 0;
        }
    }
    status
}

/// # Safety
///
/// The contract of NVIDIA's `ncclRedOpCreatePreMulSum`.
unsafe fn pre_mul_sum(
    name: &str,
    op: u64,
    scalar: *const u8,
    data_type: i32,
    residence: i32,
    comm: u64,
) -> Status {
    let mut value = [0_u8; 8];
    let mut address = scalar as u64;
    if residence != IN_DEVICE_MEMORY && !scalar.is_null() {
        let Some(bytes) = bytes_of(data_type) else { return INVALID_ARGUMENT };
        // SAFETY: not null, so an element of the type, as NVIDIA's function demands.
        unsafe { std::ptr::copy_nonoverlapping(scalar, value.as_mut_ptr(), bytes) };
        address = value.as_ptr() as u64;
    }
    // SAFETY: the arguments are those of `ncclRedOpCreatePreMulSum` by this function's contract; `value` lives until
    // the call returns.
    unsafe { forward_named(&NCCL, name, &[op, address, data_type as u64, residence as u64, comm]) }
}

/// # Safety
///
/// `place` is null or has room for a number.
unsafe fn device_of(comm: u64, place: *mut i32) -> Status {
    // SAFETY: null, or room for a number by this function's contract.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_ARGUMENT };
    match NCCL.state(comm).birth.checked_sub(1) {
        Some(device) => *place = device as i32,
        None => return INVALID_ARGUMENT,
    }
    SUCCESS
}

/// # Safety
///
/// `place` is null or has room for an address.
unsafe fn allocate(place: *mut u64, bytes: usize) -> Status {
    // SAFETY: null, or room for an address by this function's contract.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_ARGUMENT };
    if bytes == 0 {
        return INVALID_ARGUMENT;
    }
    match bridge::allocate(bytes) {
        Ok(address) => *place = address,
        Err(_) => return CUDA_ERROR,
    }
    SUCCESS
}

fn free(address: u64) -> Status {
    if address == 0 || bridge::free(address).is_ok() { SUCCESS } else { CUDA_ERROR }
}

/// Defines both names of the functions above.
macro_rules! exported {
    ($($init_all:ident $split:ident $pre_mul_sum:ident $device:ident $allocate:ident $free:ident;)*) => { $(
        /// Creates a communicator for each of several devices.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init_all(comms: *mut u64, count: i32, devices: *const i32) -> Status {
            // SAFETY: the parameters are those of `ncclCommInitAll`, whose contract `init_all` has.
            unsafe { init_all(comms, count, devices) }
        }

        /// Creates a communicator from some ranks of another one.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $split(comm: u64, color: i32, key: i32, place: *mut u64, config: u64) -> Status {
            // SAFETY: the parameters are those of `ncclCommSplit`, whose contract `split` has.
            unsafe { split(stringify!($split), comm, color, key, place, config) }
        }

        /// Creates an operator that multiplies by a scalar before it adds.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pre_mul_sum(
            op: u64, scalar: *const u8, data_type: i32, residence: i32, comm: u64,
        ) -> Status {
            // SAFETY: the parameters are those of `ncclRedOpCreatePreMulSum`, whose contract `pre_mul_sum` has.
            unsafe { pre_mul_sum(stringify!($pre_mul_sum), op, scalar, data_type, residence, comm) }
        }

        /// Returns the device of a communicator.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $device(comm: u64, place: *mut i32) -> Status {
            // SAFETY: NVIDIA's function demands of its caller room for a number, or null.
            unsafe { device_of(comm, place) }
        }

        /// Allocates device memory.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $allocate(place: *mut u64, bytes: usize) -> Status {
            // SAFETY: NVIDIA's function demands of its caller room for an address, or null.
            unsafe { allocate(place, bytes) }
        }

        /// Frees device memory.
        #[unsafe(no_mangle)]
        pub extern "C" fn $free(address: u64) -> Status {
            free(address)
        }
    )* };
}

exported! {
    ncclCommInitAll ncclCommSplit ncclRedOpCreatePreMulSum ncclCommCuDevice ncclMemAlloc ncclMemFree;
    pncclCommInitAll pncclCommSplit pncclRedOpCreatePreMulSum pncclCommCuDevice pncclMemAlloc pncclMemFree;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_communicator_has_the_device_that_it_was_made_on() {
        let mut device = -1;
        // SAFETY: the place is a local, or null.
        unsafe {
            assert_eq!(
                ncclCommCuDevice(0x7000_0000_0010, &raw mut device),
                INVALID_ARGUMENT,
                "there is none"
            );
            assert_eq!(ncclCommCuDevice(0x7000_0000_0010, std::ptr::null_mut()), INVALID_ARGUMENT);
        }
        assert_eq!(device, -1);
    }

    #[test]
    fn sizes_of_types_are_those_of_nccl() {
        let sizes: Vec<usize> = (0..12).filter_map(bytes_of).collect();
        assert_eq!(sizes, [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1]);
        assert_eq!(bytes_of(12), None);
    }
}
