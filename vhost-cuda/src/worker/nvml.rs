// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GPU memory as NVIDIA's management library sees it: CUDA itself tells only once a context is there.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use super::gpu::Driver;

/// Room for a PCI address, as cuDeviceGetPCIBusId asks for.
const PCI_BYTES: usize = 16;

/// `nvmlMemory_t`, in bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Memory {
    /// All.
    pub total: u64,
    /// Not in use.
    pub free: u64,
    /// In use, by whomever.
    pub used: u64,
}

type Get = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;

/// A device of the library.
///
/// # Invariants
///
/// `device` is a handle that the library gave, and `get` its function.
#[derive(Debug)]
pub struct Nvml {
    device: *mut c_void,
    get: Symbol<Get>,
    /// What `get` lives in. Never closed: the library was not made to be initialised twice in a process.
    _library: ManuallyDrop<Library>,
}

impl Nvml {
    /// The device that CUDA calls `device`. `None`: there is no such library, or it does not know the device, as
    /// with the emulator.
    pub fn of(gpu: &Driver, device: c_int) -> Option<Self> {
        let mut pci = [0 as c_char; PCI_BYTES];
        // SAFETY: the driver writes at most the length of `pci`, which lives through the call.
        unsafe { gpu.cuDeviceGetPCIBusId(pci.as_mut_ptr(), PCI_BYTES as c_int, device) }.ok()?;
        // SAFETY: the library is NVIDIA's own, found as its other programs find it; the prototypes are nvml.h's.
        unsafe {
            let library = Library::open(Some("libnvidia-ml.so.1"), RTLD_NOW | RTLD_LOCAL).ok()?;
            let init: Symbol<unsafe extern "C" fn() -> c_int> = symbol(&library, c"nvmlInit_v2")?;
            let find: Symbol<unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int> =
                symbol(&library, c"nvmlDeviceGetHandleByPciBusId_v2")?;
            let get = symbol(&library, c"nvmlDeviceGetMemoryInfo")?;
            let mut device = std::ptr::null_mut();
            let found = init() == 0 && find(pci.as_ptr(), &raw mut device) == 0;
            found.then_some(Self { device, get, _library: ManuallyDrop::new(library) })
        }
    }

    /// Its memory now.
    pub fn memory(&self) -> Option<Memory> {
        let mut memory = Memory::default();
        // SAFETY: by the invariant; `memory` is a local of the right layout.
        let result = unsafe { (self.get)(self.device, &raw mut memory) };
        (result == 0).then_some(memory)
    }
}

/// A function of `library`.
///
/// # Safety
///
/// `T` must be its type.
unsafe fn symbol<T>(library: &Library, name: &CStr) -> Option<Symbol<T>> {
    // SAFETY: the caller's promise.
    unsafe { library.get(name.to_bytes_with_nul()) }.ok()
}
