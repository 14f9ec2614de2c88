// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Constants of the driver API.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::{self, CUstream};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub const ALLOCATION_PINNED: c_uint = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const LOCATION_DEVICE: c_uint = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_NONE`.
pub const ACCESS_NONE: c_uint = 0;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub const ACCESS_READ_WRITE: c_uint = 3;
/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
pub const HOST_PORTABLE_MAPPED: c_uint = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
pub const HOST_READ_ONLY: c_uint = sys::CU_MEMHOSTREGISTER_READ_ONLY;
/// `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_DISABLE_TIMING: c_uint = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as c_uint;
/// `CU_POINTER_ATTRIBUTE_IS_MANAGED`.
pub const POINTER_IS_MANAGED: c_int = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as c_int;
/// The legacy default stream as an explicit handle (`CU_STREAM_LEGACY`).
pub const STREAM_LEGACY: CUstream = std::ptr::without_provenance_mut(1);
/// The default stream of the calling thread (`CU_STREAM_PER_THREAD`).
pub const STREAM_PER_THREAD: CUstream = std::ptr::without_provenance_mut(2);
