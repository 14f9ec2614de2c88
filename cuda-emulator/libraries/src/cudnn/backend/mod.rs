// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The backend API: graphs of operations. A descriptor stores the attributes that the program sets ([`attribute`]).
//! When it is finalised they are checked and become the described object ([`descriptor`]). There is one engine, which
//! computes the operations of a [`graph`] one after the other ([`node`]).

mod arrangement;
mod attention;
mod attribute;
mod descriptor;
mod graph;
mod groups;
mod node;
mod norm;
mod pack;
mod pointwise;
mod product;
mod ragged;
mod random;
mod resample;
mod tensor;

use std::ffi::{c_int, c_void};

use descriptor::{Descriptor, Kind, Made};

use super::{BAD_PARAM, SUCCESS, Status, give, queue, status, stream_of};
use crate::handles::{self, Handle};
use crate::stream::{self, Done};

fn with<R>(handle: Handle, body: impl FnOnce(&mut Descriptor) -> Result<R, Status>) -> Result<R, Status> {
    handles::with(handle, body).ok_or(BAD_PARAM).flatten()
}

/// Creates a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendCreateDescriptor(kind: c_int, place: *mut Handle) -> Status {
    let Some(kind) = Kind::new(kind).filter(|_| !place.is_null()) else { return BAD_PARAM };
    // SAFETY: the caller gives a place for a handle.
    status(unsafe { give(place, handles::make(Descriptor::new(kind))) })
}

/// Destroys a descriptor. Other descriptors that refer to it keep its object.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendDestroyDescriptor(descriptor: Handle) -> Status {
    if handles::end::<Descriptor>(descriptor) { SUCCESS } else { BAD_PARAM }
}

/// Forgets all attributes of a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendInitialize(descriptor: Handle) -> Status {
    status(with(descriptor, |descriptor| {
        *descriptor = Descriptor::new(descriptor.kind());
        Ok(())
    }))
}

/// Checks the attributes of a descriptor, which then stay as they are.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendFinalize(descriptor: Handle) -> Status {
    status(with(descriptor, Descriptor::finalize))
}

/// Sets an attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendSetAttribute(
    descriptor: Handle,
    name: c_int,
    kind: c_int,
    count: i64,
    elements: *const c_void,
) -> Status {
    // Other descriptors are looked up before this one is locked.
    // SAFETY: the caller gives as many elements of that type, or null.
    let body = unsafe { attribute::taken(name, kind, count, elements) }
        .and_then(|value| with(descriptor, |descriptor| descriptor.set(name, value)));
    status(body)
}

/// Returns an attribute: as many elements as the caller has room for, and their total number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendGetAttribute(
    descriptor: Handle,
    name: c_int,
    kind: c_int,
    room: i64,
    count: *mut i64,
    elements: *mut c_void,
) -> Status {
    let body = || {
        let value = with(descriptor, |descriptor| descriptor.get(name))?;
        let room = usize::try_from(room).map_err(|_| BAD_PARAM)?;
        // SAFETY: the caller gives room for as many elements of that type, or null.
        let found = unsafe { value.given(kind, room, elements)? };
        if !count.is_null() {
            // SAFETY: the caller gives a place for a number.
            unsafe { give(count, found as i64)? };
        }
        Ok(())
    };
    status(body())
}

/// Returns the operations of a plan with the places of a pack.
fn work_of(plan: Handle, pack: Handle) -> Result<impl Fn() -> Done + Send + Sync + 'static, Status> {
    let plan = with(plan, |plan| plan.finalized(Kind::Plan))?;
    let pack = with(pack, |pack| pack.finalized(Kind::VariantPack))?;
    let (Made::Graph(graph), Made::Pack(pack)) = (&plan.made, &pack.made) else { return Err(BAD_PARAM) };
    let bound = graph.bind(pack)?;
    let graph = graph.clone();
    Ok(move || graph.execute(&bound))
}

/// Queues the operations of a plan.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendExecute(handle: Handle, plan: Handle, pack: Handle) -> Status {
    status(stream_of(handle).and_then(|stream| queue(stream, work_of(plan, pack)?)))
}

/// Makes the operations of a plan the node of a graph of CUDA's, or of the graph that it has made, with other places.
fn put_into(handle: Handle, plan: Handle, pack: Handle, graph: usize, again: bool) -> Status {
    let body = || {
        stream_of(handle)?;
        stream::put_into(graph, again, work_of(plan, pack)?).map_err(|_| BAD_PARAM)
    };
    status(body())
}

/// Makes the operations of a plan the node of a graph of CUDA's, which is empty.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendPopulateCudaGraph(
    handle: Handle,
    plan: Handle,
    pack: Handle,
    graph: usize,
) -> Status {
    put_into(handle, plan, pack, graph, false)
}

/// Gives such a graph other places.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendUpdateCudaGraph(
    handle: Handle,
    plan: Handle,
    pack: Handle,
    graph: usize,
) -> Status {
    put_into(handle, plan, pack, graph, true)
}

#[cfg(test)]
mod attention_test;
#[cfg(test)]
mod backend_test;
#[cfg(test)]
mod operations_test;
