// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of core dumps, which are kept for who asks: no dump is written. And checkpoints of processes, which there are
//! none of: a process that uses the device runs.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use cuda_environment::core_dump::{Attribute, CoreDumps, Refusal, Value};

use crate::driver::context::{self, CUcontext};
use crate::driver::ffi::{self, In, Out};
use crate::driver::result::{CUresult, CuResult};

/// CU_PROCESS_STATE_RUNNING
const RUNNING: i32 = 0;
/// Bytes of each CUcheckpoint*Args.
const ARGUMENTS: usize = 64;

static CORE_DUMPS: LazyLock<Mutex<CoreDumps>> = LazyLock::new(|| Mutex::new(CoreDumps::of_this_process()));

impl From<Refusal> for CUresult {
    fn from(refusal: Refusal) -> CUresult {
        match refusal {
            Refusal::InvalidValue => CUresult::CUDA_ERROR_INVALID_VALUE,
            Refusal::NotPermitted => CUresult::CUDA_ERROR_NOT_PERMITTED,
        }
    }
}

fn lock() -> MutexGuard<'static, CoreDumps> {
    CORE_DUMPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A context was made with these CU_CTX_* flags.
pub(crate) fn context_created(context: CUcontext, flags: u32) {
    lock().created(context.0 as u64, flags);
}

/// A context is gone.
pub(crate) fn context_destroyed(context: CUcontext) {
    lock().destroyed(context.0 as u64);
}

/// Whose attributes are meant: the current context's, or the process's.
fn scope(of_context: bool) -> CuResult<Option<u64>> {
    if !of_context {
        return Ok(None);
    }
    if !ffi::initialised() {
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    Ok(Some(context::current_unchecked()?.handle.0 as u64))
}

fn get(of_context: bool, attribute: i32, value: Out<u8>, size: *mut usize) -> CuResult<()> {
    let attribute = Attribute::new(attribute)?;
    Out::from_raw(size).check()?;
    let context = scope(of_context)?;
    if value.is_null() {
        Out::from_raw(size).set(attribute.size());
        return Ok(());
    }
    let room = In::from_raw(size.cast_const()).get()?;
    for (at, byte) in lock().get(context, attribute)?.bytes(room)?.into_iter().enumerate() {
        value.element(at).set(byte);
    }
    Ok(())
}

fn set(of_context: bool, attribute: i32, value: In<u8>, size: *mut usize) -> CuResult<()> {
    let attribute = Attribute::new(attribute)?;
    Out::from_raw(size).check()?;
    let context = scope(of_context)?;
    if value.is_null() {
        Out::from_raw(size).set(attribute.size());
        return Ok(());
    }
    let size = In::from_raw(size.cast_const()).get()?;
    // It is not NULL, the only reason for which there is no byte.
    let value = Value::read(attribute, size, |at| value.at(at).unwrap_or(0))?;
    Ok(lock().set(context, attribute, value)?)
}

fn get_of_context(attribute: i32, value: Out<u8>, size: *mut usize) -> CuResult<()> {
    get(true, attribute, value, size)
}

fn get_of_process(attribute: i32, value: Out<u8>, size: *mut usize) -> CuResult<()> {
    get(false, attribute, value, size)
}

fn set_of_context(attribute: i32, value: In<u8>, size: *mut usize) -> CuResult<()> {
    set(true, attribute, value, size)
}

fn set_of_process(attribute: i32, value: In<u8>, size: *mut usize) -> CuResult<()> {
    set(false, attribute, value, size)
}

/// Refuses all but this process.
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
    state.set(RUNNING);
    Ok(())
}

fn lock_process(pid: i32, arguments: In<[u8; ARGUMENTS]>) -> CuResult<()> {
    // Behind the timeout.
    check_arguments(arguments, 4)?;
    check_process(pid)?;
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

/// Of a process that is locked, and none is.
fn in_locked(pid: i32, arguments: In<[u8; ARGUMENTS]>) -> CuResult<()> {
    check_arguments(arguments, 0)?;
    check_process(pid)?;
    Err(CUresult::CUDA_ERROR_ILLEGAL_STATE)
}

/// Of a process that has a checkpoint, and none has.
fn restore(pid: i32, arguments: In<[u8; ARGUMENTS]>) -> CuResult<()> {
    // Behind the pairs of GPUs and their number.
    check_arguments(arguments, 12)?;
    check_process(pid)?;
    Err(CUresult::CUDA_ERROR_ILLEGAL_STATE)
}

crate::driver::ffi::entries! { before_init
    cuCoredumpGetAttribute => get_of_context(attribute: i32, value: Out<u8>, size: *mut usize);
    cuCoredumpGetAttributeGlobal => get_of_process(attribute: i32, value: Out<u8>, size: *mut usize);
    cuCoredumpSetAttribute => set_of_context(attribute: i32, value: In<u8>, size: *mut usize);
    cuCoredumpSetAttributeGlobal => set_of_process(attribute: i32, value: In<u8>, size: *mut usize);
    cuCheckpointProcessGetRestoreThreadId => restore_thread(pid: i32, tid: Out<i32>);
    cuCheckpointProcessGetState => process_state(pid: i32, state: Out<i32>);
    cuCheckpointProcessLock => lock_process(pid: i32, arguments: In<[u8; ARGUMENTS]>);
    cuCheckpointProcessCheckpoint => in_locked(pid: i32, arguments: In<[u8; ARGUMENTS]>);
    cuCheckpointProcessRestore => restore(pid: i32, arguments: In<[u8; ARGUMENTS]>);
    cuCheckpointProcessUnlock => in_locked(pid: i32, arguments: In<[u8; ARGUMENTS]>);
}
