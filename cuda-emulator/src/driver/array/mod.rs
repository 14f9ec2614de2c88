// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CUDA arrays and mipmapped arrays: the objects of the handles.

mod api;
mod copies;
mod map;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use cuda_abi::CUDA_ARRAY3D_DESCRIPTOR;

use super::context::Context;
use super::handle::{Handle, Registry};
use super::result::{CUresult, CuResult};
use crate::texture::{
    Array, COMPRESSED_READ, Channel, Compression, Dimension, Element, Extent, Format, Later, MipmappedArray,
    Part,
};

/// An array's handle.
pub type CUarray = Handle<ArrayObject>;
/// A mipmapped array's handle.
pub type CUmipmappedArray = Handle<MipmappedObject>;

static ARRAYS: Registry<ArrayObject> = Registry::new();
static MIPMAPPED: Registry<MipmappedObject> = Registry::new();

impl crate::driver::handle::Object for MipmappedObject {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Levels);
}

impl crate::driver::handle::Object for ArrayObject {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Array);
}

/// CUDA_ARRAY3D_*
pub(super) const LAYERED: u32 = 1;
pub(super) const SURFACE_LDST: u32 = 2;
pub(super) const CUBEMAP: u32 = 4;
pub(super) const TEXTURE_GATHER: u32 = 8;
const SPARSE: u32 = 0x40;
pub(super) const DEFERRED_MAPPING: u32 = 0x80;
/// The flag that video formats need. Other formats accept it.
const VIDEO_ENCODE_DECODE: u32 = 0x100;
const KNOWN_FLAGS: u32 =
    LAYERED | SURFACE_LDST | CUBEMAP | TEXTURE_GATHER | SPARSE | DEFERRED_MAPPING | VIDEO_ENCODE_DECODE;

/// An array.
pub struct ArrayObject {
    pub(super) array: Arc<Array>,
    pub(super) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    context: Weak<Context>,
    /// True for a level of a mipmapped array, which is not destroyed by itself.
    level: bool,
    /// The source of its memory. For a level, the mipmapped array has it.
    pub(super) later: Option<Later>,
}

/// A mipmapped array.
pub struct MipmappedObject {
    pub(super) array: MipmappedArray,
    pub(super) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    context: Weak<Context>,
    /// The source of its memory.
    pub(super) later: Option<Later>,
    /// The handle of each level that was queried.
    handles: Mutex<Vec<CUarray>>,
}

/// CUarray_format with the number of channels.
pub(super) fn format_of(format: u32, channels: u32) -> CuResult<Format> {
    let packed = |channel, first: u32| (channel, Some([1, 2, 4][(format - first) as usize % 3]));
    let (channel, fixed) = match format {
        0x01 => (Channel::U8, None),
        0x02 => (Channel::U16, None),
        0x03 => (Channel::U32, None),
        0x08 => (Channel::S8, None),
        0x09 => (Channel::S16, None),
        0x0a => (Channel::S32, None),
        0x10 => (Channel::F16, None),
        0x20 => (Channel::F32, None),
        0xc0..=0xc2 => packed(Channel::Unorm8, 0xc0),
        0xc3..=0xc5 => packed(Channel::Unorm16, 0xc3),
        0xc6..=0xc8 => packed(Channel::Snorm8, 0xc6),
        0xc9..=0xcb => packed(Channel::Snorm16, 0xc9),
        // Compressed formats do not describe memory.
        0x91..=0x9e => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        // Video formats.
        0x50 | 0x9f..=0xb5 => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    if !matches!(channels, 1 | 2 | 4) || fixed.is_some_and(|fixed| fixed != channels) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Format { channel, channels })
}

/// CUarray_format of an array with the number of channels.
fn element_of(format: u32, channels: u32) -> CuResult<Element> {
    use Compression::{Bc1, Bc2, Bc3, Bc4, Bc5, Bc6, Bc7};
    let (compression, fixed) = match format {
        0x91 | 0x92 => (Bc1, 4),
        0x93 | 0x94 => (Bc2, 4),
        0x95 | 0x96 => (Bc3, 4),
        0x97 | 0x98 => (Bc4 { signed: format == 0x98 }, 1),
        0x99 | 0x9a => (Bc5 { signed: format == 0x9a }, 2),
        0x9b | 0x9c => (Bc6 { signed: format == 0x9c }, 3),
        0x9d | 0x9e => (Bc7, 4),
        _ => return format_of(format, channels).map(Element::from),
    };
    if channels != fixed {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Element { format: COMPRESSED_READ, compression: Some(compression) })
}

/// Returns whether a compressed format is sRGB, which textures must specify, too.
pub(super) fn is_srgb(format: u32) -> bool {
    matches!(format, 0x92 | 0x94 | 0x96 | 0x9e)
}

/// The maximum sizes of an array that is deeper than others (MAXIMUM_TEXTURE3D_*_ALTERNATE).
const DEEP: [usize; 3] = [8_192, 8_192, 32_768];

/// Returns the maximum sizes, as in the device's attributes.
fn largest(dimension: Dimension, gather: bool) -> [usize; 3] {
    match dimension {
        Dimension::D1 => [131_072, 0, 0],
        Dimension::D2 if gather => [32_768, 32_768, 0],
        Dimension::D2 => [131_072, 65_536, 0],
        Dimension::D3 => [16_384, 16_384, 16_384],
        Dimension::D1Layered => [32_768, 0, 2048],
        Dimension::D2Layered => [32_768, 32_768, 2048],
        Dimension::Cube => [32_768, 32_768, 6],
        Dimension::CubeLayered => [32_768, 32_768, 2046],
    }
}

/// The array that a descriptor describes.
pub(super) trait Described {
    /// Returns the kind of array and its size.
    fn resolve(&self) -> CuResult<(Dimension, Element, Extent)>;
    fn gets_memory_later(&self) -> bool;
}

impl Described for CUDA_ARRAY3D_DESCRIPTOR {
    fn resolve(&self) -> CuResult<(Dimension, Element, Extent)> {
        let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        if matches!(self.format, 0x9f..=0xb5) && self.flags & VIDEO_ENCODE_DECODE == 0 {
            return invalid;
        }
        let element = element_of(self.format, self.channels)?;
        let [width, height, depth] = self.size();
        // A sparse array has no surfaces, and one row is not a tile.
        let not_sparse = SURFACE_LDST | DEFERRED_MAPPING | CUBEMAP;
        let too_few_rows = height == 0 && (self.flags & SPARSE != 0 || element.compression.is_some());
        if self.flags & !KNOWN_FLAGS != 0
            || self.flags & SPARSE != 0 && self.flags & not_sparse != 0
            || too_few_rows
        {
            return invalid;
        }
        if element.compression.is_some() && self.flags & SURFACE_LDST != 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let layered = self.flags & LAYERED != 0;
        let dimension = match (self.flags & CUBEMAP != 0, layered) {
            (true, false) if width == height && depth == 6 => Dimension::Cube,
            (true, true) if width == height && depth > 0 && depth.is_multiple_of(6) => Dimension::CubeLayered,
            (true, _) => return invalid,
            (false, true) if depth == 0 => return invalid,
            (false, true) if height == 0 => Dimension::D1Layered,
            (false, true) => Dimension::D2Layered,
            (false, false) if depth > 0 && height == 0 => return invalid,
            (false, false) if depth > 0 => Dimension::D3,
            (false, false) if height > 0 => Dimension::D2,
            (false, false) => Dimension::D1,
        };
        let gather = self.flags & TEXTURE_GATHER != 0;
        let most = match dimension {
            Dimension::D3 if depth > largest(dimension, gather)[2] => DEEP,
            _ => largest(dimension, gather),
        };
        let too_large = self.size().iter().zip(most).any(|(size, most)| *size > most);
        if width == 0 || too_large || gather && dimension != Dimension::D2 {
            return invalid;
        }
        let [width, height, depth] = self.size().map(|size| size.max(1) as u32);
        Ok((dimension, element, Extent { width, height, depth }))
    }

    fn gets_memory_later(&self) -> bool {
        self.flags & (SPARSE | DEFERRED_MAPPING) != 0
    }
}

/// Returns the array of a handle. NULL is an invalid value.
pub(super) fn find_not_null(handle: CUarray) -> CuResult<Arc<ArrayObject>> {
    if handle == CUarray::NULL { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { find(handle) }
}

/// Returns the array of a handle.
pub(super) fn find(handle: CUarray) -> CuResult<Arc<ArrayObject>> {
    ARRAYS.get(handle).ok_or_else(|| handle.refusal())
}

/// Returns the mipmapped array of a handle.
pub(super) fn find_mipmapped(handle: CUmipmappedArray) -> CuResult<Arc<MipmappedObject>> {
    MIPMAPPED.get(handle).ok_or_else(|| handle.refusal())
}

/// Returns the handle of an array, or NULL when it was destroyed.
pub(super) fn handle_of(array: &Arc<Array>) -> CUarray {
    ARRAYS.find(|object| Arc::ptr_eq(&object.array, array)).unwrap_or(Handle::NULL)
}

/// Creates an array in a context.
pub(super) fn create(context: &Arc<Context>, descriptor: CUDA_ARRAY3D_DESCRIPTOR) -> CuResult<CUarray> {
    let (dimension, element, extent) = descriptor.resolve()?;
    let context_of = Arc::downgrade(context);
    let object = if descriptor.gets_memory_later() {
        let (levels, later) = without_memory(&descriptor, 1)?;
        let array = Arc::clone(&levels.levels[0]);
        ArrayObject { array, descriptor, context: context_of, level: false, later: Some(later) }
    } else {
        let array = Array::new(&context.device.memory, dimension, element, extent);
        let array = Arc::new(array.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?);
        ArrayObject { array, descriptor, context: context_of, level: false, later: None }
    };
    let handle = Handle::unique();
    ARRAYS.insert(handle, Arc::new(object));
    Ok(handle)
}

/// Creates levels that get their memory later.
fn without_memory(of: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> CuResult<(MipmappedArray, Later)> {
    let (dimension, element, extent) = of.resolve()?;
    let made = MipmappedArray::without_memory(dimension, element, extent, levels, of.flags & SPARSE != 0);
    made.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

/// cuArrayDestroy. Other owners of the array keep its memory. Mipmapped arrays and their levels stay, and that is not
/// an error.
pub(super) fn destroy(handle: CUarray) -> CuResult<()> {
    if find(handle)?.level {
        return Ok(());
    }
    ARRAYS.remove(handle).map(|_| ()).ok_or_else(|| handle.refusal())
}

/// Creates a mipmapped array in a context.
pub(super) fn create_mipmapped(
    context: &Arc<Context>,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
) -> CuResult<CUmipmappedArray> {
    let (dimension, element, extent) = descriptor.resolve()?;
    let (array, later) = if descriptor.gets_memory_later() {
        let (array, later) = without_memory(&descriptor, levels)?;
        (array, Some(later))
    } else {
        let array = MipmappedArray::new(&context.device.memory, dimension, element, extent, levels);
        (array.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?, None)
    };
    Ok(enter_mipmapped(context, descriptor, array, later))
}

/// Creates a mipmapped array in memory of another owner: `memory` returns it for a number of bytes.
pub(super) fn create_mipmapped_in(
    context: &Arc<Context>,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
    memory: impl FnOnce(u64) -> CuResult<Part>,
) -> CuResult<CUmipmappedArray> {
    let (array, later) = without_memory(&descriptor, levels)?;
    if descriptor.gets_memory_later() || array.levels.len() != levels as usize {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    later.parts.change(vec![(0, Some(memory(later.used)?))]);
    Ok(enter_mipmapped(context, descriptor, array, None))
}

fn enter_mipmapped(
    context: &Arc<Context>,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    array: MipmappedArray,
    later: Option<Later>,
) -> CUmipmappedArray {
    let handles = Mutex::new(vec![Handle::NULL; array.levels.len()]);
    let object = MipmappedObject { array, descriptor, context: Arc::downgrade(context), later, handles };
    let handle = Handle::unique();
    MIPMAPPED.insert(handle, Arc::new(object));
    handle
}

impl MipmappedObject {
    /// Returns the array of a level, with the same handle each time.
    pub(super) fn level(&self, level: u32) -> CuResult<CUarray> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let place = handles.get_mut(level as usize).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if *place == Handle::NULL {
            let array = Arc::clone(&self.array.levels[level as usize]);
            let extent = array.level.extent;
            let whole = [extent.width, extent.height, extent.depth];
            // A direction that the descriptor leaves out remains left out.
            let size = std::array::from_fn(|axis| match self.descriptor.size()[axis] {
                0 => 0,
                _ => whole[axis] as usize,
            });
            let descriptor = self.descriptor.with_size(size);
            let context = Weak::clone(&self.context);
            let object = ArrayObject { array, descriptor, context, level: true, later: None };
            *place = Handle::unique();
            ARRAYS.insert(*place, Arc::new(object));
        }
        Ok(*place)
    }

    fn forget_levels(&self) {
        for handle in self.handles.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            ARRAYS.remove(*handle);
        }
    }
}

/// cuMipmappedArrayDestroy
pub(super) fn destroy_mipmapped(handle: CUmipmappedArray) -> CuResult<()> {
    MIPMAPPED.remove(handle).ok_or_else(|| handle.refusal())?.forget_levels();
    Ok(())
}

/// Ends the handles of all arrays of a context that is being destroyed.
pub(super) fn forget_arrays(context: &Context) {
    let of_context = |owner: &Weak<Context>| std::ptr::eq(owner.as_ptr(), context);
    MIPMAPPED.remove_where(|object| of_context(&object.context));
    ARRAYS.remove_where(|object| of_context(&object.context));
}
