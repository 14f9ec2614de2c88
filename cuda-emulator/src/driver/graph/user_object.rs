// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User objects: things of the program that graphs keep alive.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::body::{self, CUgraph};
use crate::driver::ffi::Out;
use crate::driver::handle::{Handle, Registry};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::HostFunction;

/// A user object's handle.
pub type CUuserObject = Handle<UserObject>;

/// CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// CU_GRAPH_USER_OBJECT_MOVE
const MOVE: u32 = 1;

static OBJECTS: Registry<UserObject> = Registry::new();

/// An object with a count of references; at 0 it is destroyed.
pub struct UserObject {
    handle: CUuserObject,
    argument: usize,
    destroy: unsafe extern "C" fn(*mut c_void),
    references: AtomicU64,
}

impl UserObject {
    fn retain(&self, count: u64) {
        self.references.fetch_add(count, Ordering::AcqRel);
    }

    /// Gives references up. More than there are is no error, as on an H200.
    fn release(&self, count: u64) {
        let less = |references: u64| Some(references.saturating_sub(count));
        let before = self.references.try_update(Ordering::AcqRel, Ordering::Acquire, less).unwrap_or(0);
        if (1..=count).contains(&before) {
            OBJECTS.remove(self.handle);
            // SAFETY: the program passed a function that may be called with this argument when no reference is left.
            unsafe { (self.destroy)(self.argument as *mut c_void) };
        }
    }
}

/// A graph's references.
#[derive(Default)]
pub(super) struct References(Mutex<BTreeMap<usize, (Arc<UserObject>, u64)>>);

impl References {
    fn add(&self, object: &Arc<UserObject>, count: u64) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.entry(object.handle.0).or_insert_with(|| (Arc::clone(object), 0)).1 += count;
    }

    /// What the graph has not got is not taken from it, which is no error on an H200 either.
    fn remove(&self, object: &UserObject, count: u64) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = held.get_mut(&object.handle.0) else { return };
        let count = count.min(entry.1);
        entry.1 -= count;
        if entry.1 == 0 {
            held.remove(&object.handle.0);
        }
        drop(held);
        object.release(count);
    }

    /// Adds one reference to each object that another graph refers to.
    pub(super) fn share(&self, other: &References) {
        let held = other.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (object, _) in held.values() {
            object.retain(1);
            self.add(object, 1);
        }
    }
}

impl Drop for References {
    fn drop(&mut self) {
        for (object, count) in
            std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner)).into_values()
        {
            object.release(count);
        }
    }
}

fn find(handle: CUuserObject) -> CuResult<Arc<UserObject>> {
    OBJECTS.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// A number of references as the API has it, 1..=INT_MAX.
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
    let handle = Handle::mint();
    let references = AtomicU64::new(references);
    let object = UserObject { handle, argument: argument as usize, destroy, references };
    OBJECTS.insert(handle, Arc::new(object));
    out.set(handle);
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
    // Moved references are the caller's, others are new.
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
