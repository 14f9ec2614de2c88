// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A driver without a device, for fuzz targets. Every function succeeds unless it was scripted to fail, and returns
//! addresses and handles that were never returned before. It reads or writes every byte of host memory that it gets.
//! So a call that passes a wrong address or length to the driver ends the process.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use vhost_cuda_common::files::memory_file;
use virtio_cuda_protocol::cuda::{RESERVATIONS_BASE, WINDOW_BASE, WINDOW_BYTES};

use super::{CUgraph, CUgraphNode};

const RELAXED: Ordering = Ordering::Relaxed;
/// The start of device memory. The process has no mapping there.
pub const DEVICE_BASE: u64 = 0x0300_0000_0000;
/// The start of addresses that each session has for placed memory. The process has no mapping there, either.
const PLACED_BASE: u64 = RESERVATIONS_BASE + WINDOW_BYTES;
/// The distance in bytes between two allocations, and so the maximum length of one.
pub const DEVICE_STEP: u64 = 1 << 32;
const FIRST_HANDLE: u64 = 0x0200_0000_0000;
const OUT_OF_MEMORY: c_int = 2;
const INVALID_VALUE: c_int = 1;
const NOT_SUPPORTED: c_int = 801;
/// The number of devices of the driver.
pub const DEVICES: u32 = 2;

static ADDRESSES: AtomicU64 = AtomicU64::new(0);
static HANDLES: AtomicU64 = AtomicU64::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);
static FAIL_IN: AtomicU32 = AtomicU32::new(0);
static FAILURE: AtomicU32 = AtomicU32::new(0);
static CURRENT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static CAPTURES: AtomicU64 = AtomicU64::new(0);
/// The first words of the arguments of the latest call.
static WORDS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static IMAGE: [u8; 64] = [0; 64];
/// The addresses that reservations have asked for, and got.
static WANTED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Resets the state, so that the same calls get the same results.
pub fn reset() {
    for counter in [&ADDRESSES, &HANDLES, &SEED, &CAPTURES] {
        counter.store(0, RELAXED);
    }
    WANTED.lock().clear();
    CURRENT.store(std::ptr::null_mut(), RELAXED);
    script(0, 0, 0);
}

/// Derives returned numbers from `seed`; the `fail_in`th call from now on returns `failure` (0: no call fails).
pub fn script(seed: u64, fail_in: u32, failure: u32) {
    SEED.store(seed, RELAXED);
    FAIL_IN.store(fail_in, RELAXED);
    FAILURE.store(failure.max(1), RELAXED);
}

/// Returns the number of calls until one fails.
#[cfg(test)]
pub fn calls_until_failure() -> u32 {
    FAIL_IN.load(RELAXED)
}

fn next_handle() -> u64 {
    FIRST_HANDLE + 64 * (HANDLES.fetch_add(1, RELAXED) + 1)
}

fn next_address() -> u64 {
    loop {
        let next = DEVICE_BASE + DEVICE_STEP * ADDRESSES.fetch_add(1, RELAXED);
        if !WANTED.lock().contains(&next) {
            return next;
        }
    }
}

/// Returns an address that a reservation asks for, if it was never returned before, or if it is of placed memory.
fn wanted_address(wanted: u64) -> Option<u64> {
    if wanted == PLACED_BASE {
        return Some(wanted);
    }
    let index = wanted.checked_sub(DEVICE_BASE)? / DEVICE_STEP;
    let is_new =
        wanted.is_multiple_of(DEVICE_STEP) && wanted < WINDOW_BASE && index >= ADDRESSES.load(RELAXED);
    (is_new && WANTED.lock().insert(wanted)).then_some(wanted)
}

fn number() -> u64 {
    let next = SEED.load(RELAXED).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    SEED.store(next, RELAXED);
    next >> 33
}

/// Returns the first eight bytes of an argument.
pub(super) fn word<T>(argument: &T) -> u64 {
    let mut bytes = [0; 8];
    let length = size_of::<T>().min(8);
    // SAFETY: as many bytes as the argument has, and as the room has. Arguments are integers, addresses and arrays of bytes.
    unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(argument).cast(), bytes.as_mut_ptr(), length) };
    u64::from_le_bytes(bytes)
}

/// Writes a result of the type whose name is `of`.
///
/// # Safety
///
/// `place` must be valid for writing.
pub(super) unsafe fn fill<T>(function: &str, place: *mut T, of: &str) {
    let value = match (function, of) {
        ("cuDeviceGet", _) => WORDS[0].load(RELAXED),
        ("cuDeviceGetCount", _) => u64::from(DEVICES),
        ("cuDriverGetVersion", _) => 13_000,
        ("cuDeviceCanAccessPeer", _) => 1,
        ("cuDeviceGetAttribute", _) => 1 + number() % 64,
        ("cuCtxGetCurrent", _) => CURRENT.load(RELAXED) as u64,
        ("cuMemHostGetDevicePointer_v2", _) => WORDS[0].load(RELAXED),
        ("cuMemAllocPitch_v2", "usize") => WORDS[0].load(RELAXED).next_multiple_of(512),
        ("cuStreamIsCapturing", _) => u64::from(CAPTURES.load(RELAXED) > 0),
        ("cuFuncGetParamInfo" | "cuKernelGetParamInfo", _) => 8,
        ("cuModuleGetGlobal_v2" | "cuLibraryGetGlobal", "usize") => 64,
        ("cuLinkComplete", "usize") => IMAGE.len() as u64,
        ("cuLinkComplete", _) => IMAGE.as_ptr() as u64,
        ("cuFuncGetName" | "cuKernelGetName", _) => c"kernel".as_ptr() as u64,
        ("cuMemAddressReserve", _) => wanted_address(WORDS[2].load(RELAXED)).unwrap_or_else(next_address),
        (_, "CUdeviceptr") => next_address(),
        (_, "c_int" | "c_uint" | "CUdevice" | "CUmemAccess_flags") => number() % 5,
        (_, "usize" | "u64" | "c_ulonglong") => 4096 << (number() % 16),
        (_, "f32") => u64::from(1_f32.to_bits()),
        _ if size_of::<T>() == 8 => next_handle(),
        _ => return,
    };
    // SAFETY: `# Safety` promises that a `T` may be written to `place`. No more bytes are written than it has.
    unsafe {
        std::ptr::copy_nonoverlapping(
            value.to_le_bytes().as_ptr(),
            place.cast(),
            size_of::<T>().min(size_of::<u64>()),
        );
    }
}

/// Reads or writes host memory.
///
/// # Safety
///
/// As for the driver's functions, the caller owns the range. Device addresses are ignored.
unsafe fn touch(address: u64, bytes: u64, write: bool) {
    if (DEVICE_BASE..WINDOW_BASE).contains(&address) || address >= PLACED_BASE || bytes == 0 {
        return;
    }
    // SAFETY: `# Safety` promises that the range is the caller's; it is not of the device.
    unsafe {
        if write {
            std::ptr::write_bytes(address as *mut u8, 0x5a, bytes as usize);
        } else {
            let all = std::slice::from_raw_parts(address as *const u8, bytes as usize);
            std::hint::black_box(all.iter().fold(0_u8, |sum, byte| sum ^ byte));
        }
    }
}

/// Executes a function, and returns its result.
///
/// # Safety
///
/// `words` must be the first arguments of the driver's function of that name.
pub(super) unsafe fn answer(function: &str, words: &[u64]) -> c_int {
    let at = |index: usize| words.get(index).copied().unwrap_or(0);
    WORDS[0].store(at(0), RELAXED);
    WORDS[1].store(at(1), RELAXED);
    WORDS[2].store(at(2), RELAXED);
    // These must not fail, because the worker rightly ends the process then.
    if function != "cuMemHostUnregister"
        && FAIL_IN.fetch_update(RELAXED, RELAXED, |left| left.checked_sub(1)) == Ok(1)
    {
        return FAILURE.load(RELAXED) as c_int;
    }
    let in_window = |address: u64| {
        [WINDOW_BASE, RESERVATIONS_BASE].iter().any(|&base| (base..base + WINDOW_BYTES).contains(&address))
    };
    // SAFETY: `# Safety` promises the arguments of the function of that name, whose memory is as long as the driver demands.
    unsafe {
        match function {
            "cuCtxSetCurrent" => CURRENT.store(at(0) as *mut c_void, RELAXED),
            "cuMemAlloc_v2"
            | "cuMemAllocAsync"
            | "cuMemAllocFromPoolAsync"
            | "cuMemCreate"
            | "cuMemAddressReserve"
                if at(0) > DEVICE_STEP && at(2) != PLACED_BASE =>
            {
                return OUT_OF_MEMORY;
            }
            "cuMemAllocPitch_v2" if pitched(at(0), at(1)).is_none_or(|all| all > DEVICE_STEP) => {
                return OUT_OF_MEMORY;
            }
            "cuMemcpyDtoH_v2" | "cuMemcpyDtoHAsync_v2" => touch(at(0), at(2), true),
            "cuMemcpyHtoD_v2" | "cuMemcpyHtoDAsync_v2" => touch(at(1), at(2), false),
            "cuMemcpy" | "cuMemcpyAsync" | "cuMemcpyDtoD_v2" => {
                touch(at(1), at(2), false);
                touch(at(0), at(2), true);
            }
            "cuMemcpyPeer" | "cuMemcpyPeerAsync" => {
                touch(at(2), at(4), false);
                touch(at(0), at(4), true);
            }
            "cuMemsetD8Async" => touch(at(0), at(2), true),
            "cuMemsetD16Async" => touch(at(0), 2 * at(2), true),
            "cuMemsetD32Async" => touch(at(0), 4 * at(2), true),
            "cuMemHostRegister_v2" => touch(at(0), at(1), false),
            "cuModuleLoadData" | "cuModuleLoadDataEx" | "cuLibraryLoadData" => touch(at(0), 1, false),
            "cuLinkAddData_v2" => touch(at(2), at(3), false),
            "cuDeviceGetName" => touch(at(0), 1, true),
            // There is no management library, and the program's functions are not run.
            "cuDeviceGetPCIBusId" | "cuLaunchHostFunc" | "cuStreamAddCallback" => return NOT_SUPPORTED,
            "cuFuncGetParamInfo" | "cuKernelGetParamInfo" if at(1) >= 4 => return INVALID_VALUE,
            "cuStreamBeginCapture_v2" | "cuStreamBeginCaptureToGraph" => CAPTURES.store(1, RELAXED),
            "cuStreamEndCapture" => CAPTURES.store(0, RELAXED),
            "cuStreamGetCaptureInfo_v3" if CAPTURES.load(RELAXED) > 0 => {
                (at(1) as *mut c_int).write(1);
                (at(2) as *mut u64).write(1);
                (at(3) as *mut CUgraph).write(next_handle() as CUgraph);
            }
            "cuGraphGetNodes" | "cuGraphGetRootNodes" => list(at(1), 0, at(2)),
            "cuGraphGetEdges_v2" => {
                list(at(1), at(3), at(4));
                list(at(2), 0, at(4));
            }
            "cuGraphNodeGetDependencies_v2" | "cuGraphNodeGetDependentNodes_v2" => list(at(1), at(2), at(3)),
            "cuLibraryEnumerateKernels" | "cuModuleEnumerateFunctions" => {
                for index in 0..at(1) as usize {
                    (at(0) as *mut u64).add(index).write(next_handle());
                }
            }
            "cuMemExportToShareableHandle" => match memory_file(c"null") {
                Ok(file) => (at(0) as *mut c_int).write(OwnedFd::from(file).into_raw_fd()),
                Err(_) => return NOT_SUPPORTED,
            },
            "cuPointerGetAttribute" => (at(0) as *mut u32).write(number() as u32 % 2),
            "cuStreamWriteValue32_v2" if in_window(at(1)) => touch(at(1), 4, true),
            _ => {}
        }
    }
    0
}

/// Fills an array of handles, and one with eight bytes per handle. Without the first array, returns the count.
///
/// # Safety
///
/// The addresses must be null or valid for as many elements as `count` points to.
unsafe fn list(handles: u64, edges: u64, count: u64) {
    let count = count as *mut usize;
    // SAFETY: `# Safety` promises a count, and addresses that are null or good for as many elements.
    unsafe {
        if handles == 0 {
            return count.write((number() % 4) as usize);
        }
        for index in 0..count.read() {
            (handles as *mut CUgraphNode).add(index).write(next_handle() as CUgraphNode);
            if edges != 0 {
                (edges as *mut [c_char; 8]).add(index).write([0; 8]);
            }
        }
    }
}

/// Returns the size of padded rows in bytes.
fn pitched(width: u64, height: u64) -> Option<u64> {
    width.checked_next_multiple_of(512)?.checked_mul(height)
}
