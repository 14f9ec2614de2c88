// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every guest value becomes a host value here, by its type; [`crate::dispatch::answer`] has the way back. A type
//! without [`Resolve`] does not reach the driver.

use virtio_cuda_protocol::cuda::{
    AllocationProperties, ArrayId, ContextId, DeviceOrdinal, DevicePtr, EventId, FunctionId, GraphExecId,
    GraphId, GraphNodeId, JitOptions, LibraryId, LinkId, Location, MemoryPoolId, MipmappedArrayId, ModuleId,
    ResourceDescId, StreamId, SurfRefId, TexRefId, UserObjectId,
};

use super::CallContext;
use crate::gpu::{
    ALLOCATION_PINNED, CUarray, CUcontext, CUdevResourceDesc, CUevent, CUfunction, CUgraph, CUgraphExec,
    CUgraphNode, CUkernel, CUlibrary, CUmemoryPool, CUmipmappedArray, CUmodule, CUstream, CUsurfref,
    CUtexref, CuResult, CudaError, HANDLE_TYPE_FILE, LOCATION_DEVICE, Mut, RawAllocation, RawLocation, Ref,
};
use crate::objects::{Kind, Objects, Table};

/// The maximum of CUDA's own stream values: 0 is the current default stream, 1 the legacy one, 2 the thread's.
const LAST_DEFAULT_STREAM: u64 = 2;

/// Turns a value of the wire into the driver's argument, which may borrow the call's bulk input (`'c`).
pub trait Resolve<'c, Host>: Sized {
    /// Looks the value up in the session. The call keeps the object until it is done.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`, for contexts `CUDA_ERROR_INVALID_CONTEXT`, for devices
    /// `CUDA_ERROR_INVALID_DEVICE`; `CUDA_ERROR_INVALID_VALUE` for values out of range.
    fn resolve(self, cx: &CallContext<'c>) -> CuResult<Host>;
}

/// Names of objects in one of the session's tables.
pub trait Named: Copy {
    /// The driver's handle of such an object.
    type Raw;
    /// The table.
    fn table(objects: &Objects) -> &Table;
    /// The name as a number.
    fn number(self) -> u64;
}

/// Values that are the same on the wire and for the driver, and arguments that are the driver's already.
pub trait Ready: Sized {}

impl<T: Ready> Resolve<'_, T> for T {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<T> {
        Ok(self)
    }
}

impl Ready for bool {}
impl Ready for u8 {}
impl Ready for u16 {}
impl Ready for u32 {}
impl Ready for i32 {}
impl Ready for u64 {}
impl Ready for f32 {}
impl Ready for [f32; 4] {}
// Parts of the session look these up themselves.
impl Ready for LinkId {}
impl Ready for JitOptions {}
impl Ready for UserObjectId {}

impl Resolve<'_, usize> for u64 {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<usize> {
        self.try_into().map_err(|_| CudaError::INVALID_VALUE)
    }
}

impl Resolve<'_, bool> for u32 {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<bool> {
        Ok(self != 0)
    }
}

impl Resolve<'_, i32> for u32 {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<i32> {
        self.try_into().map_err(|_| CudaError::INVALID_VALUE)
    }
}

impl Resolve<'_, Mut<u64>> for u64 {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<Mut<u64>> {
        Ok(Mut(self))
    }
}

impl Resolve<'_, Mut<[f32; 4]>> for [f32; 4] {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<Mut<[f32; 4]>> {
        Ok(Mut(self))
    }
}

/// Implements names of objects: the driver's handle, and the table.
macro_rules! named {
    ($($name:ident($raw:ty) in $table:ident;)*) => { $(
        impl Named for $name {
            type Raw = $raw;
            fn table(objects: &Objects) -> &Table {
                &objects.$table
            }
            fn number(self) -> u64 {
                self.0
            }
        }
    )* };
}
named! {
    ResourceDescId(CUdevResourceDesc) in descriptions;
    FunctionId(CUfunction) in functions;
    StreamId(CUstream) in streams;
    EventId(CUevent) in events;
    ModuleId(CUmodule) in modules;
    LibraryId(CUlibrary) in libraries;
    ArrayId(CUarray) in arrays;
    MipmappedArrayId(CUmipmappedArray) in mipmaps;
    TexRefId(CUtexref) in texture_references;
    SurfRefId(CUsurfref) in surface_references;
    MemoryPoolId(CUmemoryPool) in pools;
}

/// Implements names whose object stays until the call has ended.
macro_rules! looked_up {
    ($($name:ident),*) => { $(
        impl Resolve<'_, <$name as Named>::Raw> for $name {
            fn resolve(self, cx: &CallContext<'_>) -> CuResult<<$name as Named>::Raw> {
                cx.keep($name::table(&cx.session.objects), self.0)
            }
        }
    )* };
}
looked_up!(EventId, ModuleId, LibraryId, ArrayId, MipmappedArrayId, TexRefId, SurfRefId, MemoryPoolId);

impl Resolve<'_, CUstream> for StreamId {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUstream> {
        if self.0 <= LAST_DEFAULT_STREAM {
            cx.note_capture(self.0 as CUstream);
            return Ok(self.0 as CUstream);
        }
        let stream = cx.keep(&cx.session.objects.streams, self.0)?;
        cx.note_capture(stream);
        Ok(stream)
    }
}

impl Resolve<'_, CUcontext> for ContextId {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUcontext> {
        Ok(cx.held().keep(cx.session.contexts.get(self)?.object))
    }
}

impl Resolve<'_, i32> for DeviceOrdinal {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<i32> {
        cx.session.device(self.0)
    }
}

impl Resolve<'_, CUfunction> for FunctionId {
    /// Accepts either kind: the driver takes a kernel for a function.
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUfunction> {
        cx.keep(&cx.session.objects.functions, self.0)
    }
}

impl Resolve<'_, CUkernel> for FunctionId {
    /// Accepts a kernel only: the driver does not take a function for one.
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUkernel> {
        let object = cx.session.objects.functions.get(self.0)?;
        if object.kind() != Kind::Kernel {
            return Err(CudaError::INVALID_HANDLE);
        }
        Ok(cx.held().keep(object))
    }
}

impl Resolve<'_, CUgraph> for GraphId {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUgraph> {
        cx.graph(self)
    }
}

impl Resolve<'_, CUgraphNode> for GraphNodeId {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUgraphNode> {
        cx.node(self)
    }
}

impl Resolve<'_, CUgraphExec> for GraphExecId {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUgraphExec> {
        cx.session.graphs.exec(cx.held(), self)
    }
}

impl Resolve<'_, RawLocation> for Location {
    /// Returns the driver's numbers. `CUDA_ERROR_NOT_SUPPORTED` for locations other than devices.
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<RawLocation> {
        if self.kind != LOCATION_DEVICE {
            return Err(CudaError::NOT_SUPPORTED);
        }
        let ordinal = u32::try_from(self.id).map_err(|_| CudaError::INVALID_DEVICE)?;
        Ok(RawLocation { kind: LOCATION_DEVICE, id: cx.session.device(ordinal)? })
    }
}

impl Resolve<'_, Mut<RawLocation>> for Location {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Mut<RawLocation>> {
        Ok(Mut(self.resolve(cx)?))
    }
}

impl Resolve<'_, Ref<RawAllocation>> for AllocationProperties {
    /// `CUDA_ERROR_NOT_SUPPORTED` for handle types other than none and file descriptors.
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Ref<RawAllocation>> {
        if self.kind != ALLOCATION_PINNED {
            return Err(CudaError::INVALID_VALUE);
        }
        if self.handle_types & !HANDLE_TYPE_FILE != 0 {
            return Err(CudaError::NOT_SUPPORTED);
        }
        let bytes = [self.compression, self.gpu_direct_rdma];
        if bytes.iter().any(|&value| value > u8::MAX.into()) || self.usage > u16::MAX.into() {
            return Err(CudaError::INVALID_VALUE);
        }
        Ok(Ref(RawAllocation::of_wire(&self, self.location.resolve(cx)?)))
    }
}

/// A range of device memory that a call uses. The row states its bytes; `None` if they overflow.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// The first byte.
    pub start: DevicePtr,
    /// Bytes.
    pub bytes: Option<u64>,
    /// The call writes there.
    pub written: bool,
}

impl Region {
    /// The address for the driver; `None` if the range is empty, for which the driver is not called.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a range that is not memory of the session.
    pub fn checked(self, cx: &CallContext<'_>) -> CuResult<Option<u64>> {
        match self.bytes.ok_or(CudaError::INVALID_VALUE)? {
            0 => Ok(None),
            bytes if self.written => {
                cx.session.check_written(self.start.0, bytes).map(|()| Some(self.start.0))
            }
            bytes => cx.session.check(self.start.0, bytes).map(|()| Some(self.start.0)),
        }
    }
}

impl Resolve<'_, Region> for Region {
    /// Checked after everything else.
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<Region> {
        Ok(self)
    }
}

/// Bytes of `count` elements, for the `where` clause of a row.
pub fn elements(count: u64, bytes: u64) -> Option<u64> {
    count.checked_mul(bytes)
}

/// Bytes from the first to the last of `height` rows of `width` elements that begin `pitch` bytes apart, for the `where`
/// clause of a row.
pub fn rows(width: u64, bytes: u64, pitch: u64, height: u64) -> Option<u64> {
    if width == 0 || height == 0 {
        return Some(0);
    }
    (height - 1).checked_mul(pitch)?.checked_add(width.checked_mul(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every combination of boundary values with arithmetic that cannot overflow.
    #[test]
    fn ranges_are_exact_or_refused() {
        let edges =
            [0, 1, 2, 3, 4, 255, 4096, 1 << 31, 1 << 32, 1 << 63, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        let exact = |bytes: u128| u64::try_from(bytes).ok();
        for width in edges {
            for bytes in [1, 2, 4] {
                assert_eq!(elements(width, bytes), exact(u128::from(width) * u128::from(bytes)));
                for pitch in edges {
                    for height in edges {
                        let all = match u128::from(height).checked_sub(1) {
                            Some(before) if width > 0 => {
                                // Below 2^128: a product of two numbers of 64 bits, and one of 66.
                                before.checked_mul(u128::from(pitch)).and_then(|start| {
                                    exact(start.checked_add(u128::from(width) * u128::from(bytes))?)
                                })
                            }
                            _ => Some(0),
                        };
                        assert_eq!(
                            rows(width, bytes, pitch, height),
                            all,
                            "{width} {bytes} {pitch} {height}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_end_with_the_last_row() {
        assert_eq!(elements(3, 4), Some(12));
        assert_eq!(elements(u64::MAX, 2), None);
        assert_eq!(rows(10, 2, 100, 3), Some(220));
        assert_eq!(rows(10, 2, u64::MAX, 1), Some(20));
        assert_eq!((rows(0, 4, 8, 9), rows(9, 4, 8, 0)), (Some(0), Some(0)));
        assert_eq!((rows(1, 1, u64::MAX, 3), rows(u64::MAX, 2, 0, 1)), (None, None));
    }
}
