// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The types that prototypes refer to. Handles are integers as long as a pointer, enums are `c_uint`.

pub use core::ffi::{c_char, c_int, c_uint, c_void};

pub use crate::CUhostFn;
pub use crate::structs::*;

/// `CUresult`.
pub type CUresult = c_int;
/// `CUdevice`.
pub type CUdevice = c_int;
/// `CUdeviceptr`.
pub type CUdeviceptr = u64;
/// `CUlogIterator`.
pub type CUlogIterator = c_uint;

/// Defines handles: the emulator's and the guest's are numbers.
macro_rules! handles {
    ($($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        pub type $name = u64;
    )* };
}
handles! {
    CUarray CUasyncCallbackHandle CUcontext CUdevResourceDesc CUevent CUexternalMemory CUexternalSemaphore CUfunction
    CUgraph CUgraphConditionalHandle CUgraphExec CUgraphNode CUgraphicsResource CUgreenCtx CUkernel CUlibrary CUlinkState
    CUlogsCallbackHandle CUmemGenericAllocationHandle CUmemoryPool CUmipmappedArray CUmodule CUstream CUsurfObject
    CUsurfref CUtexObject CUtexref CUuserObject
}

/// `CUcheckpointCheckpointArgs`, which passes through as an address.
pub type CUcheckpointCheckpointArgs = [u8; 0];
/// `CUcheckpointLockArgs`, which passes through as an address.
pub type CUcheckpointLockArgs = [u8; 0];
/// `CUcheckpointRestoreArgs`, which passes through as an address.
pub type CUcheckpointRestoreArgs = [u8; 0];
/// `CUcheckpointUnlockArgs`, which passes through as an address.
pub type CUcheckpointUnlockArgs = [u8; 0];
/// `CUdevprop`, which passes through as an address.
pub type CUdevprop = [u8; 0];

/// `CUstreamCallback`.
pub type CUstreamCallback = Option<unsafe extern "C" fn(CUstream, CUresult, *mut c_void)>;
/// `CUasyncCallback`.
pub type CUasyncCallback = Option<unsafe extern "C" fn(*mut c_void, *mut c_void, CUasyncCallbackHandle)>;
/// `CUlogsCallback`.
pub type CUlogsCallback = Option<unsafe extern "C" fn(*mut c_void, c_uint, *mut c_char, usize)>;
/// `CUoccupancyB2DSize`.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(c_int) -> usize>;
