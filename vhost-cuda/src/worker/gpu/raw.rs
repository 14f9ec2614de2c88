// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's structures with plain integers for enums: what the guest or a newer driver puts there need not
//! be one of the values that cudarc knows. Sizes are compared with cudarc's.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys;
use virtio_cuda_protocol::cuda::{
    AllocationProperties, ArrayDescriptor, ArrayMapInfo, DeviceResource, Location, PoolProperties,
    TextureDescriptor, ViewDescriptor,
};

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RawArray {
    /// Elements a row.
    pub width: usize,
    /// Rows, or 0.
    pub height: usize,
    /// Slices, layers or faces, or 0.
    pub depth: usize,
    /// `CU_AD_FORMAT_*`.
    pub format: c_uint,
    /// Channels an element.
    pub channels: c_uint,
    /// `CUDA_ARRAY3D_*` bits.
    pub flags: c_uint,
}
const _: () = assert!(size_of::<RawArray>() == size_of::<sys::CUDA_ARRAY3D_DESCRIPTOR>());

impl RawArray {
    /// Nothing.
    pub const ZERO: Self = Self { width: 0, height: 0, depth: 0, format: 0, channels: 0, flags: 0 };
}

impl From<&ArrayDescriptor> for RawArray {
    fn from(from: &ArrayDescriptor) -> Self {
        Self {
            width: from.width as usize,
            height: from.height as usize,
            depth: from.depth as usize,
            format: from.format,
            channels: from.channels,
            flags: from.flags,
        }
    }
}

impl From<RawArray> for ArrayDescriptor {
    fn from(from: RawArray) -> Self {
        Self {
            width: from.width as u64,
            height: from.height as u64,
            depth: from.depth as u64,
            format: from.format,
            channels: from.channels,
            flags: from.flags,
        }
    }
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawRequirements {
    /// Bytes.
    pub bytes: usize,
    /// Alignment in bytes.
    pub alignment: usize,
    reserved: [c_uint; 4],
}
const _: () = assert!(size_of::<RawRequirements>() == size_of::<sys::CUDA_ARRAY_MEMORY_REQUIREMENTS>());

impl RawRequirements {
    /// Nothing.
    pub const ZERO: Self = Self { bytes: 0, alignment: 0, reserved: [0; 4] };
}

/// `CUDA_ARRAY_SPARSE_PROPERTIES`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawSparse {
    /// Texels a tile, in each direction.
    pub tile: [c_uint; 3],
    /// First level of the tail.
    pub first_level: c_uint,
    /// Bytes of the tail.
    pub tail_bytes: u64,
    /// `CU_ARRAY_SPARSE_PROPERTIES_*`.
    pub flags: c_uint,
    reserved: [c_uint; 4],
}
const _: () = assert!(size_of::<RawSparse>() == size_of::<sys::CUDA_ARRAY_SPARSE_PROPERTIES>());

impl RawSparse {
    /// Nothing.
    pub const ZERO: Self = Self { tile: [0; 3], first_level: 0, tail_bytes: 0, flags: 0, reserved: [0; 4] };
}

/// `CUarrayMapInfo`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct RawArrayMap {
    resource_kind: c_uint,
    pad: c_uint,
    resource: u64,
    subresource_kind: c_uint,
    pad_2: c_uint,
    /// The union, whose members of eight bytes lie at even words.
    subresource: [c_uint; 8],
    operation: c_uint,
    handle_kind: c_uint,
    memory: u64,
    offset: u64,
    device_mask: c_uint,
    flags: c_uint,
    reserved: [c_uint; 2],
}
const _: () = assert!(size_of::<RawArrayMap>() == size_of::<sys::CUarrayMapInfo>());

impl RawArrayMap {
    /// What the guest asks for, of an array and memory in the driver's numbers.
    pub fn new(from: &ArrayMapInfo, resource: *mut c_void, memory: u64, device_mask: u32) -> Self {
        Self {
            resource_kind: from.resource_kind,
            pad: 0,
            resource: resource as u64,
            subresource_kind: from.subresource_kind,
            pad_2: 0,
            subresource: from.subresource,
            operation: from.operation,
            handle_kind: from.handle_kind,
            memory,
            offset: from.offset,
            device_mask,
            flags: 0,
            reserved: [0; 2],
        }
    }
}

/// `CUDA_RESOURCE_DESC`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawResource {
    kind: c_uint,
    /// The union in words of eight bytes: all its members begin on such a word.
    words: [u64; 16],
    flags: c_uint,
}
const _: () = assert!(size_of::<RawResource>() == size_of::<sys::CUDA_RESOURCE_DESC>());

impl RawResource {
    fn new(kind: c_uint, first: &[u64]) -> Self {
        let mut words = [0; 16];
        words[..first.len()].copy_from_slice(first);
        Self { kind, words, flags: 0 }
    }

    /// An array or (`mipmapped`) a mipmapped array.
    pub fn array(handle: *mut c_void, mipmapped: bool) -> Self {
        Self::new(mipmapped.into(), &[handle as u64])
    }

    /// `bytes` bytes at `dptr`.
    pub fn linear(dptr: u64, (format, channels): (u32, u32), bytes: u64) -> Self {
        Self::new(2, &[dptr, pair(format, channels), bytes])
    }

    /// Rows at `dptr`: `size` is elements a row, rows, and bytes from row to row.
    pub fn pitched(dptr: u64, (format, channels): (u32, u32), size: [u64; 3]) -> Self {
        let [width, height, pitch] = size;
        Self::new(3, &[dptr, pair(format, channels), width, height, pitch])
    }
}

/// Two fields of four bytes in one word.
fn pair(first: u32, second: u32) -> u64 {
    u64::from(second) << 32 | u64::from(first)
}

/// `CUexecAffinityParam` of `CU_EXEC_AFFINITY_TYPE_SM_COUNT`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RawAffinity {
    kind: c_int,
    /// Multiprocessors.
    pub count: c_uint,
}
const _: () = assert!(size_of::<RawAffinity>() == size_of::<sys::CUexecAffinityParam>());

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawRows {
    width: usize,
    height: usize,
    format: c_uint,
    channels: c_uint,
}
const _: () = assert!(size_of::<RawRows>() == size_of::<sys::CUDA_ARRAY_DESCRIPTOR>());

impl RawRows {
    /// `size` is elements a row, and rows.
    pub fn new(size: [u64; 2], format: u32, channels: u32) -> Self {
        Self { width: size[0] as usize, height: size[1] as usize, format, channels }
    }
}

/// `CUDA_TEXTURE_DESC`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawTexture {
    address_modes: [c_uint; 3],
    filter_mode: c_uint,
    flags: c_uint,
    max_anisotropy: c_uint,
    mipmap_filter_mode: c_uint,
    mipmap_level_bias: f32,
    min_mipmap_level_clamp: f32,
    max_mipmap_level_clamp: f32,
    border_color: [f32; 4],
    reserved: [c_int; 12],
}
const _: () = assert!(size_of::<RawTexture>() == size_of::<sys::CUDA_TEXTURE_DESC>());

impl From<&TextureDescriptor> for RawTexture {
    fn from(from: &TextureDescriptor) -> Self {
        Self {
            address_modes: from.address_modes,
            filter_mode: from.filter_mode,
            flags: from.flags,
            max_anisotropy: from.max_anisotropy,
            mipmap_filter_mode: from.mipmap_filter_mode,
            mipmap_level_bias: from.mipmap_level_bias,
            min_mipmap_level_clamp: from.min_mipmap_level_clamp,
            max_mipmap_level_clamp: from.max_mipmap_level_clamp,
            border_color: from.border_color,
            reserved: [0; 12],
        }
    }
}

/// `CUDA_RESOURCE_VIEW_DESC`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawView {
    format: c_uint,
    width: usize,
    height: usize,
    depth: usize,
    first_mipmap_level: c_uint,
    last_mipmap_level: c_uint,
    first_layer: c_uint,
    last_layer: c_uint,
    reserved: [c_uint; 16],
}
const _: () = assert!(size_of::<RawView>() == size_of::<sys::CUDA_RESOURCE_VIEW_DESC>());

impl From<&ViewDescriptor> for RawView {
    fn from(from: &ViewDescriptor) -> Self {
        Self {
            format: from.format,
            width: from.width as usize,
            height: from.height as usize,
            depth: from.depth as usize,
            first_mipmap_level: from.first_mipmap_level,
            last_mipmap_level: from.last_mipmap_level,
            first_layer: from.first_layer,
            last_layer: from.last_layer,
            reserved: [0; 16],
        }
    }
}

/// `CUmemLocation`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawLocation {
    /// `CU_MEM_LOCATION_TYPE_*`.
    pub kind: c_uint,
    /// The driver's number of the device.
    pub id: c_int,
}
const _: () = assert!(size_of::<RawLocation>() == size_of::<sys::CUmemLocation>());

/// `CUmemAccessDesc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawAccess {
    /// Who.
    pub location: RawLocation,
    /// `CU_MEM_ACCESS_FLAGS_*`.
    pub access: c_uint,
}
const _: () = assert!(size_of::<RawAccess>() == size_of::<sys::CUmemAccessDesc>());

/// `CUmemPoolProps`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawPool {
    kind: c_uint,
    handle_types: c_uint,
    location: RawLocation,
    security: *mut c_void,
    max_bytes: usize,
    usage: u16,
    reserved: [u8; 54],
}
const _: () = assert!(size_of::<RawPool>() == size_of::<sys::CUmemPoolProps>());

impl RawPool {
    /// A pool at a location that has been checked.
    pub fn new(from: &PoolProperties, location: RawLocation, handle_types: c_uint) -> Self {
        Self {
            kind: from.kind,
            handle_types,
            location,
            security: null_mut(),
            max_bytes: from.max_bytes as usize,
            usage: from.usage as u16,
            reserved: [0; 54],
        }
    }
}

/// `CUmemAllocationProp`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawAllocation {
    kind: c_uint,
    handle_types: c_uint,
    location: RawLocation,
    win32_metadata: *mut c_void,
    compression: u8,
    gpu_direct_rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<RawAllocation>() == size_of::<sys::CUmemAllocationProp>());

impl RawAllocation {
    /// Nothing.
    pub const ZERO: Self = Self {
        kind: 0,
        handle_types: 0,
        location: RawLocation { kind: 0, id: 0 },
        win32_metadata: null_mut(),
        compression: 0,
        gpu_direct_rdma: 0,
        usage: 0,
        reserved: [0; 4],
    };

    /// An allocation at a location that has been checked.
    pub fn new(from: &AllocationProperties, location: RawLocation) -> Self {
        Self {
            kind: from.kind,
            handle_types: from.handle_types,
            location,
            compression: from.compression as u8,
            gpu_direct_rdma: from.gpu_direct_rdma as u8,
            usage: from.usage as u16,
            ..Self::ZERO
        }
    }

    /// What it became, at the guest's name of the location.
    pub fn properties(&self, location: Location) -> AllocationProperties {
        AllocationProperties {
            kind: self.kind,
            handle_types: self.handle_types,
            location,
            compression: self.compression.into(),
            gpu_direct_rdma: self.gpu_direct_rdma.into(),
            usage: self.usage.into(),
        }
    }
}

/// `CUtensorMap`: opaque.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct RawTensorMap(pub [u8; 128]);
const _: () = assert!(size_of::<RawTensorMap>() == size_of::<sys::CUtensorMap>());

/// `CUdevResource`. Of its inside, which is the driver's own, only what describes multiprocessors is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct RawDevResource {
    kind: c_uint,
    inside: [c_uint; 23],
    sm: [c_uint; 4],
    rest: [c_uint; 8],
}
const _: () = assert!(size_of::<RawDevResource>() == size_of::<sys::CUdevResource>());

impl RawDevResource {
    /// No resource.
    pub const NONE: Self = Self { kind: 0, inside: [0; 23], sm: [0; 4], rest: [0; 8] };

    /// What the guest gets of it, under a name.
    pub fn for_guest(&self, name: u64) -> DeviceResource {
        DeviceResource { name, kind: self.kind, sm: self.sm }
    }
}
