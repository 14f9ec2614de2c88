// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The kinds of the driver API's objects. A handle that this project chooses carries its kind, so a call knows when it
//! was given the handle of an object of another kind. It then answers as NVIDIA's driver does (580 on an H200, the rules
//! `kinds`), which reads the other object as one of its own. Where that driver crashes, or succeeds without a sense, the
//! answer is `CUDA_ERROR_INVALID_HANDLE`, or that of an unknown handle.

/// `CUDA_ERROR_*`.
const INVALID_VALUE: i32 = 1;
const INVALID_CONTEXT: i32 = 201;
const INVALID_HANDLE: i32 = 400;
const ILLEGAL_STATE: i32 = 401;
const CONTEXT_IS_DESTROYED: i32 = 709;
const NOT_SUPPORTED: i32 = 801;

/// Handles have their kind above this many bits.
const SHIFT: u32 = 38;
/// Bits of a kind.
const BITS: u32 = 5;

/// Defines `Kind`, with a list of all.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// A kind of object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// All kinds, in the order of their numbers.
            const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}
kinds! {
    /// `CUstream`.
    Stream
    /// `CUevent`.
    Event
    /// `CUmodule`.
    Module
    /// `CUfunction`.
    Function
    /// `CUlibrary`.
    Library
    /// `CUkernel`.
    Kernel
    /// `CUlinkState`.
    Link
    /// `CUgraph`.
    Graph
    /// `CUgraphExec`.
    Exec
    /// `CUgraphNode`.
    Node
    /// `CUarray`.
    Array
    /// `CUmipmappedArray`.
    Levels
    /// `CUmemoryPool`.
    Pool
    /// `CUuserObject`.
    User
    /// `CUcontext`.
    Context
    /// `CUgreenCtx`.
    Green
    /// Any other.
    Other
}
const _: () = assert!(Kind::ALL.len() < 1 << BITS);

impl Kind {
    /// Returns the handle of an object of this kind. `number` is at most 38 bits long.
    pub const fn handle(self, number: u64) -> u64 {
        (self as u64 + 1) << SHIFT | number & ((1 << SHIFT) - 1)
    }

    /// Returns the kind of an object. `None`: somebody else chose the handle, or nobody.
    pub fn of(handle: u64) -> Option<Self> {
        let number = usize::try_from(handle >> SHIFT).ok()?.checked_sub(1)?;
        Self::ALL.get(number).copied()
    }

    /// Returns the `CUresult` of a call that needs an object of this kind and gets `handle`, which is of no such object.
    pub fn refusal(self, handle: u64) -> i32 {
        let unknown = match self {
            Self::Graph | Self::Exec | Self::Node | Self::Pool | Self::User => INVALID_VALUE,
            Self::Context | Self::Green => INVALID_CONTEXT,
            _ => INVALID_HANDLE,
        };
        let Some(given) = Self::of(handle) else { return unknown };
        match (self, given) {
            (Self::Stream, Self::Event | Self::Array) => CONTEXT_IS_DESTROYED,
            (Self::Stream, Self::Pool | Self::User) => INVALID_CONTEXT,
            (Self::Event | Self::Array | Self::Levels, Self::Stream | Self::Pool | Self::User) => {
                CONTEXT_IS_DESTROYED
            }
            (Self::Event, Self::Array) => NOT_SUPPORTED,
            (Self::Module, Self::Graph) => CONTEXT_IS_DESTROYED,
            (Self::Graph, Self::Context) | (Self::Node, Self::Module) => ILLEGAL_STATE,
            (Self::Context, Self::Module | Self::Function | Self::Graph | Self::User | Self::Context) => {
                INVALID_CONTEXT
            }
            (Self::Context, _) => CONTEXT_IS_DESTROYED,
            (Self::Green, Self::Context | Self::Green) => INVALID_CONTEXT,
            (Self::Green, _) => CONTEXT_IS_DESTROYED,
            _ => unknown,
        }
    }

    /// Returns the `CUresult` of [`Self::refusal`] if `handle` is of an object of another kind.
    pub fn mismatch(self, handle: u64) -> Option<i32> {
        if handle >> SHIFT == self as u64 + 1 {
            return None;
        }
        Self::of(handle).map(|_| self.refusal(handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_carries_its_kind() {
        for kind in Kind::ALL {
            for number in [0, 0x1000, (1 << SHIFT) - 16] {
                let handle = kind.handle(number);
                assert_eq!(Kind::of(handle), Some(*kind));
                assert_eq!(kind.mismatch(handle), None);
                assert!(handle < 0x1000_0000_0000, "below what guest and emulator use for other handles");
            }
        }
        for other in [0, 1, 2, 0x1000, (1 << SHIFT) - 1, 0x4000_0000_0000, u64::MAX] {
            assert_eq!(Kind::of(other), None, "{other:#x}");
        }
    }

    #[test]
    fn no_other_kind_is_accepted() {
        for kind in Kind::ALL {
            for given in Kind::ALL.iter().filter(|given| *given != kind) {
                assert!(kind.mismatch(given.handle(16)).is_some_and(|error| error > 0));
            }
        }
    }
}
