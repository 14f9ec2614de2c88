// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that takes the place of freed memory.

use std::env;
use std::ffi::c_void;
use std::process::Command;
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use crate::cu::{self, cu};
use crate::devices::{CHILD, assert_ran};

const OUT_OF_MEMORY: i32 = 2;

/// CU_POINTER_ATTRIBUTE_BUFFER_ID
const BUFFER_ID: u32 = 7;
/// CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY
const READ_MOSTLY: u32 = 1;

#[test]
fn memory_at_a_used_address_is_another_one() {
    cu::use_primary_context();
    let mut ids = Vec::new();
    // Other tests allocate, too: some rounds get the address of the one before.
    for round in 0..20 {
        let (mut ptr, mut id, mut read_mostly) = (0, 0_u64, 9_u32);
        assert_eq!(cu!(cuMemAllocManaged(&mut ptr, 4096, 1)), 0);
        assert_eq!(cu!(cuPointerGetAttribute((&raw mut id).cast(), BUFFER_ID, ptr)), 0);
        assert!(!ids.contains(&id), "{id} in {ids:?}");
        ids.push(id);
        assert_eq!(cu!(cuMemRangeGetAttribute((&raw mut read_mostly).cast(), 4, READ_MOSTLY, ptr, 64)), 0);
        assert_eq!(read_mostly, 0, "round {round}");
        assert_eq!(cu!(cuMemAdvise(ptr, 64, READ_MOSTLY, 0)), 0);
        assert_eq!(cu!(cuMemFree_v2(ptr)), 0);
    }
}

/// Programs allocate and free in a loop, and are ahead of the device.
#[test]
fn memory_that_streams_are_about_to_free_is_got_again() {
    unsafe extern "C" fn linger(_: *mut c_void) {
        thread::sleep(Duration::from_millis(5));
    }
    if env::var_os(CHILD).is_none() {
        return assert_ran("memory::memory_that_streams_are_about_to_free_is_got_again");
    }
    cu::use_primary_context();
    let mut streams = [null_mut(); 2];
    for stream in &mut streams {
        assert_eq!(cu!(cuStreamCreate(stream, 1)), 0);
    }
    // The device has 1 GiB. In the second half, each stream gets the memory that the other one frees.
    for (round, bytes) in
        [300 << 20, 600 << 20].into_iter().flat_map(|bytes| (0..10).map(move |round| (round, bytes)))
    {
        let (stream, mut ptr) = (streams[round % 2], 0);
        assert_eq!(cu!(cuMemAllocAsync(&mut ptr, bytes, stream)), 0, "round {round}");
        assert_eq!(cu!(cuLaunchHostFunc(stream, Some(linger), null_mut())), 0);
        assert_eq!(cu!(cuMemsetD8Async(ptr, 1, 4096, stream)), 0);
        assert_eq!(cu!(cuMemFreeAsync(ptr, stream)), 0);
    }
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    assert_eq!(cu!(cuMemAllocAsync(&mut 0, 2 << 30, streams[0])), OUT_OF_MEMORY);
}

#[test]
fn copied_memory_counts_as_written() {
    use crate::cu::{function, launch, params};
    let name = "memory::copied_memory_counts_as_written";
    if env::var_os(CHILD).is_some() {
        let module = cu::load_module();
        let (mut from, mut to, count) = (0, 0, 32_i32);
        assert_eq!(cu!(cuMemAlloc_v2(&mut from, 256)), 0);
        assert_eq!(cu!(cuMemAlloc_v2(&mut to, 256)), 0);
        assert_eq!(cu!(cuMemcpyHtoD_v2(from, [1.0_f32; 16].as_ptr().cast(), 64)), 0);
        // The second half was not written.
        assert_eq!(launch(function(module, "scale"), 1, 32, 0, params![to, from, count]), 0);
        assert_eq!(cu!(cuCtxSynchronize()), 0);
        println!("second half at {:#x}", from + 64);
        return;
    }
    let arguments = [name, "--exact", "--nocapture", "--test-threads=1"];
    let settings = [(CHILD, "1"), ("CUDA_EMULATOR_CHECK", "init")];
    let output = Command::new(env::current_exe().unwrap()).args(arguments).envs(settings).output().unwrap();
    let (text, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}");
    let second = text.lines().find_map(|line| line.split("second half at ").nth(1)).unwrap();
    let first = log.lines().find(|line| line.contains("uninitialised")).unwrap();
    assert!(first.contains(&format!("uninitialised global memory is read at {second},")), "{log}");
}
