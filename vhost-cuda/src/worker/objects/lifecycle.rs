// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creation and destruction of objects, for `create` and `destroy` rows.

use virtio_cuda_protocol::cuda::{ArrayId, EventId, MipmappedArrayId, StreamId, TexRefId};

use super::{Object, Reserved};
use crate::exchange::EVENT;
use crate::worker::gpu::{CUevent, CUstream, CUtexref, CuResult, CudaError, Driver};
use crate::worker::run::call::CallContext;
use crate::worker::run::resolve::Named;

/// Takes the name of an object that a call is about to create.
///
/// Errors: as [`super::Table::reserve`].
pub fn reserve<T: Named>(cx: &CallContext<'_>, name: T) -> CuResult<Reserved<'static>> {
    T::table(&cx.session.objects).reserve(name.number())
}

/// Objects that a `create` row makes.
pub trait Create: Named {
    /// The object, in the current context.
    fn made(cx: &CallContext<'_>, raw: Self::Raw) -> Object;
}

impl Create for EventId {
    fn made(cx: &CallContext<'_>, raw: CUevent) -> Object {
        cx.made(raw, Driver::cuEventDestroy_v2)
    }
}

impl Create for TexRefId {
    fn made(cx: &CallContext<'_>, raw: CUtexref) -> Object {
        cx.made(raw, Driver::cuTexRefDestroy)
    }
}

impl Create for StreamId {
    fn made(cx: &CallContext<'_>, raw: CUstream) -> Object {
        let graphs = &cx.session.graphs;
        let end = move |gpu: &Driver, raw: CUstream| {
            // If it captures, its graph dies with it, which no other call may use meanwhile.
            let _captures = graphs.is_capturing().then(|| graphs.captures().lock());
            graphs.capture_ended(raw as usize, true);
            gpu.cuStreamDestroy_v2(raw)
        };
        cx.made_in(cx.home_of(), raw, end)
    }
}

/// Objects that a `destroy` row ends.
pub trait Destroy: Named {
    /// What other processes know it by, if they may open it.
    const OFFERED: Option<u32> = None;
    /// Other objects may be parts of it.
    const HAS_PARTS: bool = false;
}

// Natively, too, this does not wait for calls that wait for the stream.
impl Destroy for StreamId {}
impl Destroy for EventId {
    const OFFERED: Option<u32> = Some(EVENT);
}
impl Destroy for TexRefId {}
impl Destroy for ArrayId {
    const HAS_PARTS: bool = true;
}
impl Destroy for MipmappedArrayId {
    const HAS_PARTS: bool = true;
}

/// Destroys an object.
///
/// Errors: `CUDA_ERROR_INVALID_HANDLE`, also for a part of something else: the driver destroys it with the whole, and must
/// not do it twice.
pub fn destroy<T: Destroy>(cx: &CallContext<'_>, name: T) -> CuResult<()> {
    let objects = &cx.session.objects;
    let (table, number) = (T::table(objects), name.number());
    if !table.get(number)?.is_whole() {
        return Err(CudaError::INVALID_HANDLE);
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
    Object::destroy(object)
}
