// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The executor's state that translated code reads.

use std::ffi::c_void;

/// Words for scalar values on the way into and out of translated code.
pub(crate) const SCRATCH: usize = 1024;

/// The executor, as translated code sees it. Pointers are valid while the code runs.
#[repr(C)]
pub(crate) struct View {
    pub(crate) machine: *mut c_void,
    /// The frame of the running function.
    pub(crate) frame: *mut u8,
    pub(crate) shared: *mut u8,
    pub(crate) shared_bytes: u64,
    /// The address after `shared_bytes` where inactive lanes may write.
    pub(crate) shared_spare: u64,
    pub(crate) params: *const u8,
    /// The remembered ranges, by slot.
    pub(crate) ranges: *const c_void,
    /// The generation of the device's memory.
    pub(crate) generation: *const u64,
    /// Backward jumps left.
    pub(crate) budget: *mut u32,
    /// `Warp::polled`
    pub(crate) polled: *mut bool,
    pub(crate) globals: *const u64,
    pub(crate) shared_offsets: *const u32,
    /// threadIdx, three times 32 lanes.
    pub(crate) thread: *const u32,
    /// The lanes that are here.
    pub(crate) active: u32,
    pub(crate) merge_pc: u32,
    pub(crate) block: [u32; 3],
    pub(crate) block_size: [u32; 3],
    pub(crate) grid_size: [u32; 3],
    /// As `shared_spare`, for other memory.
    pub(crate) spare: [u64; 4],
    pub(crate) scratch: [u64; SCRATCH],
}

/// Translated code, entered at the entry with a number. The lower 32 bits of the result are the number of an exit, the upper
/// ones the last handler's result.
pub(crate) type NativeCode = unsafe extern "C" fn(*mut View, u32) -> u64;

/// The results of calling a handler from translated code.
pub(crate) mod called {
    /// Go on.
    pub(crate) const NEXT: u32 = 0;
    pub(crate) const SWITCH: u32 = 1;
    pub(crate) const FAULT: u32 = 2;
    /// Go on with the next instruction, but other lanes are active now.
    pub(crate) const CHANGED: u32 = 3;
}

impl View {
    /// For blocks and a grid of these sizes; the rest is set at each entry.
    pub(crate) fn new(block_size: [u32; 3], grid_size: [u32; 3]) -> Box<View> {
        Box::new(View {
            machine: std::ptr::null_mut(),
            frame: std::ptr::null_mut(),
            shared: std::ptr::null_mut(),
            shared_bytes: 0,
            shared_spare: 0,
            params: std::ptr::null(),
            ranges: std::ptr::null(),
            generation: std::ptr::null(),
            budget: std::ptr::null_mut(),
            polled: std::ptr::null_mut(),
            globals: std::ptr::null(),
            shared_offsets: std::ptr::null(),
            thread: std::ptr::null(),
            active: 0,
            merge_pc: 0,
            block: [0; 3],
            block_size,
            grid_size,
            spare: [0; 4],
            scratch: [0; SCRATCH],
        })
    }
}
