// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory and events that two processes share: the second one is this program once more.

use std::ffi::c_uint;
use std::process::Command;
use std::ptr::null_mut;

use cuda_abi::CUipcMemHandle;

use crate::cu::{self, cu};

const INVALID_VALUE: i32 = 1;
const INVALID_CONTEXT: i32 = 201;
const MAP_FAILED: i32 = 205;
const INVALID_HANDLE: i32 = 400;
const NOT_READY: i32 = 600;
/// CU_EVENT_DISABLE_TIMING, CU_EVENT_INTERPROCESS
const SHARED_EVENT: c_uint = 6;
const COUNT: usize = 3000;
/// The variable that marks the second process.
const HANDLES: &str = "CUDA_EMULATOR_TEST_HANDLES";

fn text(handle: CUipcMemHandle) -> String {
    handle.reserved.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn handle(text: &str) -> CUipcMemHandle {
    let byte = |index: usize| u8::from_str_radix(&text[2 * index..][..2], 16).unwrap();
    CUipcMemHandle { reserved: std::array::from_fn(byte) }
}

fn values(base: u32) -> Vec<u32> {
    (0..COUNT as u32).map(|index| base + index).collect()
}

/// The second process's part. Does nothing in the first one.
#[test]
fn second_process() {
    let Ok(handles) = std::env::var(HANDLES) else { return };
    let handles: Vec<CUipcMemHandle> = handles.split(' ').map(handle).collect();
    cu::use_primary_context();
    let (mut ptr, mut again) = (0, 0);
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut ptr, handles[0], 1)), 0);
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut again, handles[0], 1)), 0);
    assert_eq!(ptr, again);
    assert_eq!(cu::download::<u32>(ptr, COUNT), values(7));
    // Freed by the first process, or never offered.
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut again, handles[2], 1)), MAP_FAILED);
    let mut forged = handles[0];
    forged.reserved[30] ^= 1;
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut again, forged, 1)), MAP_FAILED);
    // The bytes after it, or more of them, do not belong to the second process.
    let mut longer = handles[0];
    longer.reserved[40..48].copy_from_slice(&(1_u64 << 20).to_ne_bytes());
    assert_eq!(cu!(cuMemFree_v2(ptr)), INVALID_VALUE);
    let mut one = 0_u32;
    let out = std::ptr::from_mut(&mut one).cast();
    assert_eq!(cu!(cuMemcpyDtoH_v2(out, ptr + 4 * COUNT as u64, 4)), INVALID_VALUE);

    let (mut event, mut stream) = (null_mut(), null_mut());
    assert_eq!(cu!(cuIpcOpenEventHandle(&mut event, handles[1])), 0);
    assert_eq!(cu!(cuStreamCreate(&mut stream, 1)), 0);
    // Recorded by the first process after a wait that has not ended.
    assert_eq!(cu!(cuEventQuery(event)), NOT_READY);
    assert_eq!(cu!(cuStreamWaitEvent(stream, event, 0)), 0);
    assert_eq!(cu!(cuMemsetD32Async(ptr + 8, 5, 1, stream)), 0);
    assert_eq!(cu!(cuStreamQuery(stream)), NOT_READY);
    // The first process waits for this word.
    assert_eq!(cu!(cuMemcpyHtoD_v2(ptr + 4, std::ptr::from_ref(&1_u32).cast(), 4)), 0);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(cu::download::<u32>(ptr, 3), [7, 1, 5]);
    assert_eq!(cu!(cuEventRecord(event, stream)), 0);
    assert_eq!(cu!(cuEventSynchronize(event)), 0);
    assert_eq!(cu!(cuIpcCloseMemHandle(ptr)), 0);
    assert_eq!(cu::download::<u32>(ptr, 1), [7]);
    assert_eq!(cu!(cuIpcCloseMemHandle(ptr)), 0);
    assert_eq!(cu!(cuIpcCloseMemHandle(ptr)), INVALID_VALUE);
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut again, longer, 1)), MAP_FAILED);
}

#[test]
fn two_processes_share_memory_and_events() {
    cu::use_primary_context();
    let (mut memory, mut removed) =
        (CUipcMemHandle { reserved: [0; 64] }, CUipcMemHandle { reserved: [0; 64] });
    let ptr = cu::upload(&values(7));
    let freed = cu::upload(&values(0));
    assert_eq!(cu!(cuIpcGetMemHandle(&mut memory, ptr)), 0);
    assert_eq!(cu!(cuIpcGetMemHandle(&mut removed, freed)), 0);
    assert_eq!(cu!(cuMemFree_v2(freed)), 0);
    assert_eq!(cu::download::<u32>(ptr, COUNT), values(7));

    let (mut event, mut plain, mut shared) = (null_mut(), null_mut(), CUipcMemHandle { reserved: [0; 64] });
    assert_eq!(cu!(cuEventCreate(&mut event, 4)), INVALID_VALUE);
    assert_eq!(cu!(cuEventCreate(&mut event, SHARED_EVENT)), 0);
    assert_eq!(cu!(cuEventCreate(&mut plain, 2)), 0);
    assert_eq!(cu!(cuIpcGetEventHandle(&mut shared, plain)), INVALID_HANDLE);
    assert_eq!(cu!(cuIpcGetEventHandle(&mut shared, event)), 0);

    // A process does not open its own handles, and no others than handles.
    let (mut other, mut nothing) = (0, null_mut());
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut other, memory, 1)), INVALID_CONTEXT);
    assert_eq!(
        cu!(cuIpcOpenMemHandle_v2(&mut other, CUipcMemHandle { reserved: [3; 64] }, 1)),
        INVALID_VALUE
    );
    assert_eq!(cu!(cuIpcOpenEventHandle(&mut nothing, CUipcMemHandle { reserved: [3; 64] })), MAP_FAILED);
    assert_eq!(cu!(cuIpcGetMemHandle(&mut removed, 0x1234)), INVALID_VALUE);

    let mut stream = null_mut();
    assert_eq!(cu!(cuStreamCreate(&mut stream, 1)), 0);
    // CU_STREAM_WAIT_VALUE_EQ: the second process writes a 1 there.
    assert_eq!(cu!(cuStreamWaitValue32_v2(stream, ptr + 4, 1, 1)), 0);
    assert_eq!(cu!(cuEventRecord(event, stream)), 0);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ipc::second_process", "--nocapture"])
        .env(HANDLES, [memory, shared, removed].map(text).join(" "))
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(cu!(cuEventSynchronize(event)), 0);
    assert_eq!(cu::download::<u32>(ptr, 4), [7, 1, 5, 10]);
    assert_eq!(cu!(cuMemFree_v2(ptr)), 0);
}
