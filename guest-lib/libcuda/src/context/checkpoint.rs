// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Process checkpoints. This library cannot stop a process or take its memory off the GPU, so a process that uses CUDA
//! is always running. A process can query its own state; the state of other processes is not visible to this library.

use virtio_cuda_client::CudaError;

use crate::driver::Driver;
use crate::entry_points;
use crate::ffi::{In, Out};

/// `CU_PROCESS_STATE_RUNNING`
const RUNNING: i32 = 0;
/// `CUDA_ERROR_ILLEGAL_STATE`
const ILLEGAL_STATE: i32 = 401;
/// Bytes of each `CUcheckpoint*Args`.
const ARGUMENTS: usize = 64;

/// Refuses all processes but this one, with the error of an H200 for ids of no process.
fn check_process(pid: i32) -> Result<(), CudaError> {
    if pid <= 0 {
        return Err(CudaError::OPERATING_SYSTEM);
    }
    if pid as u32 == std::process::id() {
        return Driver::get().map(|_| ()).ok_or(CudaError::NOT_INITIALIZED);
    }
    // SAFETY: signal 0 is not delivered.
    let there = unsafe { libc::kill(pid, 0) } == 0
        || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH);
    Err(if there { CudaError::NOT_SUPPORTED } else { CudaError::OPERATING_SYSTEM })
}

/// Refuses optional arguments whose reserved bytes are not 0.
fn check_arguments(
    arguments: In<[u8; ARGUMENTS]>,
    reserved: std::ops::Range<usize>,
) -> Result<(), CudaError> {
    if arguments.is_null() {
        return Ok(());
    }
    let bytes = arguments.get()?;
    let clean = bytes.get(reserved).is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0));
    if clean { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

entry_points! {
    /// Always fails: there is no thread that could restore a process.
    early cuCheckpointProcessGetRestoreThreadId(_, pid: i32, tid: Out<i32>) {
        tid.check()?;
        check_process(pid)?;
        Err(CudaError::NOT_SUPPORTED)
    }

    /// Returns the state of this process, which is always running.
    early cuCheckpointProcessGetState(_, pid: i32, state: Out<i32>) {
        state.check()?;
        check_process(pid)?;
        state.set(RUNNING)
    }

    /// Not supported.
    early cuCheckpointProcessLock(_, pid: i32, args: In<[u8; ARGUMENTS]>) {
        // The reserved bytes follow the timeout.
        check_arguments(args, 4..ARGUMENTS)?;
        check_process(pid)?;
        Err(CudaError::NOT_SUPPORTED)
    }

    /// Needs a locked process. Because none is ever locked, the call fails.
    early cuCheckpointProcessCheckpoint(_, pid: i32, args: In<[u8; ARGUMENTS]>) {
        check_arguments(args, 0..ARGUMENTS)?;
        check_process(pid)?;
        CudaError::check(ILLEGAL_STATE)
    }

    /// Needs a process with a checkpoint. Because none ever has one, the call fails.
    early cuCheckpointProcessRestore(_, pid: i32, args: In<[u8; ARGUMENTS]>) {
        // The reserved bytes follow the pairs of GPUs and their number.
        check_arguments(args, 12..ARGUMENTS)?;
        check_process(pid)?;
        CudaError::check(ILLEGAL_STATE)
    }

    /// Needs a locked process. Because none is ever locked, the call fails.
    early cuCheckpointProcessUnlock(_, pid: i32, args: In<[u8; ARGUMENTS]>) {
        check_arguments(args, 0..ARGUMENTS)?;
        check_process(pid)?;
        CudaError::check(ILLEGAL_STATE)
    }
}
