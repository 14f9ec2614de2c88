// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Surface objects.

use std::sync::{Arc, Weak};

use cuda_abi::CUDA_RESOURCE_DESC;

use super::{NUMBERS, RESOURCE_ARRAY};
use crate::driver::array::{self, CUarray};
use crate::driver::context::{self, Context};
use crate::driver::ffi::{In, Out};
use crate::driver::handle::{Handle, Registry};
use crate::driver::result::{CUresult, CuResult};
use crate::texture::{self, Surface};

/// A surface object's handle, which kernels get as a parameter.
pub type CUsurfObject = Handle<SurfaceObject>;

static OBJECTS: Registry<SurfaceObject> = Registry::new();

impl crate::driver::handle::Object for SurfaceObject {
    const KIND: Option<crate::driver::handle::Kind> = None;
}

/// The description that a surface object was created from.
pub struct SurfaceObject {
    handle: CUsurfObject,
    context: Weak<Context>,
    resource: CUDA_RESOURCE_DESC,
}

fn surf_object_create(out: Out<CUsurfObject>, resource: In<CUDA_RESOURCE_DESC>) -> CuResult<()> {
    out.check()?;
    let context = Arc::downgrade(&context::current()?);
    let resource = resource.get()?;
    if resource.kind != RESOURCE_ARRAY || resource.flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let array = array::find(CUarray::new(resource.words[0] as usize))?;
    if array.array.compression.is_some() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let handle = NUMBERS.take();
    OBJECTS.insert(handle, Arc::new(SurfaceObject { handle, context, resource }));
    texture::publish_surface(handle.0 as u64, Surface::new(Arc::clone(&array.array)));
    out.set_if_wanted(handle);
    Ok(())
}

fn find(handle: CUsurfObject) -> CuResult<Arc<SurfaceObject>> {
    OBJECTS.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn surf_object_destroy(handle: CUsurfObject) -> CuResult<()> {
    context::current()?;
    // As on an H200, an invalid handle counts as destroyed.
    if find(handle).is_err() {
        return Ok(());
    }
    // Kernels that were launched before may not have looked it up yet.
    context::wait_all_idle();
    // Another thread may have been faster.
    if OBJECTS.remove(handle).is_some() {
        ended(handle);
    }
    Ok(())
}

fn ended(handle: CUsurfObject) {
    texture::remove_surface(handle.0 as u64);
    NUMBERS.give_back(handle);
}

/// Ends all surfaces of a context that is being destroyed.
pub(super) fn forget_objects(context: &Context) {
    let of_context = |object: &SurfaceObject| std::ptr::eq(object.context.as_ptr(), context);
    OBJECTS.remove_where(of_context).iter().for_each(|object| ended(object.handle));
}

fn get_resource(out: Out<CUDA_RESOURCE_DESC>, handle: CUsurfObject) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(find(handle)?.resource);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuSurfObjectCreate => surf_object_create(out: Out<CUsurfObject>, resource: In<CUDA_RESOURCE_DESC>);
    cuSurfObjectDestroy => surf_object_destroy(object: CUsurfObject);
    cuSurfObjectGetResourceDesc => get_resource(out: Out<CUDA_RESOURCE_DESC>, object: CUsurfObject);
}
