// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The transport to the worker: two private functions of the guest's libcuda, which keep these calls in order with all
//! other calls of the process. NVIDIA's libcuda does not have them.

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute_copy;
use std::ptr::NonNull;
use std::sync::OnceLock;

use cuda_abi::CUDA_MEMCPY2D;
use cuda_abi::prototypes::functions;
use cuda_program::Library;

/// `CUDA_SUCCESS`
const SUCCESS: c_int = 0;
/// `CUDA_ERROR_NOT_INITIALIZED`
const NOT_INITIALIZED: c_int = 3;
/// `CUDA_ERROR_INVALID_CONTEXT`
const INVALID_CONTEXT: c_int = 201;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`
const MEMORY_TYPE: u32 = 2;
/// `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR` and `CU_POINTER_ATTRIBUTE_RANGE_SIZE`.
const RANGE_START: u32 = 11;
const RANGE_BYTES: u32 = 12;
/// `CUDA_ERROR_NOT_FOUND`
pub const NOT_FOUND: c_int = 500;
/// `CUDA_ERROR_OUT_OF_MEMORY`
pub const OUT_OF_MEMORY: c_int = 2;

/// `virtio_cuda_vendor_load` (libcuda/src/names/vendor.rs).
type Load = unsafe extern "C" fn(u32, u32, *const u64, usize, *mut u8) -> c_int;
/// `virtio_cuda_vendor_call`.
type Call = unsafe extern "C" fn(*const Arguments) -> c_int;
/// `virtio_cuda_vendor_pinned`.
type Pinned = unsafe extern "C" fn(*mut u64, usize) -> c_int;

/// The arguments of `virtio_cuda_vendor_call`.
#[repr(C)]
#[derive(Debug)]
pub struct Arguments {
    /// Number of the library.
    pub library: u32,
    /// Number of the function.
    pub function: u32,
    /// The stream on which the work runs.
    pub stream: u64,
    /// The block of arguments.
    pub input: *const u8,
    /// Bytes of the block of arguments.
    pub input_bytes: usize,
    /// Room for the results.
    pub output: *mut u8,
    /// Bytes of the room for results; 0 if the call need not wait.
    pub output_bytes: usize,
    /// 1 for a question of the front, whose answer the program does not get; else 0.
    pub internal: u32,
    /// The graph that the call changes, which then waits; 0 for none.
    pub graph: u64,
    /// If the call need not wait: the number of all on which the work depends that it queues, except the addresses.
    pub work: u64,
}

/// Functions of libcuda.
struct Bridge {
    load: Load,
    call: Call,
    pinned: Pinned,
    init: functions::cuInit,
    retain: functions::cuDevicePrimaryCtxRetain,
    set_current: functions::cuCtxSetCurrent,
    get_current: functions::cuCtxGetCurrent,
    device: functions::cuCtxGetDevice,
    alloc: functions::cuMemAlloc_v2,
    free: functions::cuMemFree_v2,
    copy: functions::cuMemcpy2D_v2,
    copy_in_stream: functions::cuMemcpy2DAsync_v2,
    attribute: functions::cuPointerGetAttribute,
}

impl Bridge {
    /// Returns the table if `find` has the address of each function.
    fn of(find: impl Fn(&CStr) -> Option<*mut c_void>) -> Option<Self> {
        // SAFETY: the types of the fields are those of the definitions in libcuda/src/names/vendor.rs, and prototypes of the driver
        // API.
        unsafe {
            Some(Self {
                load: function(find(c"virtio_cuda_vendor_load")?),
                call: function(find(c"virtio_cuda_vendor_call")?),
                pinned: function(find(c"virtio_cuda_vendor_pinned")?),
                init: function(find(c"cuInit")?),
                retain: function(find(c"cuDevicePrimaryCtxRetain")?),
                set_current: function(find(c"cuCtxSetCurrent")?),
                get_current: function(find(c"cuCtxGetCurrent")?),
                device: function(find(c"cuCtxGetDevice")?),
                alloc: function(find(c"cuMemAlloc_v2")?),
                free: function(find(c"cuMemFree_v2")?),
                copy: function(find(c"cuMemcpy2D_v2")?),
                copy_in_stream: function(find(c"cuMemcpy2DAsync_v2")?),
                attribute: function(find(c"cuPointerGetAttribute")?),
            })
        }
    }
}

/// Returns the function at an address.
///
/// # Safety
///
/// `F` is the type of a pointer to the function there.
unsafe fn function<F>(address: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: of the same size, and a pointer to the function by this function's contract.
    unsafe { transmute_copy(&address) }
}

static BRIDGE: OnceLock<Option<Bridge>> = OnceLock::new();

fn bridge() -> Option<&'static Bridge> {
    BRIDGE.get_or_init(Bridge::find).as_ref()
}

impl Bridge {
    fn find() -> Option<Self> {
        let Some(library) = Library::libcuda() else {
            eprintln!("vhost-cuda: libcuda.so.1 cannot be loaded, which its libraries need.");
            return None;
        };
        let find = |name: &CStr| {
            let address = library.symbol(name);
            if address.is_none() {
                eprintln!(
                    "vhost-cuda: this libcuda.so.1 is not vhost-cuda's: it lacks {}.",
                    name.to_string_lossy()
                );
            }
            address.map(NonNull::as_ptr)
        };
        Self::of(find)
    }

    /// Makes the primary context of a device current in the calling thread.
    fn make_context(&self, device: c_int) -> c_int {
        let mut context = 0;
        // SAFETY: `context` is a local; the functions have these types.
        unsafe {
            match (self.retain)(&raw mut context, device) {
                SUCCESS => (self.set_current)(context),
                error => error,
            }
        }
    }

    /// Runs `body`. Runs it again if `cuInit` or a context was missing, after adding that.
    fn prepared(&self, mut body: impl FnMut() -> c_int) -> c_int {
        let mut result = body();
        if result == NOT_INITIALIZED {
            // SAFETY: a plain call.
            result = match unsafe { (self.init)(0) } {
                SUCCESS => body(),
                error => error,
            };
        }
        if result == INVALID_CONTEXT {
            // The runtime would use the first device, too.
            result = match self.make_context(0) {
                SUCCESS => body(),
                error => error,
            };
        }
        result
    }
}

/// Makes the worker load a library of the host, of the major version `major` if available. Returns a bit for each of `digests`,
/// those of the rows here by the numbers of the functions, beginning with the lowest of the first byte: 1 if the worker's row
/// is the same.
///
/// Errors: a `CUresult`; [`NOT_FOUND`] if the host has none.
pub fn load(library: u32, major: u32, digests: &[u64]) -> Result<Box<[u8]>, c_int> {
    let bridge = bridge().ok_or(NOT_FOUND)?;
    let mut same = vec![0; digests.len().div_ceil(8)].into_boxed_slice();
    let result = bridge.prepared(|| {
        // SAFETY: a function of libcuda with these parameters; there are as many digests as said, and `same` has a bit for each.
        unsafe { (bridge.load)(library, major, digests.as_ptr(), digests.len(), same.as_mut_ptr()) }
    });
    check(result).map(|()| same)
}

/// Makes the worker call a function.
///
/// Errors: a `CUresult`, if the call did not reach the library.
pub fn call(arguments: &Arguments) -> Result<(), c_int> {
    let bridge = bridge().ok_or(NOT_FOUND)?;
    // SAFETY: the creator of `arguments` vouches for its memory ([`crate::front`] does: both are its own vectors).
    check(bridge.prepared(|| unsafe { (bridge.call)(arguments) }))
}

/// Allocates pinned memory, which is never freed. `None` if the allocation fails.
pub fn pinned(bytes: usize) -> Option<usize> {
    let (bridge, mut address) = (bridge()?, 0);
    // SAFETY: `address` is a local.
    let result = bridge.prepared(|| unsafe { (bridge.pinned)(&raw mut address, bytes) });
    (result == SUCCESS).then_some(address as usize)
}

/// Returns whether CUDA knows the memory at an address: device memory or pinned memory.
pub fn is_known(address: u64) -> bool {
    let mut kind = 0_u32;
    bridge().is_some_and(|bridge| {
        // SAFETY: libcuda writes a `CUmemorytype` for this attribute, a number of 32 bits for which `kind` has room,
        // and looks `address` up without following it.
        let result = unsafe { (bridge.attribute)((&raw mut kind).cast(), MEMORY_TYPE, address) };
        result == SUCCESS
    })
}

/// Returns the number of bytes from an address to the end of its allocation.
pub fn bytes_behind(address: u64) -> Option<u64> {
    let bridge = bridge()?;
    let attribute = |name| {
        let mut value = 0_u64;
        // SAFETY: libcuda writes 64 bits for these attributes, and looks `address` up without following it.
        let result = unsafe { (bridge.attribute)((&raw mut value).cast(), name, address) };
        (result == SUCCESS).then_some(value)
    };
    attribute(RANGE_START)?.checked_add(attribute(RANGE_BYTES)?)?.checked_sub(address)
}

/// Runs a 2D copy, on a stream if one is given.
///
/// Errors: a `CUresult`.
///
/// # Safety
///
/// Host memory of `copy` is valid until the copy is done.
pub unsafe fn copy(copy: &CUDA_MEMCPY2D, stream: Option<u64>) -> Result<(), c_int> {
    let bridge = bridge().ok_or(NOT_FOUND)?;
    // SAFETY: functions of libcuda with these parameters; the host memory is valid until the copy is done by this
    // function's contract.
    check(bridge.prepared(|| unsafe {
        match stream {
            Some(stream) => (bridge.copy_in_stream)(copy, stream),
            None => (bridge.copy)(copy),
        }
    }))
}

/// Allocates device memory.
///
/// Errors: a `CUresult`.
pub fn allocate(bytes: usize) -> Result<u64, c_int> {
    let (bridge, mut address) = (bridge().ok_or(NOT_FOUND)?, 0);
    // SAFETY: `address` is a local.
    check(bridge.prepared(|| unsafe { (bridge.alloc)(&raw mut address, bytes) })).map(|()| address)
}

/// Frees device memory.
///
/// Errors: a `CUresult`.
pub fn free(address: u64) -> Result<(), c_int> {
    let bridge = bridge().ok_or(NOT_FOUND)?;
    // SAFETY: libcuda checks the address.
    check(bridge.prepared(|| unsafe { (bridge.free)(address) }))
}

/// Returns the ordinal of the current context's device.
///
/// Errors: a `CUresult`.
pub fn current_device() -> Result<c_int, c_int> {
    let (bridge, mut device) = (bridge().ok_or(NOT_FOUND)?, 0);
    // SAFETY: `device` is a local.
    check(bridge.prepared(|| unsafe { (bridge.device)(&raw mut device) })).map(|()| device)
}

/// Runs `body` with the primary context of a device, and then makes the previous context current again.
///
/// Errors: a `CUresult`, if the device does not exist.
pub fn on_device<T>(device: c_int, body: impl FnOnce() -> T) -> Result<T, c_int> {
    let (bridge, mut before) = (bridge().ok_or(NOT_FOUND)?, 0);
    // SAFETY: `before` is a local.
    check(bridge.prepared(|| unsafe { (bridge.get_current)(&raw mut before) }))?;
    check(bridge.make_context(device))?;
    let value = body();
    // SAFETY: a context that was current, or null.
    check(unsafe { (bridge.set_current)(before) }).map(|()| value)
}

fn check(result: c_int) -> Result<(), c_int> {
    if result == SUCCESS { Ok(()) } else { Err(result) }
}
