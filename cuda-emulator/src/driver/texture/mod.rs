// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texture objects.

mod numbers;
mod surface;
mod tensor_map;

use std::sync::{Arc, Weak};

use cuda_abi::{CUDA_ARRAY3D_DESCRIPTOR, CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC};

use self::numbers::Numbers;
use super::array::{self, CUarray, CUmipmappedArray};
use super::context::{self, Context};
use super::device;
use super::device::attributes::{PITCH_ALIGNMENT, TEXTURE_PITCH_ALIGNMENT};
use super::ffi::{In, Out};
use super::handle::{Handle, Registry};
use super::result::{CUresult, CuResult};
use super::vmm;
use crate::memory::{Range, RangeKind};
use crate::texture::{self, AddressMode, Channel, Compression, Format, Sampler, Texture};

/// A texture object's handle, which kernels get as a parameter.
pub type CUtexObject = Handle<TextureObject>;

static OBJECTS: Registry<TextureObject> = Registry::new();
/// Textures and surfaces share them.
static NUMBERS: Numbers = Numbers::new();

impl crate::driver::handle::Object for TextureObject {
    const KIND: Option<crate::driver::handle::Kind> = None;
}

/// The description that a texture object was created from.
pub struct TextureObject {
    handle: CUtexObject,
    context: Weak<Context>,
    resource: CUDA_RESOURCE_DESC,
    texture: CUDA_TEXTURE_DESC,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

/// CUresourcetype
pub(super) const RESOURCE_ARRAY: u32 = 0;
pub(super) const RESOURCE_MIPMAPPED_ARRAY: u32 = 1;
pub(super) const RESOURCE_LINEAR: u32 = 2;
pub(super) const RESOURCE_PITCH_2D: u32 = 3;
/// CU_TRSF_*
const READ_AS_INTEGER: u32 = 1;
const NORMALIZED_COORDINATES: u32 = 2;
const SRGB: u32 = 0x10;
const SEAMLESS_CUBEMAP: u32 = 0x40;
/// With CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION.
pub(super) const FLAGS: u32 = 0x73;
/// The maximum number of texels of a buffer, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH.
const MAX_LINEAR: u64 = 1 << 28;

/// The part of a description that sets the sampler of a texture.
pub(super) trait TextureDescription {
    /// Returns the initial description of a texture reference.
    fn of_reference() -> CUDA_TEXTURE_DESC;
    /// Returns the sampler of a texture with that number of dimensions.
    fn sampler(&self, dimensions: usize) -> CuResult<Sampler>;
}

impl TextureDescription for CUDA_TEXTURE_DESC {
    fn of_reference() -> CUDA_TEXTURE_DESC {
        CUDA_TEXTURE_DESC { address_modes: [1; 3], ..CUDA_TEXTURE_DESC::ZERO }
    }

    fn sampler(&self, dimensions: usize) -> CuResult<Sampler> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let mode = |mode| {
            Ok(match mode {
                0 => AddressMode::Wrap,
                1 => AddressMode::Clamp,
                2 => AddressMode::Mirror,
                3 => AddressMode::Border,
                _ => return Err(invalid),
            })
        };
        if self.flags & !FLAGS != 0 || self.filter_mode > 1 || self.mipmap_filter_mode > 1 {
            return Err(invalid);
        }
        // The modes of missing dimensions are ignored.
        let mut address = [AddressMode::Clamp; 3];
        for (place, &number) in address.iter_mut().zip(&self.address_modes).take(dimensions) {
            *place = mode(number)?;
        }
        Ok(Sampler {
            address,
            linear: self.filter_mode == 1,
            linear_mipmap: self.mipmap_filter_mode == 1,
            normalized_read: self.flags & READ_AS_INTEGER == 0,
            normalized_coordinates: self.flags & NORMALIZED_COORDINATES != 0,
            srgb: self.flags & SRGB != 0,
            level_bias: self.mipmap_level_bias,
            level_clamp: [self.min_mipmap_level_clamp, self.max_mipmap_level_clamp],
            border: self.border_color,
        })
    }
}

/// Returns the blocks of a CUresourceViewFormat that views elements as blocks.
fn view_of_blocks(format: u32) -> Option<Compression> {
    Some(match format {
        0x19 => Compression::Bc1,
        0x1a => Compression::Bc2,
        0x1b => Compression::Bc3,
        0x1c | 0x1d => Compression::Bc4 { signed: format == 0x1d },
        0x1e | 0x1f => Compression::Bc5 { signed: format == 0x1f },
        0x20 | 0x21 => Compression::Bc6 { signed: format == 0x21 },
        0x22 => Compression::Bc7,
        _ => return None,
    })
}

/// Returns the format of a CUresourceViewFormat; `None` also for [`view_of_blocks`].
fn view_format(format: u32) -> CuResult<Option<Format>> {
    const CHANNELS: [Channel; 8] = [
        Channel::U8,
        Channel::S8,
        Channel::U16,
        Channel::S16,
        Channel::U32,
        Channel::S32,
        Channel::F16,
        Channel::F32,
    ];
    match format {
        0 => Ok(None),
        1..=0x18 => {
            let index = format as usize - 1;
            Ok(Some(Format { channel: CHANNELS[index / 3], channels: [1, 2, 4][index % 3] }))
        }
        0x19..=0x22 => Ok(None),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// A view of an array.
trait ViewDescription {
    /// Checks a view of an array of `levels` levels, of which this is the first. It must have the same size, elements
    /// of the same number of bytes, and only existing levels and layers.
    fn check(&self, of: &CUDA_ARRAY3D_DESCRIPTOR, levels: usize) -> CuResult<()>;
}

impl ViewDescription for CUDA_RESOURCE_VIEW_DESC {
    fn check(&self, of: &CUDA_ARRAY3D_DESCRIPTOR, levels: usize) -> CuResult<()> {
        let format = view_format(self.format)?;
        let element = array::format_of(of.format, of.channels)?;
        let blocks = view_of_blocks(self.format);
        let side = if blocks.is_some() { 4 } else { 1 };
        let size = [of.size()[0].saturating_mul(side), of.size()[1].saturating_mul(side), of.size()[2]];
        let fits = match blocks {
            // Blocks are elements of unsigned 32-bit channels.
            Some(blocks) => element.channel == Channel::U32 && element.bytes() == blocks.block_bytes(),
            None => format.is_some_and(|format| format.bytes() == element.bytes()),
        };
        let layers = if of.flags & array::LAYERED != 0 { of.size()[2] } else { 1 };
        let in_order = |first: u32, last: u32, count: usize| first <= last && (last as usize) < count;
        let good = fits
            && [self.width, self.height, self.depth] == size
            && in_order(self.first_mipmap_level, self.last_mipmap_level, levels)
            && in_order(self.first_layer, self.last_layer, layers);
        if good { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
    }
}

/// Returns the number of an array's dimensions whose coordinates are numbers, not layers or faces.
fn dimensions(of: &CUDA_ARRAY3D_DESCRIPTOR) -> usize {
    let is_3d = of.size()[2] != 0 && of.flags & (array::LAYERED | array::CUBEMAP) == 0;
    if is_3d { 3 } else { 1 + usize::from(of.size()[1] != 0) }
}

/// Returns reserved addresses around `address` at which nothing is mapped yet. An H200 makes textures of them, too.
fn reserved(address: u64) -> Option<(&'static device::Device, Range)> {
    let (base, bytes) = vmm::reservation_of(address)?;
    let device = context::device_of(Handle::NULL).ok()?;
    Some((device, Range { base, bytes, kind: RangeKind::Mapped }))
}

/// Returns a texture on linear memory, CU_RESOURCE_TYPE_LINEAR or CU_RESOURCE_TYPE_PITCH2D.
fn of_memory(resource: &CUDA_RESOURCE_DESC, sampler: Sampler) -> CuResult<Texture> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let [address, kind, third, fourth, fifth, ..] = resource.words;
    let format = array::format_of(kind as u32, (kind >> 32) as u32)?;
    let (device, range) = device::range_of(address).or_else(|| reserved(address)).ok_or(invalid)?;
    if !address.is_multiple_of(PITCH_ALIGNMENT) {
        return Err(invalid);
    }
    if resource.kind == RESOURCE_LINEAR {
        let texels = third / u64::from(format.bytes());
        if texels > MAX_LINEAR || !range.holds(address, third) {
            return Err(invalid);
        }
        return Ok(Texture::of_buffer(&device.memory, address, texels as u32, format, sampler));
    }
    let (width, height, pitch) = (third, fourth, fifth);
    if height == 0 || width > 131_072 || height > 65_000 || !pitch.is_multiple_of(TEXTURE_PITCH_ALIGNMENT) {
        return Err(invalid);
    }
    if width == 0 {
        // Without texels all reads return zeros.
        return Ok(Texture::of_buffer(&device.memory, address, 0, format, sampler));
    }
    let texture =
        Texture::of_rows(&device.memory, address, [width as u32, height as u32], pitch, format, sampler);
    let texture = texture.ok_or(invalid)?;
    // The last row need not be padded.
    let bytes = (height - 1) * pitch + width * u64::from(format.bytes());
    if range.holds(address, bytes) { Ok(texture) } else { Err(invalid) }
}

/// Checks that linear or pitched memory can be a texture.
pub(super) fn check_memory(resource: &CUDA_RESOURCE_DESC) -> CuResult<()> {
    of_memory(resource, Sampler::default()).map(drop)
}

/// Creates the texture of a resource.
pub(super) fn make(
    resource: &CUDA_RESOURCE_DESC,
    texture: &CUDA_TEXTURE_DESC,
    view: Option<&CUDA_RESOURCE_VIEW_DESC>,
) -> CuResult<Texture> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    if resource.flags != 0 {
        return Err(invalid);
    }
    let described = |of: &CUDA_ARRAY3D_DESCRIPTOR, levels: usize| {
        // Only cubes have seams.
        if texture.flags & SEAMLESS_CUBEMAP != 0 && of.flags & array::CUBEMAP == 0 {
            return Err(invalid);
        }
        view.map_or(Ok(()), |view| view.check(of, levels))?;
        if array::is_srgb(of.format) && texture.flags & SRGB == 0 {
            return Err(invalid);
        }
        let format = view.map_or(Ok(None), |view| view_format(view.format))?;
        Ok((texture.sampler(dimensions(of))?, format))
    };
    let blocks = view.and_then(|view| view_of_blocks(view.format));
    let on_arrays = |levels, sampler, format| match blocks {
        Some(blocks) => Texture::of_blocks(levels, sampler, blocks),
        None => Texture::of_arrays(levels, sampler, format),
    };
    let made = match resource.kind {
        RESOURCE_ARRAY => {
            if resource.words[0] == 0 {
                return Err(invalid);
            }
            let array = array::find(CUarray::new(resource.words[0] as usize))?;
            let (sampler, format) = described(&array.descriptor, 1)?;
            on_arrays(vec![Arc::clone(&array.array)], sampler, format).ok_or(invalid)?
        }
        RESOURCE_MIPMAPPED_ARRAY => {
            let array = array::find_mipmapped(CUmipmappedArray::new(resource.words[0] as usize))?;
            let all = &array.array.levels;
            let (sampler, format) = described(&array.descriptor, all.len())?;
            let levels = match view {
                Some(view) => all
                    .get(view.first_mipmap_level as usize..=view.last_mipmap_level as usize)
                    .ok_or(invalid)?,
                None => all,
            };
            on_arrays(levels.to_vec(), sampler, format).ok_or(invalid)?
        }
        RESOURCE_LINEAR => of_memory(resource, texture.sampler(1)?)?,
        RESOURCE_PITCH_2D => of_memory(resource, texture.sampler(2)?)?,
        _ => return Err(invalid),
    };
    // Integers are not filtered.
    if texture.filter_mode == 1 && !made.reads_floats() { Err(invalid) } else { Ok(made) }
}

fn tex_object_create(
    out: Out<CUtexObject>,
    resource: In<CUDA_RESOURCE_DESC>,
    texture: In<CUDA_TEXTURE_DESC>,
    view: In<CUDA_RESOURCE_VIEW_DESC>,
) -> CuResult<()> {
    out.check()?;
    let context = Arc::downgrade(&context::current()?);
    let (resource, texture) = (resource.get()?, texture.get()?);
    let view = if view.is_null() { None } else { Some(view.get()?) };
    let made = make(&resource, &texture, view.as_ref())?;
    if view.is_some_and(|view| view.first_layer != 0) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let handle = NUMBERS.take();
    OBJECTS.insert(handle, Arc::new(TextureObject { handle, context, resource, texture, view }));
    texture::publish_texture(handle.0 as u64, made);
    out.set_if_wanted(handle);
    Ok(())
}

fn find(handle: CUtexObject) -> CuResult<Arc<TextureObject>> {
    OBJECTS.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn tex_object_destroy(handle: CUtexObject) -> CuResult<()> {
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

fn ended(handle: CUtexObject) {
    texture::remove_texture(handle.0 as u64);
    NUMBERS.give_back(handle);
}

/// Ends all textures and surfaces of a context that is being destroyed.
pub(super) fn forget_objects(context: &Context) {
    let of_context = |object: &TextureObject| std::ptr::eq(object.context.as_ptr(), context);
    OBJECTS.remove_where(of_context).iter().for_each(|object| ended(object.handle));
    surface::forget_objects(context);
}

fn get_resource(out: Out<CUDA_RESOURCE_DESC>, handle: CUtexObject) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(find(handle)?.resource);
    Ok(())
}

fn get_texture(out: Out<CUDA_TEXTURE_DESC>, handle: CUtexObject) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(find(handle)?.texture);
    Ok(())
}

fn get_view(out: Out<CUDA_RESOURCE_VIEW_DESC>, handle: CUtexObject) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(find(handle)?.view.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?);
    Ok(())
}

super::ffi::entries! { after_init
    cuTexObjectCreate => tex_object_create(
        out: Out<CUtexObject>, resource: In<CUDA_RESOURCE_DESC>, texture: In<CUDA_TEXTURE_DESC>,
        view: In<CUDA_RESOURCE_VIEW_DESC>);
    cuTexObjectDestroy => tex_object_destroy(object: CUtexObject);
    cuTexObjectGetResourceDesc => get_resource(out: Out<CUDA_RESOURCE_DESC>, object: CUtexObject);
    cuTexObjectGetTextureDesc => get_texture(out: Out<CUDA_TEXTURE_DESC>, object: CUtexObject);
    cuTexObjectGetResourceViewDesc => get_view(out: Out<CUDA_RESOURCE_VIEW_DESC>, object: CUtexObject);
}
