// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The targets of the functions of a static runtime. There is one slot per function and major version, which is filled
//! at the first call.
//!
//! Our libcudart cannot be loaded while the dynamic linker reports an object to the auditor. A slot therefore starts
//! with the address of [`enter_unresolved`], which loads the library and stores the function's address in the slot.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::runtime::Major;
use crate::{libraries, loader, report};

/// Bytes of the entry that is written over a function.
pub const ENTRY_BYTES: usize = 17;
/// Result of functions that our library does not have: `cudaErrorNotSupported`.
const NOT_SUPPORTED: c_int = 801;

/// The target of one function.
///
/// # Invariants
///
/// `target` is the address of code: [`enter_unresolved`], a function of our libcudart, which is never unloaded, or
/// [`not_supported`]. It is the first field, because entries jump through the slot's own address.
#[repr(C)]
pub struct Slot {
    target: AtomicPtr<c_void>,
    name: CString,
    major: Major,
}

type Slots = HashMap<(Major, String), &'static Slot>;

static SLOTS: LazyLock<Mutex<Slots>> = LazyLock::new(Mutex::default);

/// Returns the slot of a function; it exists as long as the process.
pub fn slot(name: &str, major: Major) -> Option<&'static Slot> {
    let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(slot) = slots.get(&(major, name.to_owned())) {
        return Some(slot);
    }
    let target = AtomicPtr::new(enter_unresolved as *mut c_void);
    let slot = Box::leak(Box::new(Slot { target, name: CString::new(name).ok()?, major }));
    slots.insert((major, name.to_owned()), slot);
    Some(slot)
}

impl Slot {
    /// Returns machine code that jumps to the slot's target, with all arguments unchanged:
    /// `endbr64; movabs $slot, %r11; jmp *(%r11)`. r11 carries no argument (System V ABI, 3.2.1).
    pub fn entry(&'static self) -> [u8; ENTRY_BYTES] {
        let mut entry = [0xf3, 0x0f, 0x1e, 0xfa, 0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0x23];
        entry[6..14].copy_from_slice(&ptr::from_ref(self).addr().to_le_bytes());
        entry
    }
}

/// Replaces functions that our library does not have.
extern "C" fn not_supported() -> c_int {
    NOT_SUPPORTED
}

/// Finds the function of a slot and stores it. Several threads may do so at once: all find the same.
extern "C" fn resolve(slot: &'static Slot) -> *mut c_void {
    let found = function(slot.major, &slot.name);
    let target = found.unwrap_or_else(|| {
        report::debug(format_args!("libcudart.so.{} has no {:?}", slot.major.version(), slot.name));
        not_supported as *mut c_void
    });
    slot.target.store(target, Ordering::Release);
    target
}

fn function(major: Major, name: &CStr) -> Option<*mut c_void> {
    let library = library(major)?;
    // SAFETY: the library is never closed, and the name ends with a NUL.
    let address = unsafe { (loader::functions()?.dlsym)(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// Loads our libcudart of this version into the program's namespace. dlopen would load it into the auditor's.
fn library(major: Major) -> Option<*mut c_void> {
    static OPENED: [AtomicPtr<c_void>; Major::COUNT] =
        [const { AtomicPtr::new(ptr::null_mut()) }; Major::COUNT];
    let opened = &OPENED[major as usize];
    let before = opened.load(Ordering::Acquire);
    if !before.is_null() {
        return Some(before);
    }
    let Some(path) = libraries::versioned("libcudart", major.number()) else {
        let version = major.version();
        report::problem(format_args!(
            "there is no libcudart.so.{version} beside libvhost-cuda-audit.so: install it there"
        ));
        return None;
    };
    let Some(loader) = loader::functions() else {
        report::problem(format_args!("cannot load {path:?}: the program has no C library with dlmopen"));
        return None;
    };
    // SAFETY: the path ends with a NUL. The library is ours: its constructors expect nothing of the caller.
    let handle =
        unsafe { (loader.dlmopen)(libc::LM_ID_BASE, path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NODELETE) };
    if handle.is_null() {
        // SAFETY: dlerror takes nothing. Its text is null or stays until this thread's next call of the loader.
        let text = unsafe { (loader.dlerror)().as_ref() };
        // SAFETY: dlerror's text ends with a NUL, and no call of the loader comes before it is reported below.
        let reason = text.map(|text| unsafe { CStr::from_ptr(text) });
        report::problem(format_args!("cannot load {path:?}: {reason:?}"));
        return None;
    }
    opened.store(handle, Ordering::Release);
    Some(handle)
}

/// The target of an empty slot, which is in r11. Saves all registers that can carry arguments (System V ABI, 3.2.3;
/// functions of the runtime take no vectors wider than 16 bytes), finds the function and jumps to it.
#[unsafe(naked)]
extern "C" fn enter_unresolved() {
    core::arch::naked_asm!(
        "endbr64",
        "push rbp",
        "mov rbp, rsp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        "push r10",
        "sub rsp, 128",
        "and rsp, -16",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "mov rdi, r11",
        "call {resolve}",
        "mov r11, rax",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "lea rsp, [rbp - 64]",
        "pop r10",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rbp",
        "jmp r11",
        resolve = sym resolve,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slot_for_each_function_and_version() {
        let slot = |name, major| ptr::from_ref(slot(name, major).expect("a name without NUL"));
        assert_eq!(slot("cudaMalloc", Major::Thirteen), slot("cudaMalloc", Major::Thirteen));
        assert_ne!(slot("cudaMalloc", Major::Thirteen), slot("cudaMalloc", Major::Twelve));
        assert_ne!(slot("cudaMalloc", Major::Thirteen), slot("cudaFree", Major::Thirteen));
    }

    #[test]
    fn an_entry_names_its_slot() {
        let slot = slot("cudaEntry", Major::Twelve).expect("a name without NUL");
        let entry = slot.entry();
        assert_eq!(entry[..6], [0xf3, 0x0f, 0x1e, 0xfa, 0x49, 0xbb]);
        assert_eq!(entry[6..14], ptr::from_ref(slot).addr().to_le_bytes());
        assert_eq!(entry[14..], [0x41, 0xff, 0x23]);
    }

    /// Executes the entry of a function that no library has: it returns that the call is not supported.
    #[test]
    fn a_function_that_is_missing_is_not_supported() {
        let entry = slot("cudaNoSuchFunction", Major::Thirteen).expect("a name without NUL").entry();
        // SAFETY: a new private mapping, which nothing else refers to.
        let code = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(code, libc::MAP_FAILED);
        // SAFETY: the mapping is ours and longer than an entry; the entry has no parameters that it could misread.
        let answer = unsafe {
            ptr::copy_nonoverlapping(entry.as_ptr(), code.cast(), entry.len());
            assert_eq!(libc::mprotect(code, 4096, libc::PROT_READ | libc::PROT_EXEC), 0);
            let function: extern "C" fn(u64, f64) -> c_int = std::mem::transmute(code);
            function(1, 2.0)
        };
        assert_eq!(answer, NOT_SUPPORTED);
    }
}
