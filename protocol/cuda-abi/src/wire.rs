// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Conversions between C structures and their form on the wire. The caller converts values that differ between guest
//! and host (handles, addresses, devices).

use virtio_cuda_protocol::cuda::{
    AllocationProperties, ArrayDescriptor, ArrayMapInfo, DeviceResource, Location, MemoryRequirements,
    PoolProperties, SparseProperties, TextureDescriptor, ViewDescriptor,
};

use crate::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES,
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUarrayMapInfo, CUdevResource,
    CUmemAllocationProp, CUmemLocation, CUmemPoolProps,
};

impl From<CUDA_ARRAY_DESCRIPTOR> for ArrayDescriptor {
    fn from(from: CUDA_ARRAY_DESCRIPTOR) -> Self {
        let CUDA_ARRAY_DESCRIPTOR { width, height, format, channels } = from;
        Self { width: width as u64, height: height as u64, depth: 0, format, channels, flags: 0 }
    }
}

impl From<CUDA_ARRAY3D_DESCRIPTOR> for ArrayDescriptor {
    fn from(from: CUDA_ARRAY3D_DESCRIPTOR) -> Self {
        let CUDA_ARRAY3D_DESCRIPTOR { width, height, depth, format, channels, flags } = from;
        let (width, height, depth) = (width as u64, height as u64, depth as u64);
        Self { width, height, depth, format, channels, flags }
    }
}

impl From<&ArrayDescriptor> for CUDA_ARRAY3D_DESCRIPTOR {
    fn from(from: &ArrayDescriptor) -> Self {
        let ArrayDescriptor { width, height, depth, format, channels, flags } = *from;
        let (width, height, depth) = (width as usize, height as usize, depth as usize);
        Self { width, height, depth, format, channels, flags }
    }
}

impl CUdevResource {
    /// Returns the resource in its form on the wire, where it is identified by `name`.
    pub fn on_wire(&self, name: u64) -> DeviceResource {
        let sm = [self.sm_count, self.min_sm_count, self.sm_alignment, self.sm_flags];
        DeviceResource { name, kind: self.kind, sm }
    }
}

impl From<&DeviceResource> for CUdevResource {
    /// Returns the public part of a resource.
    fn from(from: &DeviceResource) -> Self {
        let [sm_count, min_sm_count, sm_alignment, sm_flags] = from.sm;
        Self { kind: from.kind, sm_count, min_sm_count, sm_alignment, sm_flags, ..Self::ZERO }
    }
}

impl From<CUDA_ARRAY_MEMORY_REQUIREMENTS> for MemoryRequirements {
    fn from(from: CUDA_ARRAY_MEMORY_REQUIREMENTS) -> Self {
        Self { bytes: from.bytes as u64, alignment: from.alignment as u64 }
    }
}

impl From<MemoryRequirements> for CUDA_ARRAY_MEMORY_REQUIREMENTS {
    fn from(from: MemoryRequirements) -> Self {
        Self { bytes: from.bytes as usize, alignment: from.alignment as usize, reserved: [0; 4] }
    }
}

impl From<CUDA_ARRAY_SPARSE_PROPERTIES> for SparseProperties {
    fn from(from: CUDA_ARRAY_SPARSE_PROPERTIES) -> Self {
        let CUDA_ARRAY_SPARSE_PROPERTIES { tile, first_level, tail_bytes, flags, .. } = from;
        Self { tile, first_level, tail_bytes, flags }
    }
}

impl From<SparseProperties> for CUDA_ARRAY_SPARSE_PROPERTIES {
    fn from(from: SparseProperties) -> Self {
        let SparseProperties { tile, first_level, tail_bytes, flags } = from;
        Self { tile, first_level, tail_bytes, flags, reserved: [0; 4] }
    }
}

impl From<CUDA_TEXTURE_DESC> for TextureDescriptor {
    fn from(from: CUDA_TEXTURE_DESC) -> Self {
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
        }
    }
}

impl From<&TextureDescriptor> for CUDA_TEXTURE_DESC {
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

impl From<CUDA_RESOURCE_VIEW_DESC> for ViewDescriptor {
    fn from(from: CUDA_RESOURCE_VIEW_DESC) -> Self {
        Self {
            present: 1,
            format: from.format,
            width: from.width as u64,
            height: from.height as u64,
            depth: from.depth as u64,
            first_mipmap_level: from.first_mipmap_level,
            last_mipmap_level: from.last_mipmap_level,
            first_layer: from.first_layer,
            last_layer: from.last_layer,
        }
    }
}

impl From<&ViewDescriptor> for CUDA_RESOURCE_VIEW_DESC {
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
            ..Self::ZERO
        }
    }
}

impl CUmemPoolProps {
    /// Returns a pool's properties, with the location and handle types in the driver's numbers.
    pub fn of_wire(from: &PoolProperties, location: CUmemLocation, handle_types: u32) -> Self {
        let (kind, max_bytes, usage) = (from.kind, from.max_bytes as usize, from.usage as u16);
        Self { kind, handle_types, location, max_bytes, usage, ..Self::ZERO }
    }
}

impl CUmemAllocationProp {
    /// Returns an allocation's properties, with the location in the driver's or the program's numbers.
    pub fn of_wire(from: &AllocationProperties, location: CUmemLocation) -> Self {
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

    /// Returns the properties in their form on the wire, with the location in the worker's numbers.
    pub fn on_wire(&self, location: Location) -> AllocationProperties {
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

impl CUarrayMapInfo {
    /// Returns an element of the list on the wire, with array and memory in the driver's numbers.
    pub fn of_wire(from: &ArrayMapInfo, resource: u64, memory: u64, device_mask: u32) -> Self {
        let mut subresource = [0; 9];
        subresource[1..].copy_from_slice(&from.subresource);
        Self {
            resource_kind: from.resource_kind,
            resource,
            subresource_kind: from.subresource_kind,
            subresource,
            operation: from.operation,
            handle_kind: from.handle_kind,
            memory,
            offset: from.offset,
            device_mask,
            ..Self::ZERO
        }
    }
}
