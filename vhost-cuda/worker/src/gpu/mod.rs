// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver API. Only files in this folder use cudarc.

mod argument;
mod box_copy;
mod code;
mod completed;
mod constants;
mod courier;
mod driver;
mod error;
mod graph;
mod later;
mod launch;
#[cfg(any(test, fuzzing))]
pub mod null;
mod plain;
mod raw;
mod shared;

pub use argument::{
    Checked, Elements, Mut, NoFunction, One, Opaque, Rank, Ref, SurfaceObject, TextureObject,
};
pub use box_copy::{BoxCopy, BoxEnd, PitchedEnd};
pub use code::Names;
pub use constants::{
    ACCESS_NONE, ACCESS_READ_WRITE, ALLOCATION_PINNED, EVENT_DISABLE_TIMING, HOST_PORTABLE_MAPPED,
    HOST_READ_ONLY, LOCATION_DEVICE, POINTER_IS_MANAGED, STREAM_LEGACY, STREAM_PER_THREAD,
};
pub use courier::Courier;
pub use cudarc::driver::sys::{
    CUarray, CUcontext, CUdevResourceDesc, CUdevice, CUdeviceptr, CUevent, CUexternalMemory, CUfunction,
    CUgraph, CUgraphExec, CUgraphNode, CUgreenCtx, CUkernel, CUlaunchConfig, CUlibrary, CUlinkState,
    CUmemGenericAllocationHandle, CUmemoryPool, CUmipmappedArray, CUmodule, CUstream, CUsurfref, CUtexref,
    CUuserObject, CUuuid,
};
pub use driver::{Driver, MAX_GROUPS, SplitResource};
pub use error::{CuResult, CudaError};
pub use graph::{
    AttributeValue, CAPTURE_RELAXED, CheckedOperations, Code, EVENT_ATTRIBUTES, Edges, InGraph, Links,
    NodeParameters, OneKernel, UserFunction, is_documented, while_current, with_capture_relaxed,
};
pub use launch::Launch;
pub use raw::{
    RawAccess, RawAffinity, RawAllocation, RawArray, RawArrayMap, RawDevResource, RawExternal,
    RawExternalArray, RawExternalBuffer, RawIpcHandle, RawLocation, RawPool, RawRequirements, RawResource,
    RawRows, RawSparse, RawTensorMap, RawTexture, RawView,
};
pub use shared::{HANDLE_TYPE_FILE, SharedEvent, StreamCallback};
