// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Addresses in cuDNN's variant packs, which cuDNN follows in this process.

use virtio_cuda_protocol::cuda::FIRST_HANDLE;

use super::super::PRESENT;
use super::super::calls::{CALLS, Calls};

/// `CUDNN_STATUS_BAD_PARAM`
const WRONG: u64 = 2000;
const PACK: u64 = FIRST_HANDLE;
/// `CUDNN_TYPE_INT64`, `CUDNN_TYPE_DOUBLE`, `CUDNN_TYPE_VOID_PTR`
const INT64: u64 = 3;
const DOUBLE: u64 = 5;
const ADDRESSES: u64 = 6;

extern "C" fn create(_: i32, place: *mut u64) -> i32 {
    // SAFETY: the worker gives a place for a handle.
    unsafe { place.write(0x5000) };
    0
}

#[test]
fn no_address_of_the_worker_is_in_a_variant_pack() {
    let function =
        |name: &str| (name == "cudnnBackendCreateDescriptor").then_some(create as *const () as usize);
    let mut calls = Calls::of(&["cudnn"], function);
    calls.call("cudnnBackendCreateDescriptor", &[16, PACK], &[]).expect("a descriptor");
    let secret = 0x5ec2e7_u64;
    let mut set = |name: u64, kind: u64, elements: &[u64]| {
        CALLS.set(0);
        let slots = [PACK, name, kind, elements.len() as u64, PRESENT];
        let status = calls.call("cudnnBackendSetAttribute", &slots, elements).map(|(status, _)| status);
        (status, CALLS.get())
    };
    assert_eq!(set(1001, ADDRESSES, &[0, 0]), (Ok(0), 1));
    for address in [&raw const secret as u64, create as *const () as u64, u64::MAX] {
        // DATA_POINTERS, INTERMEDIATES, WORKSPACE
        for name in 1001..=1003 {
            assert_eq!(set(name, ADDRESSES, &[0, address]), (Ok(WRONG), 0), "{name}");
            assert_eq!(set(name, INT64, &[0, 0]), (Ok(WRONG), 0), "{name}");
            assert_eq!(set(name, DOUBLE, &[address]), (Ok(WRONG), 0), "{name}");
        }
    }
    // CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS
    assert_eq!(set(1000, INT64, &[7, 8]), (Ok(0), 1));
}
