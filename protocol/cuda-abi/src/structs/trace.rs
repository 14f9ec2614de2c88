// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The interface between this project's libcupti and its other libraries, which report API calls and the work of GPUs to it. No
//! part of CUDA. libcuda, the guest's and the emulator's, exports one of [`PROVIDER_NAMES`]; libcudart exports [`RUNTIME_NAME`].

use core::ffi::c_void;

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `extern "C" fn() -> *const TraceProvider`, of the guest's libcuda and of the emulator's.
pub const PROVIDER_NAMES: [&core::ffi::CStr; 2] =
    [c"virtio_cuda_trace_provider", c"cuda_emulator_trace_provider"];
/// `extern "C" fn(*const TraceHooks)`: sets the functions that the runtime calls. NULL: none.
pub const RUNTIME_NAME: &core::ffi::CStr = c"__cudaVhostTraceHooks";
/// The version of this interface.
pub const TRACE_VERSION: u32 = 1;

/// A call of the driver API.
pub const API_DRIVER: u32 = 0;
/// A call of the runtime API.
pub const API_RUNTIME: u32 = 1;
/// A call of one of NVIDIA's libraries, within libcupti only.
pub const API_LIBRARY: u32 = 2;

/// Functions of libcupti. They stay valid until the process ends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceHooks {
    /// A call begins in this thread: its API, and its name, which is a constant.
    pub enter: extern "C" fn(api: u32, name: *const u8, bytes: usize),
    /// The call that began last in this thread ends.
    pub exit: extern "C" fn(api: u32, result: i32),
    /// The number of the outermost call of this thread; 0 outside of calls.
    pub correlation: extern "C" fn() -> u32,
    /// A context begins to end; its handle. The driver may hold locks: the program must not retain or release contexts meanwhile.
    pub context_ends: extern "C" fn(context: *mut c_void),
}

/// A function that receives a piece of work from [`TraceProvider::drain`], with the caller's data and the name of a
/// kernel.
pub type TraceSink = extern "C" fn(data: *mut c_void, work: &TraceWork, name: *const u8, bytes: usize);

/// Functions of libcuda. Those with a result return a `CUresult`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceProvider {
    /// [`TRACE_VERSION`]
    pub version: u32,
    /// Sets the functions that calls are reported to. NULL: none.
    pub hooks: extern "C" fn(hooks: *const TraceHooks),
    /// Begins to measure work. Needs `cuInit`.
    pub start: extern "C" fn() -> i32,
    /// Stops measuring. The work so far stays until it is drained.
    pub stop: extern "C" fn() -> i32,
    /// The clock of [`TraceWork`], in nanoseconds.
    pub now: extern "C" fn(ns: &mut u64) -> i32,
    /// Delivers all measured work, and adds to `dropped` the pieces that were lost for lack of room.
    pub drain: extern "C" fn(sink: TraceSink, data: *mut c_void, dropped: &mut u64) -> i32,
}

/// Work that a GPU has done. On the wire its numbers are little-endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct TraceWork {
    /// `CUPTI_ACTIVITY_KIND_*`: a kernel, copy or fill.
    pub kind: u32,
    /// The low bits of the number of the API call; 0: not known.
    pub correlation: u32,
    /// In the provider's clock.
    pub start: u64,
    /// In the provider's clock.
    pub end: u64,
    /// The device's ordinal.
    pub device: u32,
    /// The context's number.
    pub context: u32,
    /// The stream's number.
    pub stream: u32,
    /// The number of a kernel's name, from 1. Used on the wire only.
    pub name: u32,
    /// Bytes of a copy or fill.
    pub bytes: u64,
    /// The pattern of a fill.
    pub value: u32,
    /// For a copy: direction, kinds of memory of source and destination, flags. For a fill: flags and kind of memory,
    /// 16 bits each.
    pub kinds: [u8; 4],
    /// Blocks of a kernel. Of a copy between devices: device and context of the source, and the device of the destination.
    pub grid: [u32; 3],
    /// Threads of a block. Of a copy between devices: the context of the destination.
    pub block: [u32; 3],
    /// Static and dynamic shared memory, in bytes.
    pub shared: [u32; 2],
    /// Registers and bytes of local memory per thread.
    pub registers: u32,
    /// Bytes of local memory per thread.
    pub local: u32,
    /// The graph that the work was part of; 0: none.
    pub graph: u32,
    /// The channel.
    pub channel: u32,
    /// The node of a graph; 0: none.
    pub graph_node: u64,
    /// The number of a launch.
    pub grid_id: u64,
}
const _: () = assert!(core::mem::size_of::<TraceWork>() == 120);
