// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The interface between this project's libcupti and its other libraries, which report API calls and GPU work to it.
//! Not part of CUDA. libcuda (the guest's and the emulator's) exports one of [`PROVIDER_NAMES`]; libcudart exports
//! [`RUNTIME_NAME`].

use core::ffi::c_void;

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `extern "C" fn() -> *const TraceProvider`, first of the guest's libcuda, then of the emulator's.
pub const PROVIDER_NAMES: [&core::ffi::CStr; 2] =
    [c"virtio_cuda_trace_provider", c"cuda_emulator_trace_provider"];
/// `extern "C" fn(*const TraceHooks)`: sets the functions that the runtime calls. NULL removes them.
pub const RUNTIME_NAME: &core::ffi::CStr = c"__cudaVhostTraceHooks";
/// [`RecordFunction`] of the guest's libcuda.
pub const RECORD_NAME: &core::ffi::CStr = c"virtio_cuda_trace_record";
/// [`RecordedFunction`] of the guest's libcuda.
pub const RECORDED_NAME: &core::ffi::CStr = c"virtio_cuda_trace_recorded";
/// Begins or ends the recording of what the worker does for the process. Returns a `CUresult`. Needs `cuInit`.
pub type RecordFunction = extern "C" fn(begin: bool) -> i32;
/// Fills `room`, of `bytes` bytes, with the next bytes of that recording, which has the form of the crate `vhost-cuda-profile`.
/// Returns a `CUresult`, the number of bytes, whether more may come, and the clock of the recording in nanoseconds.
pub type RecordedFunction =
    unsafe extern "C" fn(room: *mut u8, bytes: &mut usize, open: &mut bool, ns: &mut u64) -> i32;
/// The version of this interface.
pub const TRACE_VERSION: u32 = 2;

/// A call of the driver API.
pub const API_DRIVER: u32 = 0;
/// A call of the runtime API.
pub const API_RUNTIME: u32 = 1;
/// A call of one of NVIDIA's libraries; used only within libcupti.
pub const API_LIBRARY: u32 = 2;

/// Functions of libcupti. They stay valid until the process ends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceHooks {
    /// A call begins in this thread. The name is a constant of `bytes` bytes.
    pub enter: extern "C" fn(api: u32, name: *const u8, bytes: usize),
    /// The innermost call of this thread ends.
    pub exit: extern "C" fn(api: u32, result: i32),
    /// Returns the correlation id of the outermost call of this thread; 0 outside of calls.
    pub correlation: extern "C" fn() -> u32,
    /// The outermost call of this thread copies from or to pageable memory.
    pub pageable: extern "C" fn(source: bool, destination: bool),
    /// The destruction of a context begins. The driver may hold locks, so the program must not retain or release
    /// contexts meanwhile.
    pub context_ends: extern "C" fn(context: *mut c_void),
}

/// Receives an item of work from [`TraceProvider::drain`], with the caller's `data`, and with the name of a kernel.
pub type TraceSink = extern "C" fn(data: *mut c_void, work: &TraceWork, name: *const u8, bytes: usize);

/// Functions of libcuda. Those with a result return a `CUresult`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceProvider {
    /// [`TRACE_VERSION`]
    pub version: u32,
    /// Sets the functions that receive calls. NULL removes them.
    pub hooks: extern "C" fn(hooks: *const TraceHooks),
    /// Starts measuring work. Needs `cuInit`.
    pub start: extern "C" fn() -> i32,
    /// Stops measuring. Recorded work is kept until it is drained.
    pub stop: extern "C" fn() -> i32,
    /// Returns the clock of [`TraceWork`], in nanoseconds.
    pub now: extern "C" fn(ns: &mut u64) -> i32,
    /// Passes all recorded work to `sink`, and adds the number of records that were lost for lack of memory to
    /// `dropped`.
    pub drain: extern "C" fn(sink: TraceSink, data: *mut c_void, dropped: &mut u64) -> i32,
}

/// Work that a GPU has completed, or an API call that one of NVIDIA's libraries has made in the worker. Numbers are
/// little-endian on the wire.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct TraceWork {
    /// `CUPTI_ACTIVITY_KIND_*`: a kernel, copy, fill or API call.
    pub kind: u32,
    /// The low bits of the correlation id of the API call; 0 if unknown.
    pub correlation: u32,
    /// Start in nanoseconds of the provider's clock.
    pub start: u64,
    /// End in nanoseconds of the provider's clock.
    pub end: u64,
    /// The device's ordinal.
    pub device: u32,
    /// The context's number.
    pub context: u32,
    /// The stream's number.
    pub stream: u32,
    /// Index of a kernel's name, from 1; used only on the wire.
    pub name: u32,
    /// Bytes of a copy or fill.
    pub bytes: u64,
    /// The pattern of a fill; the result of an API call.
    pub value: u32,
    /// For a copy: direction, memory kinds of source and destination, flags. For a fill: flags and memory kind, 16 bits
    /// each.
    pub kinds: [u8; 4],
    /// Blocks of a kernel. For a copy between devices: device and context of the source, and the device of the
    /// destination.
    pub grid: [u32; 3],
    /// Threads per block. For a copy between devices: the context of the destination.
    pub block: [u32; 3],
    /// Static and dynamic shared memory, in bytes.
    pub shared: [u32; 2],
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of local memory per thread.
    pub local: u32,
    /// The graph that the work was part of; 0 if none.
    pub graph: u32,
    /// The channel.
    pub channel: u32,
    /// The node of a graph; 0 if none.
    pub graph_node: u64,
    /// The number of a launch.
    pub grid_id: u64,
    /// The worker's number of the API call of a library that has submitted the work, or that this is; 0: the program's
    /// call was not one of a library.
    pub call: u32,
    /// Number of the function of an API call (`CUPTI_RUNTIME_TRACE_CBID_*`, `CUPTI_DRIVER_TRACE_CBID_*`).
    pub cbid: u32,
}
const _: () = assert!(core::mem::size_of::<TraceWork>() == 128);
