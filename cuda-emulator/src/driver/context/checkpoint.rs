// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checkpoints of processes, which are not supported: a process that uses the device is always running.

use crate::driver::ffi::{self, In, Out};
use crate::driver::result::{CUresult, CuResult};

/// CU_PROCESS_STATE_RUNNING
const RUNNING: i32 = 0;
/// The size of each CUcheckpoint*Args in bytes.
const ARGUMENTS: usize = 64;

/// Refuses all processes except this one.
fn check_process(pid: i32) -> CuResult<()> {
    if pid <= 0 {
        return Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM);
    }
    if pid as u32 == std::process::id() {
        return if ffi::initialised() { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_INITIALIZED) };
    }
    // SAFETY: signal 0 is not delivered.
    let there = unsafe { libc::kill(pid, 0) } == 0
        || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH);
    Err(if there { CUresult::CUDA_ERROR_NOT_SUPPORTED } else { CUresult::CUDA_ERROR_INVALID_VALUE })
}

/// Refuses optional arguments whose reserved bytes, from `from` on, are not 0.
fn check_arguments(arguments: In<[u8; ARGUMENTS]>, from: usize) -> CuResult<()> {
    let clean = arguments.is_null() || arguments.get()?[from..].iter().all(|&byte| byte == 0);
    if clean { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

fn restore_thread(pid: i32, tid: Out<i32>) -> CuResult<()> {
    tid.check()?;
    check_process(pid)?;
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

fn process_state(pid: i32, state: Out<i32>) -> CuResult<()> {
    state.check()?;
    check_process(pid)?;
    state.set_if_wanted(RUNNING);
    Ok(())
}

fn lock_process(pid: i32, arguments: In<[u8; ARGUMENTS]>) -> CuResult<()> {
    // After the timeout.
    check_arguments(arguments, 4)?;
    check_process(pid)?;
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

/// Refuses a call that needs a locked process, because no process is ever locked.
fn in_locked(pid: i32, arguments: In<[u8; ARGUMENTS]>) -> CuResult<()> {
    check_arguments(arguments, 0)?;
    check_process(pid)?;
    Err(CUresult::CUDA_ERROR_ILLEGAL_STATE)
}

/// Refuses a call that needs a checkpoint, because there is never one.
fn restore(pid: i32, arguments: In<[u8; ARGUMENTS]>) -> CuResult<()> {
    // After the pairs of GPUs and their number.
    check_arguments(arguments, 12)?;
    check_process(pid)?;
    Err(CUresult::CUDA_ERROR_ILLEGAL_STATE)
}

crate::driver::ffi::entries! { before_init
    cuCheckpointProcessGetRestoreThreadId => restore_thread(pid: i32, tid: Out<i32>);
    cuCheckpointProcessGetState => process_state(pid: i32, state: Out<i32>);
    cuCheckpointProcessLock => lock_process(pid: i32, arguments: In<[u8; ARGUMENTS]>);
    cuCheckpointProcessCheckpoint => in_locked(pid: i32, arguments: In<[u8; ARGUMENTS]>);
    cuCheckpointProcessRestore => restore(pid: i32, arguments: In<[u8; ARGUMENTS]>);
    cuCheckpointProcessUnlock => in_locked(pid: i32, arguments: In<[u8; ARGUMENTS]>);
}
