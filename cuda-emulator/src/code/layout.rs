// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layout of registers, frames and address windows.

/// 32 lanes of 16 bits: the allocation unit of register memory, so that every register is aligned for vector
/// instructions.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; 64]);

/// Hidden registers at the start of each frame: `[u32; 32]` each.
pub(crate) mod frame {
    /// The offset of the instruction at which `ret` continues.
    pub(crate) const RETURN_PC: u32 = 0;
    /// The frame of the caller.
    pub(crate) const RETURN_BASE: u32 = 128;
    /// The offset of the start of the function's local memory.
    pub(crate) const LOCAL_BASE: u32 = 256;
    /// The offset of its end, including `alloca`.
    pub(crate) const LOCAL_TOP: u32 = 384;
    /// The carry flag CC.CF, a predicate.
    pub(crate) const CARRY: u32 = 512;
    /// The size of all of these in bytes.
    pub(crate) const HEADER: u32 = 576;
}

/// The address windows that are not host memory. Generic addresses of shared, local and parameter memory lie there.
pub(crate) mod window {
    /// `.param` of a kernel.
    pub(crate) const PARAM: u64 = 0x0400_0000_0000;
    /// `.local`
    pub(crate) const LOCAL: u64 = 0x0500_0000_0000;
    /// `.shared`
    pub(crate) const SHARED: u64 = 0x0600_0000_0000;
    /// Addresses of functions: this value plus 16 times the index.
    pub(crate) const FUNCTION: u64 = 0x0300_0000_0000;
    /// The size of each window in bytes.
    pub(crate) const BYTES: u64 = 1 << 32;
}

/// Returns the index of the function with this address, if it is the address of a function.
pub(crate) fn function_at(address: u64) -> Option<usize> {
    let offset =
        address.checked_sub(window::FUNCTION).filter(|offset| *offset < window::BYTES && offset % 16 == 0)?;
    Some((offset / 16) as usize)
}

/// The minimum alignment of dynamic shared memory.
pub(crate) const DYNAMIC_ALIGNMENT: u32 = 16;

/// Returns the start of dynamic shared memory, which follows the static one.
pub(crate) fn dynamic_start(static_shared: u32) -> u32 {
    static_shared.next_multiple_of(DYNAMIC_ALIGNMENT)
}
