// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texture and surface references: variables of a module (`.texref`, `.surfref`) that the program binds to arrays and
//! memory. The bound object is published under the variable's address, by which kernels find it. A kernel that was
//! launched before uses the earlier binding, so a change waits for it.

mod api;

use std::sync::{Arc, Mutex, PoisonError};

use cuda_abi::{CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC};

use super::array::{self, CUarray};
use super::context;
use super::device::CUdeviceptr;
use super::handle::{Handle, Registry};
use super::module::Module;
use super::result::{CUresult, CuResult};
use super::texture as texture_api;
use super::texture::TextureDescription as _;
use crate::symbols::Reference;
use crate::texture::{self, Surface};

/// A texture reference's handle.
pub type CUtexref = Handle<TextureReference>;
/// A surface reference's handle.
pub type CUsurfref = Handle<SurfaceReference>;

static TEXTURES: Registry<TextureReference> = Registry::new();
static SURFACES: Registry<SurfaceReference> = Registry::new();

impl crate::driver::handle::Object for SurfaceReference {
    const KIND: Option<crate::driver::handle::Kind> = None;
}

impl crate::driver::handle::Object for TextureReference {
    const KIND: Option<crate::driver::handle::Kind> = None;
}

/// A texture reference.
pub struct TextureReference {
    /// The address of the module's variable. `None` for a reference of cuTexRefCreate, which kernels cannot use.
    address: Option<CUdeviceptr>,
    state: Mutex<TextureState>,
}

/// The settings of a texture reference.
#[derive(Clone, Copy)]
pub(super) struct TextureState {
    pub(super) bound: Option<CUDA_RESOURCE_DESC>,
    /// Format and channels of memory.
    pub(super) format: (u32, u32),
    pub(super) texture: CUDA_TEXTURE_DESC,
}

/// CU_AD_FORMAT_FLOAT
const FLOAT: u32 = 0x20;

impl TextureReference {
    fn new(address: Option<CUdeviceptr>) -> Arc<TextureReference> {
        let state =
            TextureState { bound: None, format: (FLOAT, 1), texture: CUDA_TEXTURE_DESC::of_reference() };
        Arc::new(TextureReference { address, state: Mutex::new(state) })
    }

    /// Returns the settings.
    pub(super) fn state(&self) -> TextureState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the settings, if `change` allows it. Inconsistent settings are not an error here: kernels then find
    /// nothing bound.
    pub(super) fn change(&self, change: impl FnOnce(&mut TextureState) -> CuResult<()>) -> CuResult<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = *state;
        change(&mut changed)?;
        let made = changed.bound.as_ref().map(|bound| texture_api::make(bound, &changed.texture, None));
        *state = changed;
        let Some(address) = self.address else { return Ok(()) };
        if texture::texture(address).is_some() {
            context::wait_all_idle();
        }
        match made {
            Some(Ok(made)) => texture::publish_texture(address, made),
            _ => drop(texture::remove_texture(address)),
        }
        Ok(())
    }
}

/// A surface reference.
pub struct SurfaceReference {
    address: CUdeviceptr,
    bound: Mutex<CUarray>,
}

impl SurfaceReference {
    /// Returns the bound array, or NULL.
    pub(super) fn array(&self) -> CUarray {
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds an array.
    pub(super) fn bind(&self, handle: CUarray) -> CuResult<()> {
        let array = array::find(handle)?;
        if array.descriptor.flags & array::SURFACE_LDST == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        if texture::surface(self.address).is_some() {
            context::wait_all_idle();
        }
        texture::publish_surface(self.address, Surface::new(Arc::clone(&array.array)));
        *bound = handle;
        Ok(())
    }
}

/// The references of a module that were queried, by variable.
#[derive(Default)]
pub(super) struct References(Mutex<Vec<(usize, Given)>>);

#[derive(Clone, Copy)]
enum Given {
    Texture(CUtexref),
    Surface(CUsurfref),
}

impl References {
    /// Removes all of them.
    pub(super) fn forget(&self) {
        for (_, given) in std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            match given {
                Given::Texture(handle) => {
                    let address = TEXTURES.remove(handle).and_then(|reference| reference.address);
                    address.map(texture::remove_texture);
                }
                Given::Surface(handle) => {
                    SURFACES.remove(handle).map(|reference| texture::remove_surface(reference.address));
                }
            }
        }
    }

    fn get(&self, module: &Module, name: &str, kind: Reference) -> CuResult<Given> {
        let globals = &module.image.program.globals;
        let index = globals.iter().position(|global| global.name == name && global.reference == Some(kind));
        let index = index.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = given.iter().find(|(of, _)| *of == index) {
            return Ok(*known);
        }
        let address = module.addresses[index];
        let made = match kind {
            Reference::Texture => {
                let handle = Handle::unique();
                TEXTURES.insert(handle, TextureReference::new(Some(address)));
                Given::Texture(handle)
            }
            Reference::Surface => {
                let handle = Handle::unique();
                let reference = SurfaceReference { address, bound: Mutex::new(Handle::NULL) };
                SURFACES.insert(handle, Arc::new(reference));
                Given::Surface(handle)
            }
        };
        given.push((index, made));
        Ok(made)
    }

    /// Returns a texture reference of the module, with the same handle each time.
    pub(super) fn texture(&self, module: &Module, name: &str) -> CuResult<CUtexref> {
        match self.get(module, name, Reference::Texture)? {
            Given::Texture(handle) => Ok(handle),
            Given::Surface(_) => Err(CUresult::CUDA_ERROR_NOT_FOUND),
        }
    }

    /// Returns a surface reference of the module, with the same handle each time.
    pub(super) fn surface(&self, module: &Module, name: &str) -> CuResult<CUsurfref> {
        match self.get(module, name, Reference::Surface)? {
            Given::Surface(handle) => Ok(handle),
            Given::Texture(_) => Err(CUresult::CUDA_ERROR_NOT_FOUND),
        }
    }
}

/// cuTexRefCreate
pub(super) fn create() -> CUtexref {
    let handle = Handle::unique();
    TEXTURES.insert(handle, TextureReference::new(None));
    handle
}

/// cuTexRefDestroy: refuses references of modules.
pub(super) fn destroy(handle: CUtexref) -> CuResult<()> {
    if find(handle)?.address.is_some() {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    TEXTURES.remove(handle).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// Returns the texture reference of a handle.
pub(super) fn find(handle: CUtexref) -> CuResult<Arc<TextureReference>> {
    TEXTURES.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// Returns the surface reference of a handle.
pub(super) fn find_surface(handle: CUsurfref) -> CuResult<Arc<SurfaceReference>> {
    SURFACES.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}
