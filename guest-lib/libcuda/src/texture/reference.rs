// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Texture and surface references: variables of a module that the program binds to arrays and memory. Queries of their
//! settings go to the device, where they have their effect.

use std::ffi::CStr;

use cuda_abi::CUDA_ARRAY_DESCRIPTOR;
use virtio_cuda_client::protocol::{ContextId, DevicePtr, FunctionId, ModuleId, SurfRefId, TexRefId};
use virtio_cuda_client::{Call, CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Name, Out};
use crate::handles::{self, new_handle};
use crate::module::not_empty;
use crate::state::references::{Kind, Reference};

/// Returns the reference with this name. The handle is the same each time.
fn of_module(api: Api, module: u64, name: &CStr, kind: Kind) -> Result<u64, CudaError> {
    let context = api.driver.modules.with(module, |module| module.context)?;
    let key = (module, kind, name.to_owned());
    if let Some(handle) = api.driver.textures.references.lock().names.get(&key) {
        return Ok(*handle);
    }
    let handle = new_handle(handles::Kind::Other);
    let mut call = api.call_in(ContextId(context)).input(name.to_bytes());
    match kind {
        Kind::Texture => calls::cuModuleGetTexRef(&mut call, ModuleId(module), TexRefId(handle))?,
        Kind::Surface => calls::cuModuleGetSurfRef(&mut call, ModuleId(module), SurfRefId(handle))?,
    }
    let mut tables = api.driver.textures.references.lock();
    tables.references.insert(handle, Reference { kind, context, module });
    // If another thread was faster, both handles stay valid.
    Ok(*tables.names.entry(key).or_insert(handle))
}

/// Starts a call on a texture reference, in its context.
pub(crate) fn texture(api: Api, handle: u64) -> Result<(Call<'static>, TexRefId), CudaError> {
    let reference = api.driver.textures.references.get(handle, Kind::Texture)?;
    Ok((api.call_in(ContextId(reference.context)), TexRefId(handle)))
}

/// Starts a call on a surface reference, in its context.
pub(crate) fn surface(api: Api, handle: u64) -> Result<(Call<'static>, SurfRefId), CudaError> {
    let reference = api.driver.textures.references.get(handle, Kind::Surface)?;
    Ok((api.call_in(ContextId(reference.context)), SurfRefId(handle)))
}

/// Converts a program's address to the GPU's.
fn on_device(api: Api, address: u64) -> DevicePtr {
    DevicePtr(api.device_place(address).device().unwrap_or(address))
}

fn bind_rows(
    api: Api,
    handle: u64,
    rows: In<CUDA_ARRAY_DESCRIPTOR>,
    address: u64,
    pitch: usize,
) -> Result<(), CudaError> {
    let (mut call, reference) = texture(api, handle)?;
    let CUDA_ARRAY_DESCRIPTOR { width, height, format, channels } = rows.get()?;
    let size = [width as u64, height as u64];
    let dptr = on_device(api, address);
    calls::cuTexRefSetAddress2D_v3(&mut call, reference, size, format, channels, dptr, pitch as u64)
}

entry_points! {
    /// Returns a texture reference by name.
    call cuModuleGetTexRef(api, pTexRef: Out<u64>, hmod: u64, name: Name) {
        pTexRef.check()?;
        api.driver.modules.with(hmod, |_| ())?;
        pTexRef.set(of_module(api, hmod, &not_empty(&name)?, Kind::Texture)?)
    }

    /// Returns a surface reference by name.
    call cuModuleGetSurfRef(api, pSurfRef: Out<u64>, hmod: u64, name: Name) {
        pSurfRef.check()?;
        api.driver.modules.with(hmod, |_| ())?;
        pSurfRef.set(of_module(api, hmod, &not_empty(&name)?, Kind::Surface)?)
    }

    /// Creates a texture reference, which no kernel can use.
    call cuTexRefCreate(api, pTexRef: Out<u64>) {
        let context = api.context()?;
        pTexRef.check()?;
        let handle = new_handle(handles::Kind::Other);
        calls::cuTexRefCreate(&mut api.call(), TexRefId(handle))?;
        let reference = Reference { kind: Kind::Texture, context: context.0, module: 0 };
        api.driver.textures.references.lock().references.insert(handle, reference);
        pTexRef.set(handle)
    }

    /// Destroys a texture reference of `cuTexRefCreate`.
    call cuTexRefDestroy(api, hTexRef: u64) {
        let (mut call, reference) = texture(api, hTexRef)?;
        calls::cuTexRefDestroy(&mut call, reference)?;
        api.driver.textures.references.lock().references.remove(&hTexRef);
        Ok(())
    }

    /// Binds linear memory.
    call cuTexRefSetAddress_v2(api, ByteOffset: Out<usize>, hTexRef: u64, dptr: u64, bytes: usize) {
        let (mut call, reference) = texture(api, hTexRef)?;
        let (dptr, aligned) = (on_device(api, dptr), u32::from(!ByteOffset.is_null()));
        let offset = calls::cuTexRefSetAddress_v2(&mut call, reference, dptr, bytes as u64, aligned)?;
        ByteOffset.set_if_wanted(offset as usize);
        Ok(())
    }

    /// Binds pitched memory.
    call cuTexRefSetAddress2D_v2(api, hTexRef: u64, desc: In<CUDA_ARRAY_DESCRIPTOR>, dptr: u64, Pitch: usize) {
        bind_rows(api, hTexRef, desc, dptr, Pitch)
    }

    /// Binds pitched memory.
    call cuTexRefSetAddress2D_v3(api, hTexRef: u64, desc: In<CUDA_ARRAY_DESCRIPTOR>, dptr: u64, Pitch: usize) {
        bind_rows(api, hTexRef, desc, dptr, Pitch)
    }

    /// Returns the format of the memory.
    call cuTexRefGetFormat(api, pFormat: Out<i32>, pNumChannels: Out<i32>, hTexRef: u64) {
        let (mut call, reference) = texture(api, hTexRef)?;
        if pFormat.is_null() && pNumChannels.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let (format, channels) = calls::cuTexRefGetFormat(&mut call, reference)?;
        pFormat.set_if_wanted(format);
        pNumChannels.set_if_wanted(channels);
        Ok(())
    }

    /// Makes a texture reference a parameter of a function. No effect: it already is one.
    call cuParamSetTexRef(api, hfunc: u64, texunit: i32, hTexRef: u64) {
        api.driver.functions.get(hfunc)?;
        let (mut call, reference) = texture(api, hTexRef)?;
        calls::cuParamSetTexRef(&mut call, FunctionId(hfunc), texunit, reference)
    }
}
