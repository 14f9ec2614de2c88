// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The emulator's functions that NCCL uses besides those of [`crate::stream`], and its means to hand files to other processes.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use cuda_abi::prototypes::functions::{
    cuCtxGetCurrent, cuCtxGetDevice, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuDeviceGet, cuDeviceGetCount,
    cuDevicePrimaryCtxRetain, cuEventCreate, cuEventDestroy_v2, cuEventRecord, cuInit, cuMemAlloc_v2,
    cuMemFree_v2, cuStreamGetCaptureInfo, cuStreamWaitEvent,
};

use super::{CUDA_ERROR, INVALID_ARGUMENT, Status};
use crate::stream::Stream;
use crate::symbols::driver_functions;

/// Bytes of a handle for a file.
pub const HANDLE_BYTES: usize = 64;
/// A handle for a file of this or of another process.
pub type Handle = [u8; HANDLE_BYTES];

/// `CU_EVENT_DISABLE_TIMING`
const DISABLE_TIMING: u32 = 2;
/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`
const CAPTURES: u32 = 1;

/// `cuda_emulator_offer_file` (`cuda-emulator/src/driver/ipc/files.rs`).
type Offer = unsafe extern "C" fn(c_int, *mut Handle) -> c_int;
/// `cuda_emulator_fetch_file`
type Fetch = unsafe extern "C" fn(*const Handle) -> c_int;
/// `cuda_emulator_withdraw_file`
type Withdraw = unsafe extern "C" fn(*const Handle);

// Functions of these names have these types: their prototypes, and the emulator's own.
driver_functions! {
    init: cuInit = c"cuInit";
    count: cuDeviceGetCount = c"cuDeviceGetCount";
    device: cuDeviceGet = c"cuDeviceGet";
    retain: cuDevicePrimaryCtxRetain = c"cuDevicePrimaryCtxRetain";
    current: cuCtxGetCurrent = c"cuCtxGetCurrent";
    device_of_current: cuCtxGetDevice = c"cuCtxGetDevice";
    push: cuCtxPushCurrent_v2 = c"cuCtxPushCurrent_v2";
    pop: cuCtxPopCurrent_v2 = c"cuCtxPopCurrent_v2";
    allocate: cuMemAlloc_v2 = c"cuMemAlloc_v2";
    free: cuMemFree_v2 = c"cuMemFree_v2";
    event: cuEventCreate = c"cuEventCreate";
    record: cuEventRecord = c"cuEventRecord";
    wait: cuStreamWaitEvent = c"cuStreamWaitEvent";
    end_event: cuEventDestroy_v2 = c"cuEventDestroy_v2";
    capture: cuStreamGetCaptureInfo = c"cuStreamGetCaptureInfo";
    offer: Offer = c"cuda_emulator_offer_file";
    fetch: Fetch = c"cuda_emulator_fetch_file";
    withdraw: Withdraw = c"cuda_emulator_withdraw_file";
}

fn checked(result: c_int) -> Result<(), Status> {
    if result == 0 { Ok(()) } else { Err(CUDA_ERROR) }
}

/// The device of a communicator, and the context in which its work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub device: c_int,
    context: u64,
}

impl Place {
    /// A device that does not exist, for tests.
    #[cfg(test)]
    pub const fn imagined(device: c_int) -> Self {
        Self { device, context: 0 }
    }

    /// Returns the context of the calling thread. A thread without one uses device 0.
    pub fn current() -> Result<Self, Status> {
        let driver = driver().ok_or(CUDA_ERROR)?;
        let (mut context, mut device) = (0, 0);
        // SAFETY: plain calls, and places for their results.
        unsafe {
            checked((driver.init)(0))?;
            checked((driver.current)(&raw mut context))?;
        }
        if context == 0 {
            return Self::of(0);
        }
        // SAFETY: a plain call, and a place for its result.
        checked(unsafe { (driver.device_of_current)(&raw mut device) })?;
        Ok(Self { device, context })
    }

    /// The primary context of a device.
    pub fn of(ordinal: c_int) -> Result<Self, Status> {
        let driver = driver().ok_or(CUDA_ERROR)?;
        let (mut count, mut device, mut context) = (0, 0, 0);
        // SAFETY: plain calls, and places for their results.
        unsafe {
            checked((driver.init)(0))?;
            checked((driver.count)(&raw mut count))?;
            if !(0..count).contains(&ordinal) {
                return Err(INVALID_ARGUMENT);
            }
            checked((driver.device)(&raw mut device, ordinal))?;
            checked((driver.retain)(&raw mut context, device))?;
        }
        Ok(Self { device, context })
    }

    /// Calls `body` with the context current.
    pub fn enter<T>(self, body: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
        let driver = driver().ok_or(CUDA_ERROR)?;
        // SAFETY: the driver checks the context.
        checked(unsafe { (driver.push)(self.context) })?;
        let result = body();
        let mut popped = 0;
        // SAFETY: a place for the result. The context that was pushed is on the stack, unless the program has popped it.
        unsafe { (driver.pop)(&raw mut popped) };
        result
    }
}

/// Device memory of the current context.
pub fn allocate(bytes: usize) -> Result<u64, Status> {
    let place = Place::current()?;
    let mut address = 0;
    place.enter(|| {
        let driver = driver().ok_or(CUDA_ERROR)?;
        // SAFETY: a place for the result.
        checked(unsafe { (driver.allocate)(&raw mut address, bytes) })
    })?;
    Ok(address)
}

/// Frees device memory.
pub fn free(address: u64) -> Result<(), Status> {
    Place::current()?.enter(|| {
        let driver = driver().ok_or(CUDA_ERROR)?;
        // SAFETY: the driver refuses what is not the start of an allocation, and first ends the work that uses the memory.
        checked(unsafe { (driver.free)(address) })
    })
}

/// An event, by which streams wait for each other.
#[derive(Debug)]
pub struct Event(u64);

impl Event {
    /// An event of the current context.
    pub fn new() -> Result<Self, Status> {
        let driver = driver().ok_or(CUDA_ERROR)?;
        let mut event = 0;
        // SAFETY: a place for the result.
        checked(unsafe { (driver.event)(&raw mut event, DISABLE_TIMING) })?;
        Ok(Self(event))
    }

    /// Records a point after all present work of a stream.
    pub fn record(&self, stream: Stream) -> Result<(), Status> {
        // SAFETY: the event lives as long as this value, and the driver checks the stream.
        checked(unsafe { (driver().ok_or(CUDA_ERROR)?.record)(self.0, stream as u64) })
    }

    /// Makes all later work of a stream wait for it.
    pub fn hold(&self, stream: Stream) -> Result<(), Status> {
        // SAFETY: the event lives as long as this value, and the driver checks the stream.
        checked(unsafe { (driver().ok_or(CUDA_ERROR)?.wait)(stream as u64, self.0, 0) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(driver) = driver() {
            // SAFETY: the event is this value's own. Streams that wait for it go on waiting for what it stood for.
            unsafe { (driver.end_event)(self.0) };
        }
    }
}

/// The number of the capture that a stream is in.
pub fn capture_of(stream: Stream) -> Result<Option<u64>, Status> {
    let (mut status, mut number) = (0, 0);
    // SAFETY: the driver checks the stream, and the places are numbers'.
    checked(unsafe {
        (driver().ok_or(CUDA_ERROR)?.capture)(stream as u64, &raw mut status, &raw mut number)
    })?;
    Ok((status == CAPTURES).then_some(number))
}

/// Offers a file to other processes; `None` where that is not possible.
pub fn offer(file: &File) -> Option<Handle> {
    let mut handle = [0; HANDLE_BYTES];
    // SAFETY: the file is open, and there is room for a handle.
    let result = unsafe { (driver()?.offer)(file.as_raw_fd(), &raw mut handle) };
    (result == 0).then_some(handle)
}

/// The file that a process has offered.
pub fn fetch(handle: &Handle) -> Option<File> {
    // SAFETY: a handle's bytes; the function checks what they say.
    let descriptor = unsafe { (driver()?.fetch)(handle) };
    // SAFETY: a new descriptor, which nobody else owns.
    (descriptor >= 0).then(|| unsafe { File::from_raw_fd(descriptor) })
}

/// Ends an offer. Who has the file keeps it.
pub fn withdraw(handle: &Handle) {
    if let Some(driver) = driver() {
        // SAFETY: a handle's bytes; the function checks what they say.
        unsafe { (driver.withdraw)(handle) };
    }
}
