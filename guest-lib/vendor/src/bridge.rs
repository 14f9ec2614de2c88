// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The way to the worker: two private functions of the guest's libcuda, so that calls keep their order with all others of the
//! process. With NVIDIA's libcuda there is none.

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

/// `CUDA_SUCCESS`
const SUCCESS: c_int = 0;
/// `CUDA_ERROR_NOT_INITIALIZED`
const NOT_INITIALIZED: c_int = 3;
/// `CUDA_ERROR_INVALID_CONTEXT`
const INVALID_CONTEXT: c_int = 201;
/// `CU_MEMHOSTALLOC_PORTABLE`
const HOST_PORTABLE: u32 = 1;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`
const MEMORY_TYPE: c_int = 2;
/// `CUDA_ERROR_NOT_FOUND`
pub const NOT_FOUND: c_int = 500;
/// `CUDA_ERROR_OUT_OF_MEMORY`
pub const OUT_OF_MEMORY: c_int = 2;

/// `virtio_cuda_vendor_open` (libcuda/src/vendor.rs).
type Open = unsafe extern "C" fn(u32, u32, u64) -> c_int;
/// `virtio_cuda_vendor_call`.
type Call = unsafe extern "C" fn(*const Arguments) -> c_int;

/// What `virtio_cuda_vendor_call` takes.
#[repr(C)]
#[derive(Debug)]
pub struct Arguments {
    /// The library's number.
    pub library: u32,
    /// The function's.
    pub function: u32,
    /// The stream that the work goes to.
    pub stream: u64,
    /// The block of arguments.
    pub input: *const u8,
    /// Its length.
    pub input_bytes: usize,
    /// Room for the answers.
    pub output: *mut u8,
    /// Its length; 0: the call need not be waited for.
    pub output_bytes: usize,
}

/// Functions of libcuda.
struct Bridge {
    open: Open,
    call: Call,
    init: unsafe extern "C" fn(u32) -> c_int,
    retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    set_current: unsafe extern "C" fn(*mut c_void) -> c_int,
    host_alloc: unsafe extern "C" fn(*mut usize, usize, u32) -> c_int,
    attribute: unsafe extern "C" fn(*mut c_void, c_int, u64) -> c_int,
}

static BRIDGE: OnceLock<Option<Bridge>> = OnceLock::new();

fn bridge() -> Option<&'static Bridge> {
    BRIDGE.get_or_init(Bridge::find).as_ref()
}

impl Bridge {
    fn find() -> Option<Self> {
        // SAFETY: the name is a C string. Our libcuda's constructors expect nothing of us.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            eprintln!("vhost-cuda: libcuda.so.1 cannot be loaded, which its libraries need.");
            return None;
        }
        let find = |name: &CStr| {
            // SAFETY: the library stays loaded, and the name is a C string.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            if address.is_null() {
                eprintln!(
                    "vhost-cuda: this libcuda.so.1 is not vhost-cuda's: it lacks {}.",
                    name.to_string_lossy()
                );
            }
            (!address.is_null()).then_some(address)
        };
        // SAFETY: the types are those of the definitions in libcuda/src/vendor.rs and of cuda.h.
        unsafe {
            Some(Self {
                open: transmute::<*mut c_void, Open>(find(c"virtio_cuda_vendor_open")?),
                call: transmute::<*mut c_void, Call>(find(c"virtio_cuda_vendor_call")?),
                init: transmute::<*mut c_void, unsafe extern "C" fn(u32) -> c_int>(find(c"cuInit")?),
                retain: transmute::<*mut c_void, unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int>(
                    find(c"cuDevicePrimaryCtxRetain")?,
                ),
                set_current: transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(find(
                    c"cuCtxSetCurrent",
                )?),
                host_alloc: transmute::<*mut c_void, unsafe extern "C" fn(*mut usize, usize, u32) -> c_int>(
                    find(c"cuMemHostAlloc")?,
                ),
                attribute: transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, c_int, u64) -> c_int>(
                    find(c"cuPointerGetAttribute")?,
                ),
            })
        }
    }

    /// Gives the calling thread the context that the runtime would give it: the primary one of the first device.
    fn make_context(&self) -> c_int {
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` is a local; the functions have these types.
        unsafe {
            match (self.retain)(&raw mut context, 0) {
                SUCCESS => (self.set_current)(context),
                error => error,
            }
        }
    }

    /// Runs `body`, and once more if it lacked `cuInit` or a context.
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
            result = match self.make_context() {
                SUCCESS => body(),
                error => error,
            };
        }
        result
    }
}

/// Has the worker load a library of the host, of the major version `major` if it can.
///
/// Errors: a `CUresult`; [`NOT_FOUND`] if the host has none.
pub fn open(library: u32, major: u32, digest: u64) -> Result<(), c_int> {
    let bridge = bridge().ok_or(NOT_FOUND)?;
    // SAFETY: a function of libcuda with these parameters.
    check(bridge.prepared(|| unsafe { (bridge.open)(library, major, digest) }))
}

/// Has the worker call a function.
///
/// Errors: a `CUresult`: the call did not reach the library.
pub fn call(arguments: &Arguments) -> Result<(), c_int> {
    let bridge = bridge().ok_or(NOT_FOUND)?;
    // SAFETY: whoever made `arguments` vouches for its memory ([`crate::front`] does: both are vectors of its own).
    check(bridge.prepared(|| unsafe { (bridge.call)(arguments) }))
}

/// Pinned memory, which stays. None if there is no more.
pub fn pinned(bytes: usize) -> Option<usize> {
    let (bridge, mut address) = (bridge()?, 0);
    // SAFETY: `address` is a local.
    let result = bridge.prepared(|| unsafe { (bridge.host_alloc)(&raw mut address, bytes, HOST_PORTABLE) });
    (result == SUCCESS).then_some(address)
}

/// Whether CUDA knows the memory at an address: that of a device, or pinned.
pub fn is_known(address: u64) -> bool {
    let mut kind = 0_u32;
    // SAFETY: this attribute is a number, for which `kind` has room.
    bridge().is_some_and(
        |bridge| unsafe { (bridge.attribute)((&raw mut kind).cast(), MEMORY_TYPE, address) } == SUCCESS,
    )
}

fn check(result: c_int) -> Result<(), c_int> {
    if result == SUCCESS { Ok(()) } else { Err(result) }
}
