// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Names of objects that live in the worker. The guest chooses them (so that creation needs no answer) and
//! the worker looks them up in its session's table. No host pointer ever crosses, except for the handles of executable
//! graphs that device code launches; these are looked up, too.

use super::value::{Malformed, Overflow, Reader, Wire, Writer};

/// The first name that the worker chooses itself, for objects that the driver makes on its own (nodes of a
/// capture, graphs inside of graphs). A guest must choose smaller ones.
pub const FIRST_WORKER_HANDLE: u64 = 0x4000_0000_0000;
/// The minimum name that a guest may choose. Smaller values are CUDA's own constants (default streams).
pub const FIRST_HANDLE: u64 = 0x1000;
/// Handles that the guest library chooses are this far apart: multiples of 16 look like pointers to programs that check
/// alignment.
pub const HANDLE_STEP: u64 = 16;

/// Variables that the guest library copies by their names have these numbers, each a multiple of [`VARIABLE_STEP`] above the first one.
/// In copies, the number with an offset in the variable stands for its address, which the guest does not know then. No memory has
/// such an address.
pub const FIRST_VARIABLE: u64 = 1 << 62;
/// The maximum length of such a variable, in bytes.
pub const VARIABLE_STEP: u64 = 1 << 40;

/// Defines types of handles, which cross as numbers.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl Wire for $name {
            const BYTES: usize = u64::BYTES;
            fn put(&self, w: &mut Writer<'_>) -> Result<(), Overflow> {
                self.0.put(w)
            }
            fn take(r: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(Self(u64::take(r)?))
            }
        }
    )* };
}

handles! {
    /// An address in the GPU's address space (`CUdeviceptr`), valid on both sides.
    DevicePtr;
    /// `CUcontext`; 0 for none.
    ContextId;
    /// `CUdevResourceDesc`.
    ResourceDescId;
    /// `CUmodule`.
    ModuleId;
    /// `CUlibrary`.
    LibraryId;
    /// `CUkernel` or `CUfunction`: the driver accepts either.
    FunctionId;
    /// A variable of a library in a context, by its name. See [`FIRST_VARIABLE`].
    VariableId;
    /// `CUstream`; 0, 1 (legacy) and 2 (per thread) are CUDA's own.
    StreamId;
    /// `CUevent`.
    EventId;
    /// `CUmemoryPool`.
    MemoryPoolId;
    /// `CUarray`.
    ArrayId;
    /// `CUmipmappedArray`.
    MipmappedArrayId;
    /// `CUtexref`.
    TexRefId;
    /// `CUsurfref`.
    SurfRefId;
    /// `CUmemGenericAllocationHandle`.
    AllocationId;
    /// `CUexternalMemory`.
    ExternalMemoryId;
    /// `CUlinkState`.
    LinkId;
    /// `CUgraph`; 0 for none.
    GraphId;
    /// `CUgraphNode`; 0 for none.
    GraphNodeId;
    /// `CUgraphExec`.
    GraphExecId;
    /// `CUuserObject`.
    UserObjectId;
    /// A function that the guest runs when the worker says so; 0 for none. See `session_next_callback`.
    CallbackId;
}

/// A device, by its number in the worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceOrdinal(pub u32);

impl Wire for DeviceOrdinal {
    const BYTES: usize = u32::BYTES;
    fn put(&self, w: &mut Writer<'_>) -> Result<(), Overflow> {
        self.0.put(w)
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(u32::take(r)?))
    }
}
