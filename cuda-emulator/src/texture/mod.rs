// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays, textures and surfaces: their descriptions, their memory, and the accesses of kernels to them. The driver
//! API creates them and publishes them under a number. The instructions `tex`, `tld4`, `txq`, `suld`, `sust`, `suq`
//! look the number up ([`texture`], [`surface`]): a forged or stale one is not found.

mod address;
mod array;
mod compressed;
mod cube;
mod format;
mod parts;
mod sampler;
mod surface;
#[expect(clippy::module_inception, reason = "the object that the module is about")]
mod texture;
mod warp;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

pub use address::AddressMode;
pub use array::{Array, Dimension, Element, Extent, Later, Level, MipmappedArray, NoMemory, Tiling, Unit};
pub use compressed::{Compression, READ as COMPRESSED_READ};
pub use format::{Channel, Format};
pub use parts::{Part, Parts, TILE_BYTES};
pub use sampler::Sampler;
pub use surface::Surface;
pub use texture::{Coordinates, Detail, Point, Texture};
pub(crate) use warp::Places;

static TEXTURES: Registry<Texture> = Registry::new();
static SURFACES: Registry<Surface> = Registry::new();

/// The texture object with this number. It stays usable as long as the result is held, whatever is destroyed meanwhile.
pub fn texture(handle: u64) -> Option<Arc<Texture>> {
    TEXTURES.get(handle)
}

/// The surface object with this number; see [`texture`].
pub fn surface(handle: u64) -> Option<Arc<Surface>> {
    SURFACES.get(handle)
}

/// Registers a texture for kernels under a number.
pub fn publish_texture(handle: u64, texture: Texture) {
    TEXTURES.insert(handle, texture);
}

/// Registers a surface for kernels under a number.
pub fn publish_surface(handle: u64, surface: Surface) {
    SURFACES.insert(handle, surface);
}

/// Removes a texture's number. Returns false if no texture has it.
pub fn remove_texture(handle: u64) -> bool {
    TEXTURES.remove(handle)
}

/// Removes a surface's number. Returns false if no surface has it.
pub fn remove_surface(handle: u64) -> bool {
    SURFACES.remove(handle)
}

struct Registry<T>(RwLock<BTreeMap<u64, Arc<T>>>);

impl<T> Registry<T> {
    const fn new() -> Registry<T> {
        Registry(RwLock::new(BTreeMap::new()))
    }

    fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    fn insert(&self, handle: u64, object: T) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::new(object));
    }

    fn remove(&self, handle: u64) -> bool {
        // Dropped outside of the lock: it may free an array.
        let removed = self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        removed.is_some()
    }
}

#[cfg(test)]
mod texture_test;
