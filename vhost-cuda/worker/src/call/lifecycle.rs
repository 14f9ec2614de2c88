// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creation, naming and destruction of objects, for `create`, `part` and `destroy` rows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vhost_cuda_common::exchange::{EVENT, POOL};
use virtio_cuda_protocol::cuda::{
    ArrayDescriptor, ArrayId, DeviceOrdinal, EventId, FunctionId, GraphId, LibraryId, MemoryPoolId,
    MipmappedArrayId, ModuleId, ResourceDescId, StreamId, SurfRefId, TexRefId,
};

use super::CallContext;
use super::local::charge_local;
use super::resolve::Named;
use crate::gpu::{CUarray, CUevent, CUgraph, CUmemoryPool, CUstream, CUtexref, CuResult, CudaError, Driver};
use crate::memory::allocations::Origin;
use crate::memory::pools;
use crate::objects::graphs::{Capturing, Taken};
use crate::objects::{Kind, Object, Reserved};

/// `CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES`.
const LOCAL_SIZE_BYTES: i32 = 3;

/// Reserves the name of an object that a call is about to create.
///
/// Errors: as [`crate::objects::Table::reserve`].
pub fn reserve<T: Named>(cx: &CallContext<'_>, name: T) -> CuResult<Reserved<'static>> {
    if let Some(token) = cx.thread.opened_event.take() {
        // The driver has not opened it.
        cx.session.sharing.event_ended(token);
    }
    T::table(&cx.session.objects).reserve(name.number())
}

/// Objects that a `create` row creates.
pub trait Create: Copy {
    /// The driver's handle.
    type Raw;
    /// The name while it has no object.
    type Reserved;
    /// Reserves the name before the driver creates the object.
    fn reserve(self, cx: &CallContext<'_>) -> CuResult<Self::Reserved>;
    /// Assigns the object to the name.
    fn made(self, cx: &CallContext<'_>, reserved: Self::Reserved, raw: Self::Raw) -> CuResult<()>;
}

/// Implements [`Create`] for objects of tables.
macro_rules! created {
    ($($name:ident: |$cx:ident, $raw:ident: $t:ty| $object:expr;)*) => { $(
        impl Create for $name {
            type Raw = $t;
            type Reserved = Reserved<'static>;
            fn reserve(self, cx: &CallContext<'_>) -> CuResult<Self::Reserved> {
                reserve(cx, self)
            }
            fn made(self, $cx: &CallContext<'_>, reserved: Self::Reserved, $raw: $t) -> CuResult<()> {
                $cx.fill(reserved, $object)
            }
        }
    )* };
}
created! {
    EventId: |cx, raw: CUevent| event(cx, raw);
    TexRefId: |cx, raw: CUtexref| cx.made(raw, Driver::cuTexRefDestroy);
    StreamId: |cx, raw: CUstream| stream(cx, raw);
    MemoryPoolId: |cx, raw: CUmemoryPool| pool(cx, raw);
    ResourceDescId: |_cx, raw: crate::gpu::CUdevResourceDesc| Object::new(raw);
}

fn event(cx: &CallContext<'_>, raw: CUevent) -> Object {
    let Some(token) = cx.thread.opened_event.take() else { return cx.made(raw, Driver::cuEventDestroy_v2) };
    let (sharing, makes_again) = (&cx.session.sharing, &cx.session.suspension.makes_again);
    cx.made_in(cx.home_of(), raw, move |gpu: &Driver, raw| {
        gpu.cuEventDestroy_v2(raw).inspect(|()| {
            // The daemon knows of all that end together.
            if !makes_again.load(Ordering::Relaxed) {
                sharing.event_ended(token);
            }
        })
    })
}

fn stream(cx: &CallContext<'_>, raw: CUstream) -> Object {
    let graphs = &cx.session.graphs;
    let end = move |gpu: &Driver, raw: CUstream| {
        // If the stream captures, its graph ends with it, and no other call may use that graph meanwhile.
        let _captures = graphs.is_capturing().then(|| graphs.captures().lock());
        graphs.capture_ended(Capturing::Stream(raw as usize), true);
        gpu.cuStreamDestroy_v2(raw)
    };
    cx.made_in(cx.home_of(), raw, end)
}

/// Returns the object of a pool. Pools belong to no context.
fn pool(cx: &CallContext<'_>, raw: CUmemoryPool) -> Object {
    let session = cx.session;
    cx.made_in(None, raw, move |_, raw| pools::destroy(session, raw))
}

impl Create for GraphId {
    type Raw = CUgraph;
    type Reserved = Taken<'static>;
    fn reserve(self, cx: &CallContext<'_>) -> CuResult<Taken<'static>> {
        cx.session.graphs.take_graph_name(self)
    }
    fn made(self, cx: &CallContext<'_>, _name: Taken<'static>, raw: CUgraph) -> CuResult<()> {
        cx.session.graphs.add_graph(cx.held(), self, raw, None);
        Ok(())
    }
}

/// An object that has parts with names.
pub trait Whole: Copy {
    /// Returns the object, which the part must not outlive. A device is not an object.
    ///
    /// Errors: as for the call's own use of it.
    fn whole(self, cx: &CallContext<'_>) -> CuResult<Option<Arc<Object>>>;
}

impl<T: InTable> Whole for T {
    fn whole(self, cx: &CallContext<'_>) -> CuResult<Option<Arc<Object>>> {
        const { assert!(T::HAS_PARTS, "a row names a part of an object that has none") };
        T::table(&cx.session.objects).get(self.number()).map(Some)
    }
}

impl Whole for FunctionId {
    /// A kernel. A function is a part itself.
    fn whole(self, cx: &CallContext<'_>) -> CuResult<Option<Arc<Object>>> {
        let object = cx.session.objects.functions.get(self.0)?;
        if object.kind() == Kind::Kernel { Ok(Some(object)) } else { Err(CudaError::INVALID_HANDLE) }
    }
}

impl Whole for DeviceOrdinal {
    fn whole(self, cx: &CallContext<'_>) -> CuResult<Option<Arc<Object>>> {
        cx.session.device(self.0).map(|_| None)
    }
}

/// Parts of `W`.
pub trait Part<W>: Named {
    /// True if the part lives in the current context.
    const IN_CONTEXT: bool = true;
    /// The kind of the object in a table of functions.
    const KIND: Kind = Kind::Plain;
    /// Charges the resources that the part takes.
    fn charge<T>(_cx: &CallContext<'_>, _raw: *mut T) -> CuResult<()> {
        Ok(())
    }
}

impl Part<ArrayId> for ArrayId {}
impl Part<MipmappedArrayId> for ArrayId {}
impl Part<ModuleId> for TexRefId {}
impl Part<ModuleId> for SurfRefId {}
impl Part<LibraryId> for ModuleId {}
impl Part<FunctionId> for FunctionId {}
impl Part<ModuleId> for FunctionId {
    fn charge<T>(cx: &CallContext<'_>, raw: *mut T) -> CuResult<()> {
        charge_local(cx, |_| cx.gpu().cuFuncGetAttribute(LOCAL_SIZE_BYTES, raw.cast()))
    }
}
impl Part<LibraryId> for FunctionId {
    const IN_CONTEXT: bool = false;
    const KIND: Kind = Kind::Kernel;
    fn charge<T>(cx: &CallContext<'_>, raw: *mut T) -> CuResult<()> {
        charge_local(cx, |device| cx.gpu().cuKernelGetAttribute(LOCAL_SIZE_BYTES, raw.cast(), device))
    }
}
impl Part<DeviceOrdinal> for MemoryPoolId {
    const IN_CONTEXT: bool = false;
}

/// Returns the object of a part that the driver identifies as `raw`.
pub fn part<W, P: Part<W>, T>(
    cx: &CallContext<'_>,
    _of: W,
    _new: P,
    raw: *mut T,
    whole: Option<Arc<Object>>,
) -> CuResult<Object> {
    P::charge(cx, raw)?;
    let object = Object::new(raw).of_kind(P::KIND);
    let object = if P::IN_CONTEXT { object.in_context(cx.home_of()) } else { object };
    Ok(match whole {
        Some(whole) => object.part_of(whole),
        None => object,
    })
}

/// Returns the description of an array, or of a part of one.
pub fn described(cx: &CallContext<'_>, array: CUarray) -> CuResult<ArrayDescriptor> {
    Ok(cx.gpu().cuArray3DGetDescriptor_v2(array)?.0.into())
}

/// Objects that a `destroy` row ends.
pub trait Destroy {
    /// Removes the name, and destroys the object unless a call uses it.
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()>;
}

/// Objects of a table, as `destroy` rows end them.
pub trait InTable: Named {
    /// The kind of offer by which other processes open it, if they may.
    const OFFERED: Option<u32> = None;
    /// True if other objects may be parts of it.
    const HAS_PARTS: bool = false;
    /// The error for a part of another object: the driver destroys it with the whole, and must not destroy it twice.
    const PART: CudaError = CudaError::INVALID_HANDLE;
    /// Forgets the session's records about it.
    fn forget(self, _cx: &CallContext<'_>) {}
}

// As on a host, this does not wait for calls that wait for the stream.
impl InTable for StreamId {}
impl InTable for EventId {
    const OFFERED: Option<u32> = Some(EVENT);
}
impl InTable for TexRefId {}
impl InTable for ArrayId {
    const HAS_PARTS: bool = true;
}
impl InTable for MipmappedArrayId {
    const HAS_PARTS: bool = true;
}
impl InTable for ModuleId {
    const HAS_PARTS: bool = true;
    fn forget(self, cx: &CallContext<'_>) {
        cx.session.allocations().forget(|range| range.origin == Origin::ModuleGlobal(self.0));
    }
}
impl InTable for LibraryId {
    const HAS_PARTS: bool = true;
    fn forget(self, cx: &CallContext<'_>) {
        let of_it = [Origin::LibraryGlobal(self.0), Origin::Named(self.0)];
        cx.session.allocations().forget(|range| of_it.contains(&range.origin));
        cx.session.variables.forget(self);
    }
}
impl InTable for MemoryPoolId {
    const OFFERED: Option<u32> = Some(POOL);
    // Only a device's default pool is a part.
    const PART: CudaError = CudaError::INVALID_VALUE;
    fn forget(self, cx: &CallContext<'_>) {
        cx.session.thresholds.lock().remove(&self.0);
    }
}

impl<T: InTable> Destroy for T {
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        let objects = &cx.session.objects;
        let (table, number) = (T::table(objects), self.number());
        if !table.get(number)?.is_whole() {
            return Err(T::PART);
        }
        let object = table.close(number)?;
        if !object.has_name_to_free() {
            table.free_name(number);
        }
        if T::HAS_PARTS {
            objects.close_parts(&object);
        }
        if let Some(kind) = T::OFFERED {
            cx.session.sharing.end(kind, number);
        }
        self.forget(cx);
        Object::destroy(object)
    }
}
