// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuUserObject*, and the references of graphs.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::body::{self, CUgraph};
use super::user_object::{CUuserObject, OBJECTS, UserObject};
use crate::driver::ffi::Out;
use crate::driver::handle::Handle;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::HostFunction;

/// CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// CU_GRAPH_USER_OBJECT_MOVE
const MOVE: u32 = 1;

fn find(handle: CUuserObject) -> CuResult<Arc<UserObject>> {
    OBJECTS.get(handle).ok_or_else(|| handle.refusal())
}

/// Checks a number of references, which the API limits to 1..=INT_MAX.
fn check_count(count: u32) -> CuResult<u64> {
    if count == 0 || count > i32::MAX as u32 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(count.into())
}

fn user_object_create(
    out: Out<CUuserObject>,
    argument: *mut c_void,
    destroy: HostFunction,
    references: u32,
    flags: u32,
) -> CuResult<()> {
    out.check()?;
    let destroy = destroy.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if references == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let references = u64::from(references);
    if flags != NO_DESTRUCTOR_SYNC {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let handle = Handle::unique();
    let references = AtomicU64::new(references);
    let object = UserObject { handle, argument: argument as usize, destroy, references };
    OBJECTS.insert(handle, Arc::new(object));
    out.set_if_wanted(handle);
    Ok(())
}

fn user_object_retain(handle: CUuserObject, count: u32) -> CuResult<()> {
    find(handle)?.retain(check_count(count)?);
    Ok(())
}

fn user_object_release(handle: CUuserObject, count: u32) -> CuResult<()> {
    find(handle)?.release(check_count(count)?);
    Ok(())
}

fn graph_retain_user_object(graph: CUgraph, handle: CUuserObject, count: u32, flags: u32) -> CuResult<()> {
    let (graph, object, count) = (body::find(graph)?, find(handle)?, check_count(count)?);
    if flags & !MOVE != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // Moved references belong to the caller, others are new.
    if flags & MOVE == 0 {
        object.retain(count);
    }
    graph.references.add(&object, count);
    Ok(())
}

fn graph_release_user_object(graph: CUgraph, handle: CUuserObject, count: u32) -> CuResult<()> {
    let (graph, object, count) = (body::find(graph)?, find(handle)?, check_count(count)?);
    graph.references.remove(&object, count);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuUserObjectCreate => user_object_create(
        out: Out<CUuserObject>, argument: *mut c_void, destroy: HostFunction, references: u32, flags: u32);
    cuUserObjectRetain => user_object_retain(object: CUuserObject, count: u32);
    cuUserObjectRelease => user_object_release(object: CUuserObject, count: u32);
    cuGraphRetainUserObject => graph_retain_user_object(
        graph: CUgraph, object: CUuserObject, count: u32, flags: u32);
    cuGraphReleaseUserObject => graph_release_user_object(graph: CUgraph, object: CUuserObject, count: u32);
}
