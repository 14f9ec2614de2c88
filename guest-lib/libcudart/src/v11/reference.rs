// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texture and surface references: variables of a program that stand for arrays and memory. CUDA 12 removed them.
//!
//! The driver has references of its own with the same names, in the module of the device code. A call that binds one
//! copies the settings of the program's `textureReference` to the driver's.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::size_of;
use core::ptr;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use cuda_abi::CUDA_ARRAY_DESCRIPTOR;

use crate::abi::shared::cudaChannelFormatDesc;
use crate::abi::{CUarray, CUmipmappedArray};
use crate::error::{
    Result, cudaError_t, cudaErrorInvalidSurface, cudaErrorInvalidTexture, cudaErrorInvalidTextureBinding,
};
use crate::memory::address;
use crate::module::Module;
use crate::pointers::{In, Out};
use crate::texture::channel::Format;
use crate::{driver, registry, state};

const CU_TRSF_READ_AS_INTEGER: c_uint = 0x01;
const CU_TRSF_NORMALIZED_COORDINATES: c_uint = 0x02;
const CU_TRSF_SRGB: c_uint = 0x10;
const CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION: c_uint = 0x20;
/// The format is the array's.
const CU_TRSA_OVERRIDE_FORMAT: c_uint = 0x01;

/// `textureReference`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TextureReference {
    normalized: c_int,
    filter: c_uint,
    address_modes: [c_uint; 3],
    channels: cudaChannelFormatDesc,
    srgb: c_int,
    max_anisotropy: c_uint,
    mipmap_filter: c_uint,
    mipmap_bias: f32,
    mipmap_clamp: [f32; 2],
    disable_trilinear_optimization: c_int,
    reserved: [c_int; 14],
}
const _: () = assert!(size_of::<TextureReference>() == 124);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Set if elements are read as normalised numbers.
    Texture(bool),
    Surface,
}

/// A registered reference.
#[derive(Clone)]
struct Reference {
    module: Weak<Module>,
    name: CString,
    kind: Kind,
    /// The bytes from the address that the driver bound to the one that the program asked for; none if nothing is bound.
    offset: Option<usize>,
}

/// The references by their address in the program.
static REFERENCES: LazyLock<Mutex<HashMap<usize, Reference>>> = LazyLock::new(Mutex::default);

fn references() -> MutexGuard<'static, HashMap<usize, Reference>> {
    REFERENCES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register(handle: *mut *mut c_void, variable: *const c_void, name: CString, kind: Kind) {
    let Some(module) = registry::module(handle) else { return };
    let module = std::sync::Arc::downgrade(&module);
    references().insert(variable.addr(), Reference { module, name, kind, offset: None });
}

/// Registers a texture reference, by its address in the program. Where the prototype of `host_runtime.h` has the address of an
/// address, nvcc passes the name in device code.
///
/// # Safety
///
/// `device_name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterTexture(
    handle: *mut *mut c_void,
    variable: *const c_void,
    device_name: *const c_char,
    _name_in_source: *const c_char,
    _dimensions: c_int,
    normalized: c_int,
    _ext: c_int,
) {
    // SAFETY: null or a C string by this function's contract; nvcc's constructors pass a literal.
    let name = unsafe { registry::owned_name(device_name) };
    register(handle, variable, name, Kind::Texture(normalized != 0));
}

/// Registers a surface reference, as a texture reference.
///
/// # Safety
///
/// `device_name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterSurface(
    handle: *mut *mut c_void,
    variable: *const c_void,
    device_name: *const c_char,
    _name_in_source: *const c_char,
    _dimensions: c_int,
    _ext: c_int,
) {
    // SAFETY: null or a C string by this function's contract; nvcc's constructors pass a literal.
    let name = unsafe { registry::owned_name(device_name) };
    register(handle, variable, name, Kind::Surface);
}

api! {
    fn cudaBindTexture(
        offset: Out<usize>, reference: In<TextureReference>, memory: *const c_void,
        channels: In<cudaChannelFormatDesc>, bytes: usize,
    ) {
        state::context()?;
        let texture = Texture::of(reference)?;
        texture.set_format(channels)?;
        let bytes = bytes.min(rest_of_allocation(memory)?);
        let (mut bound_offset, mut unwanted) = (0, ptr::null_mut());
        if !offset.is_null() {
            unwanted = &raw mut bound_offset;
        }
        // SAFETY: null or a local; the texture is the driver's.
        unsafe { driver::cuTexRefSetAddress_v2(unwanted, texture.handle, address(memory), bytes) }?;
        texture.bound(bound_offset);
        if offset.is_null() { Ok(()) } else { offset.set(bound_offset) }
    }

    fn cudaBindTexture2D(
        offset: Out<usize>, reference: In<TextureReference>, memory: *const c_void,
        channels: In<cudaChannelFormatDesc>, width: usize, height: usize, pitch: usize,
    ) {
        state::context()?;
        let texture = Texture::of(reference)?;
        let Format { code, channels } = texture.set_format(channels)?;
        let rows = CUDA_ARRAY_DESCRIPTOR { width, height, format: code, channels };
        // SAFETY: `rows` is a local; the texture is the driver's.
        unsafe { driver::cuTexRefSetAddress2D_v3(texture.handle, &rows, address(memory), pitch) }?;
        texture.bound(0);
        if offset.is_null() { Ok(()) } else { offset.set(0) }
    }

    fn cudaBindTextureToArray(
        reference: In<TextureReference>, array: CUarray, _channels: *const cudaChannelFormatDesc,
    ) {
        state::context()?;
        let texture = Texture::of(reference)?;
        texture.bound(0);
    } => driver::cuTexRefSetArray(texture.handle, array, CU_TRSA_OVERRIDE_FORMAT);

    fn cudaBindTextureToMipmappedArray(
        reference: In<TextureReference>, array: CUmipmappedArray, _channels: *const cudaChannelFormatDesc,
    ) {
        state::context()?;
        let texture = Texture::of(reference)?;
        texture.bound(0);
    } => driver::cuTexRefSetMipmappedArray(texture.handle, array, CU_TRSA_OVERRIDE_FORMAT);

    /// The driver has no such call: the reference keeps what it was bound to, which kernels may no longer read.
    fn cudaUnbindTexture(reference: *const TextureReference) {
        let mut references = references();
        references.get_mut(&reference.addr()).ok_or(cudaErrorInvalidTexture)?.offset = None;
        Ok(())
    }

    fn cudaGetTextureAlignmentOffset(offset: Out<usize>, reference: *const TextureReference) {
        let registered = find(reference.cast(), cudaErrorInvalidTexture)?;
        offset.set(registered.offset.ok_or(cudaErrorInvalidTextureBinding)?)
    }

    fn cudaGetTextureReference(reference: Out<*const c_void>, symbol: *const c_void) {
        let found = find(symbol, cudaErrorInvalidTexture)?;
        if found.kind == Kind::Surface { Err(cudaErrorInvalidTexture) } else { reference.set(symbol) }
    }

    fn cudaGetSurfaceReference(reference: Out<*const c_void>, symbol: *const c_void) {
        let found = find(symbol, cudaErrorInvalidSurface)?;
        if found.kind == Kind::Surface { reference.set(symbol) } else { Err(cudaErrorInvalidSurface) }
    }

    fn cudaBindSurfaceToArray(
        reference: *const c_void, array: CUarray, _channels: *const cudaChannelFormatDesc,
    ) {
        state::context()?;
        let registered = find(reference, cudaErrorInvalidSurface)?;
        let mut surface = 0;
        // SAFETY: `surface` is a local, the name ends with a NUL.
        unsafe { driver::cuModuleGetSurfRef(&mut surface, registered.module()?, registered.name.as_ptr()) }?;
    } => driver::cuSurfRefSetArray(surface, array, 0);
}

fn find(variable: *const c_void, unknown: cudaError_t) -> Result<Reference> {
    references().get(&variable.addr()).cloned().ok_or(unknown)
}

/// The bytes from an address to the end of its allocation: the size that programs may leave out.
fn rest_of_allocation(memory: *const c_void) -> Result<usize> {
    let (mut base, mut size) = (0, 0);
    // SAFETY: `base` and `size` are locals.
    unsafe { driver::cuMemGetAddressRange_v2(&mut base, &mut size, address(memory)) }?;
    Ok(size.saturating_sub(address(memory).saturating_sub(base) as usize))
}

impl Reference {
    /// The module of the current context that has the driver's reference.
    fn module(&self) -> Result<u64> {
        let module = self.module.upgrade().ok_or(cudaErrorInvalidTexture)?;
        let mut in_context = 0;
        // SAFETY: `in_context` is a local, the library the driver's.
        unsafe { driver::cuLibraryGetModule(&mut in_context, module.library()?) }?;
        Ok(in_context)
    }
}

/// A texture of the driver's for a reference of the program, with the same settings.
struct Texture {
    handle: u64,
    variable: usize,
}

impl Texture {
    fn of(reference: In<TextureReference>) -> Result<Self> {
        let registered = find(reference.as_ptr().cast(), cudaErrorInvalidTexture)?;
        let Kind::Texture(normalized) = registered.kind else { return Err(cudaErrorInvalidTexture) };
        let settings = reference.get()?;
        let mut handle = 0;
        let flag = |set: bool, flag| if set { flag } else { 0 };
        let flags = flag(!normalized, CU_TRSF_READ_AS_INTEGER)
            | flag(settings.normalized != 0, CU_TRSF_NORMALIZED_COORDINATES)
            | flag(settings.srgb != 0, CU_TRSF_SRGB)
            | flag(settings.disable_trilinear_optimization != 0, CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION);
        // SAFETY: `handle` is a local, the name ends with a NUL; the texture is the driver's.
        unsafe {
            driver::cuModuleGetTexRef(&mut handle, registered.module()?, registered.name.as_ptr())?;
            driver::cuTexRefSetFlags(handle, flags)?;
            driver::cuTexRefSetFilterMode(handle, settings.filter)?;
            for (dimension, mode) in (0..).zip(settings.address_modes) {
                driver::cuTexRefSetAddressMode(handle, dimension, mode)?;
            }
            driver::cuTexRefSetMaxAnisotropy(handle, settings.max_anisotropy)?;
            driver::cuTexRefSetMipmapFilterMode(handle, settings.mipmap_filter)?;
            driver::cuTexRefSetMipmapLevelBias(handle, settings.mipmap_bias)?;
            driver::cuTexRefSetMipmapLevelClamp(handle, settings.mipmap_clamp[0], settings.mipmap_clamp[1])?;
        }
        Ok(Self { handle, variable: reference.as_ptr().addr() })
    }

    fn set_format(&self, channels: In<cudaChannelFormatDesc>) -> Result<Format> {
        let format = Format::of(&channels.get()?)?;
        // SAFETY: no pointer; the texture is the driver's.
        unsafe { driver::cuTexRefSetFormat(self.handle, format.code, format.channels as c_int) }?;
        Ok(format)
    }

    fn bound(&self, offset: usize) {
        if let Some(reference) = references().get_mut(&self.variable) {
            reference.offset = Some(offset);
        }
    }
}
