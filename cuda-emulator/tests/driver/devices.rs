// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several emulated devices, as the environment describes them. Each test runs as a process of its own.

use std::env;
use std::ffi::CStr;
use std::process::{Command, Output};
use std::ptr::null_mut;

use cuda_abi::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation};

use crate::cu::{self, Opaque, cu, download, function, launch, params, upload};

/// The variable that marks a process of [`assert_ran`].
pub const CHILD: &str = "CUDA_EMULATOR_TEST_CHILD";
const ILLEGAL_ADDRESS: i32 = 700;

fn run(test: &str) -> Output {
    let settings = [
        (CHILD, "1"),
        ("CUDA_EMULATOR_DEVICES", "2"),
        ("CUDA_EMULATOR_NAME", "Old,New"),
        ("CUDA_EMULATOR_MEMORY", "1G,3G"),
        ("CUDA_EMULATOR_COMPUTE_CAPABILITY", "7.5,8.6"),
        ("CUDA_EMULATOR_MULTIPROCESSORS", "4,84"),
    ];
    let arguments = [test, "--exact", "--nocapture", "--test-threads=1"];
    Command::new(env::current_exe().unwrap()).args(arguments).envs(settings).output().unwrap()
}

/// Runs a test in a process of its own, with these devices.
pub fn assert_ran(test: &str) {
    let output = run(test);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a device's primary context current.
fn use_device(device: i32) -> Opaque {
    let mut context = null_mut();
    assert_eq!(cu!(cuInit(0)), 0);
    assert_eq!(cu!(cuDevicePrimaryCtxRetain(&mut context, device)), 0);
    assert_eq!(cu!(cuCtxSetCurrent(context)), 0);
    context
}

#[test]
fn each_device_is_as_described() {
    if env::var_os(CHILD).is_none() {
        return assert_ran("devices::each_device_is_as_described");
    }
    let mut count = 0;
    assert_eq!(cu!(cuInit(0)), 0);
    assert_eq!(cu!(cuDeviceGetCount(&mut count)), 0);
    assert_eq!(count, 2);
    for (device, name, gigabytes, attributes) in
        [(0, c"Old", 1, [7, 5, 4, 1024, 64 << 10]), (1, c"New", 3, [8, 6, 84, 1536, 99 << 10])]
    {
        let (mut text, mut bytes) = ([0; 16], 0);
        assert_eq!(cu!(cuDeviceGetName(text.as_mut_ptr(), 16, device)), 0);
        // SAFETY: the call ended it with NUL.
        assert_eq!(unsafe { CStr::from_ptr(text.as_ptr()) }, name);
        assert_eq!(cu!(cuDeviceTotalMem_v2(&mut bytes, device)), 0);
        assert_eq!(bytes, gigabytes << 30);
        for (number, expected) in [75, 76, 16, 39, 97].into_iter().zip(attributes) {
            let mut value = 0;
            assert_eq!(cu!(cuDeviceGetAttribute(&mut value, number, device)), 0);
            assert_eq!(value, expected, "attribute {number} of device {device}");
        }
        let (mut ptr, context) = (0, use_device(device));
        assert_eq!(cu!(cuMemAlloc_v2(&mut ptr, (gigabytes << 30) + 1)), 2);
        assert!(!context.is_null());
    }
    // PTX for sm_80 is too new for the first one.
    let ptx = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n\0";
    let mut module = null_mut();
    use_device(0);
    assert_eq!(cu!(cuModuleLoadData(&mut module, ptx.as_ptr().cast())), 218);
    use_device(1);
    assert_eq!(cu!(cuModuleLoadData(&mut module, ptx.as_ptr().cast())), 0);
    // CUB chooses the shape of a launch by the architecture that the kernel was compiled for (PTX_VERSION), which is
    // neither the version of the language nor the device's.
    for (attribute, expected) in [(5, 80), (6, 86)] {
        let mut value = 0;
        assert_eq!(cu!(cuFuncGetAttribute(&mut value, attribute, function(module, "nothing"))), 0);
        assert_eq!(value, expected);
    }
}

#[test]
fn peers_reach_each_other_when_they_may() {
    if env::var_os(CHILD).is_none() {
        return assert_ran("devices::peers_reach_each_other_when_they_may");
    }
    let (second, mut can) = (use_device(1), 0);
    let there = upload(&[0i32; 4]);
    let first = use_device(0);
    let here = upload(&[7i32; 4]);
    assert_eq!(cu!(cuDeviceCanAccessPeer(&mut can, 0, 1)), 0);
    assert_eq!(can, 1);
    assert_eq!(cu!(cuDeviceCanAccessPeer(&mut can, 1, 1)), 0);
    assert_eq!(can, 0);
    assert_eq!(cu!(cuMemcpyPeer(there, second, here, first, 16)), 0);
    assert_eq!(download::<i32>(there, 4), [7; 4]);
    assert_eq!(cu!(cuMemsetD32_v2(here, 8, 4)), 0);
    assert_eq!(cu!(cuCtxSetCurrent(second)), 0);
    // Comes after the work of the other device.
    assert_eq!(cu!(cuMemcpyDtoD_v2(there, here, 16)), 0);
    assert_eq!(download::<i32>(there, 4), [8; 4]);
    assert_eq!(cu!(cuCtxSetCurrent(first)), 0);
    let mut module = null_mut();
    assert_eq!(cu!(cuModuleLoadData(&mut module, cu::PTX.as_ptr().cast())), 0);
    let store = function(module, "store");
    assert_eq!(cu!(cuCtxDisablePeerAccess(second)), 705);
    assert_eq!(cu!(cuCtxEnablePeerAccess(first, 0)), 101);
    assert_eq!(cu!(cuCtxEnablePeerAccess(second, 1)), 1);
    assert_eq!(cu!(cuCtxEnablePeerAccess(second, 0)), 0);
    assert_eq!(cu!(cuCtxEnablePeerAccess(second, 0)), 704);
    assert_eq!(launch(store, 1, 1, 0, params![there]), 0);
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    assert_eq!(download::<i32>(there, 2), [1, 8]);
    assert_eq!(cu!(cuCtxDisablePeerAccess(second)), 0);
    assert_eq!(launch(store, 1, 1, 0, params![there]), 0);
    assert_eq!(cu!(cuCtxSynchronize()), ILLEGAL_ADDRESS);
    // The other device is as well as before.
    use_device(1);
    assert_eq!(cu!(cuCtxSynchronize()), 0);
}

/// As on hardware (driver 580): plain copies look at the access of the current context's device, those between contexts at each one's.
#[test]
fn mapped_memory_is_copied_by_those_that_have_access() {
    if env::var_os(CHILD).is_none() {
        return assert_ran("devices::mapped_memory_is_copied_by_those_that_have_access");
    }
    const BYTES: usize = 2 << 20;
    let (second, first) = (use_device(1), use_device(0));
    let here = upload(&[7i32; 4]);
    let (mut handle, mut there) = (0, 0);
    let location = CUmemLocation { kind: 1, id: 1 };
    let prop = CUmemAllocationProp { kind: 1, handle_types: 0, location, ..CUmemAllocationProp::ZERO };
    assert_eq!(cu!(cuMemCreate(&mut handle, BYTES, &prop, 0)), 0);
    assert_eq!(cu!(cuMemAddressReserve(&mut there, BYTES, 0, 0, 0)), 0);
    assert_eq!(cu!(cuMemMap(there, BYTES, 0, handle, 0)), 0);
    assert_eq!(cu!(cuMemSetAccess(there, BYTES, &CUmemAccessDesc { location, flags: 3 }, 1)), 0);
    let mut word = 5_i32;
    let copies = |word: &mut i32| {
        [
            cu!(cuMemcpyHtoD_v2(there, std::ptr::from_ref(word).cast(), 4)),
            cu!(cuMemcpyDtoH_v2(std::ptr::from_mut(word).cast(), there, 4)),
            cu!(cuMemcpyDtoD_v2(there, here, 4)),
            cu!(cuMemcpyDtoD_v2(there, there + 8, 4)),
        ]
    };
    assert_eq!(copies(&mut word), [1; 4]);
    assert_eq!(cu!(cuMemcpyPeer(there, first, here, first, 16)), 1, "memory of the second one");
    assert_eq!(cu!(cuMemcpyPeer(there, second, here, first, 16)), 0);
    // Peer access is for the driver's own memory.
    assert_eq!(cu!(cuCtxEnablePeerAccess(second, 0)), 0);
    assert_eq!(copies(&mut word), [1; 4]);
    let access = CUmemAccessDesc { location: CUmemLocation { kind: 1, id: 0 }, flags: 3 };
    assert_eq!(cu!(cuMemSetAccess(there, BYTES, &access, 1)), 0);
    assert_eq!(copies(&mut word), [0; 4]);
    assert_eq!(word, 5);
}
