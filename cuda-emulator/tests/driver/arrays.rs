// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays, textures and surfaces from their making to what kernels read.

use std::ptr::{null, null_mut};

use cuda_abi::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEMCPY2D, CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC, CUarrayMapInfo,
    CUmemAllocationProp, CUmemLocation, CopyEnd2D,
};

use crate::cu::{self, Opaque, cu, download, function, launch, params, upload};

const INVALID_VALUE: i32 = 1;
const INVALID_HANDLE: i32 = 400;
const FLOAT: u32 = 0x20;
const SIGNED_INT32: u32 = 0x0a;
const SURFACE_LDST: u32 = 2;
const HOST: u32 = 1;
const ARRAY: u32 = 3;

const PTX: &str = concat!(include_str!("../data/texture.ptx"), "\0");

fn load_module() -> Opaque {
    cu::use_primary_context();
    let mut module = null_mut();
    assert_eq!(cu!(cuModuleLoadData(&mut module, PTX.as_ptr().cast())), 0);
    module
}

fn array(descriptor: CUDA_ARRAY3D_DESCRIPTOR) -> Opaque {
    let mut array = null_mut();
    assert_eq!(cu!(cuArray3DCreate_v2(&mut array, &descriptor)), 0);
    array
}

fn described(size: [usize; 3], format: u32, channels: u32, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR { format, channels, flags, ..CUDA_ARRAY3D_DESCRIPTOR::ZERO.with_size(size) }
}

fn floats(width: usize, height: usize) -> CUDA_ARRAY3D_DESCRIPTOR {
    described([width, height, 0], FLOAT, 1, SURFACE_LDST)
}

/// A copy of a whole plane of floats between an array and host memory.
fn plane(array: Opaque, host: *mut f32, width: usize, height: usize, in_array: bool) -> i32 {
    let array = CopyEnd2D { memory_type: ARRAY, array: array as u64, ..CopyEnd2D::ZERO };
    let host = CopyEnd2D { memory_type: HOST, host: host as u64, pitch: width * 4, ..CopyEnd2D::ZERO };
    let (src, dst) = if in_array { (array, host) } else { (host, array) };
    cu!(cuMemcpy2D_v2(&CUDA_MEMCPY2D { src, dst, width: width * 4, height }))
}

fn resource(array: Opaque) -> CUDA_RESOURCE_DESC {
    CUDA_RESOURCE_DESC::array(array as u64)
}

#[test]
fn a_texture_is_filtered_and_a_surface_written() {
    let module = load_module();
    let mut values: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let (array, mut texture, mut surface) = (array(floats(4, 3)), 0, 0);
    assert_eq!(plane(array, values.as_mut_ptr(), 4, 3, false), 0);
    let clamp = [1; 3];
    let linear = CUDA_TEXTURE_DESC { address_modes: clamp, filter_mode: 1, ..CUDA_TEXTURE_DESC::ZERO };
    assert_eq!(cu!(cuTexObjectCreate(&mut texture, &resource(array), &linear, null())), 0);
    let at = upload(&[[0.5f32, 0.5], [1.0, 0.5], [1.0, 1.0], [-3.0, 9.0]]);
    let (out, count) = (upload(&[0f32; 4]), 4i32);
    assert_eq!(launch(function(module, "sample"), 1, 32, 0, params![texture, at, out, count]), 0);
    assert_eq!(download::<f32>(out, 4), [0.0, 0.5, 2.5, 8.0]);
    assert_eq!(cu!(cuSurfObjectCreate(&mut surface, &resource(array))), 0);
    let (twice, width, height) = (function(module, "twice"), 4i32, 3i32);
    let (none, extra) = (null_mut(), null_mut());
    let launched =
        cu!(cuLaunchKernel(twice, 1, 1, 1, 4, 4, 1, 0, none, params![surface, width, height], extra));
    assert_eq!(launched, 0);
    assert_eq!(plane(array, values.as_mut_ptr(), 4, 3, true), 0);
    assert_eq!(values, (0..12).map(|i| i as f32 * 2.0).collect::<Vec<_>>());
    // The texture keeps the memory.
    assert_eq!(cu!(cuArrayDestroy(array)), 0);
    assert_eq!(launch(function(module, "sample"), 1, 32, 0, params![texture, at, out, count]), 0);
    assert_eq!(download::<f32>(out, 1), [0.0]);
    assert_eq!(cu!(cuTexObjectDestroy(texture)), 0);
    // An invalid handle counts as destroyed.
    assert_eq!(cu!(cuTexObjectDestroy(texture)), 0);
    assert_eq!(cu!(cuSurfObjectDestroy(surface)), 0);
    assert_eq!(cu!(cuSurfObjectDestroy(texture)), 0);
}

const FORMATTED: &str = "\
.version 8.8
.target sm_90
.address_size 64
.visible .entry formatted(.param .u64 surface)
{
.reg .b32 %r<9>; .reg .b64 %d;
ld.param.u64 %d, [surface]; mov.u32 %r0, %tid.x;
cvt.rn.f32.u32 %r1, %r0; mul.f32 %r1, %r1, 0f3E800000;
sust.p.2d.v2.b32.zero [%d, {%r0, 1}], {%r1, %r1};
sust.p.2d.b32.clamp [%d, {%r0, 9}], %r1;
ret;
}
.visible .entry reduced(.param .u64 surface)
{
.reg .b32 %r<9>; .reg .b64 %d;
ld.param.u64 %d, [surface]; mov.u32 %r0, %tid.x; sub.u32 %r1, %r0, 3;
sured.b.add.1d.s32.trap [%d, {0}], %r0;
sured.b.min.1d.s32.trap [%d, {4}], %r1;
sured.b.max.1d.u32.trap [%d, {8}], %r1;
sured.b.or.1d.b32.zero [%d, {12}], %r0;
sured.b.and.1d.b32.zero [%d, {99}], %r0;
sured.p.min.1d.b32.trap [%d, {4}], %r1;
sured.p.add.1d.b32.clamp [%d, {77}], 1;
ret;
}
\0";

#[test]
fn surfaces_are_written_in_their_format_and_reduced() {
    cu::use_primary_context();
    let mut module = null_mut();
    assert_eq!(cu!(cuModuleLoadData(&mut module, FORMATTED.as_ptr().cast())), 0);
    let surface_of = |array| {
        let mut surface = 0;
        assert_eq!(cu!(cuSurfObjectCreate(&mut surface, &resource(array))), 0);
        surface
    };
    // Normalised bytes, two channels, 4 by 3.
    const UNORM8X2: u32 = 0xc1;
    let unorm = described([4, 3, 0], UNORM8X2, 2, SURFACE_LDST);
    let bytes_of = |array: Opaque, row: usize| {
        let mut bytes = [0_u8; 8];
        let src = CopyEnd2D { memory_type: ARRAY, array: array as u64, y: row, ..CopyEnd2D::ZERO };
        let dst =
            CopyEnd2D { memory_type: HOST, host: bytes.as_mut_ptr() as u64, pitch: 8, ..CopyEnd2D::ZERO };
        assert_eq!(cu!(cuMemcpy2D_v2(&CUDA_MEMCPY2D { src, dst, width: 8, height: 1 })), 0);
        bytes
    };
    let plane = array(unorm);
    assert_eq!(launch(function(module, "formatted"), 1, 8, 0, params![surface_of(plane)]), 0);
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    assert_eq!(bytes_of(plane, 0), [0; 8]);
    assert_eq!(bytes_of(plane, 1), [0, 0, 64, 64, 128, 128, 191, 191]);
    // Clamped to the last row and column; the channel that was not given is 0.
    assert_eq!(bytes_of(plane, 2)[..6], [0, 0, 64, 0, 128, 0]);
    assert_eq!(bytes_of(plane, 2)[7], 0);

    let words = described([6, 0, 0], SIGNED_INT32, 1, SURFACE_LDST);
    let row = array(words);
    let mut values = [100_i32, 100, 100, 64, 100, 100];
    assert_eq!(cu!(cuMemcpyHtoA_v2(row, 0, values.as_ptr().cast(), 24)), 0);
    assert_eq!(launch(function(module, "reduced"), 1, 32, 0, params![surface_of(row)]), 0);
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    assert_eq!(cu!(cuMemcpyAtoH_v2(values.as_mut_ptr().cast(), row, 0, 24)), 0);
    assert_eq!(values, [100 + 31 * 16, -3, -1, 64 | 31, -3, 132]);
}

#[test]
fn linear_memory_is_a_texture_and_ends_in_zeros() {
    let module = load_module();
    let values = upload(&(1..=100).collect::<Vec<i32>>());
    let buffer = CUDA_RESOURCE_DESC::linear(values, SIGNED_INT32, 1, 400);
    let integers = CUDA_TEXTURE_DESC { flags: 1, ..CUDA_TEXTURE_DESC::ZERO };
    let mut texture = 0;
    assert_eq!(cu!(cuTexObjectCreate(&mut texture, &buffer, &integers, null())), 0);
    let (out, count) = (upload(&[-1i32; 128]), 128i32);
    assert_eq!(launch(function(module, "fetch"), 1, 128, 0, params![texture, out, count]), 0);
    let read = download::<i32>(out, 128);
    assert_eq!((&read[..3], &read[99..102]), (&[1, 2, 3][..], &[100, 0, 0][..]));
    assert_eq!(cu!(cuTexObjectDestroy(texture)), 0);
    for (place, value) in [(0, values + 4), (2, 404), (0, 0), (1, 7 | 1 << 32), (1, 10 | 3 << 32)] {
        let mut wrong = buffer;
        wrong.words[place] = value;
        let answer = cu!(cuTexObjectCreate(&mut texture, &wrong, &integers, null()));
        assert_eq!(answer, INVALID_VALUE, "{place} {value}");
    }
    let filtered = CUDA_TEXTURE_DESC { filter_mode: 1, ..integers };
    assert_eq!(cu!(cuTexObjectCreate(&mut texture, &buffer, &filtered, null())), INVALID_VALUE);
}

#[test]
fn arrays_say_what_they_are_and_refuse_what_they_cannot_be() {
    cu::use_primary_context();
    let given = described([5, 0, 7], 1, 4, 1);
    let (layered, mut shown) = (array(given), CUDA_ARRAY3D_DESCRIPTOR::ZERO);
    assert_eq!(cu!(cuArray3DGetDescriptor_v2(&mut shown, layered)), 0);
    assert_eq!(shown, given);
    let mut none = null_mut();
    let wrong = [
        CUDA_ARRAY3D_DESCRIPTOR { channels: 3, ..given },
        CUDA_ARRAY3D_DESCRIPTOR { format: 4, ..given },
        given.with_size([0, 0, 7]),
        given.with_size([5, 0, 0]),
        given.with_size([1 << 20, 0, 7]),
        CUDA_ARRAY3D_DESCRIPTOR { flags: 4, ..given.with_size([4, 5, 6]) },
        given.with_size([usize::MAX, usize::MAX, 7]),
    ];
    for descriptor in wrong {
        assert_eq!(cu!(cuArray3DCreate_v2(&mut none, &descriptor)), INVALID_VALUE, "{descriptor:?}");
    }
    let mut bytes = [7u8; 20];
    assert_eq!(cu!(cuMemcpyHtoA_v2(layered, 0, bytes.as_ptr().cast(), 20)), 0);
    assert_eq!(cu!(cuMemcpyHtoA_v2(layered, 1, bytes.as_ptr().cast(), 20)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoA_v2(layered, usize::MAX, bytes.as_ptr().cast(), 20)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyAtoH_v2(bytes.as_mut_ptr().cast(), layered, 16, 4)), 0);
    assert_eq!(cu!(cuArrayDestroy(layered)), 0);
    assert_eq!(cu!(cuArrayDestroy(layered)), INVALID_HANDLE);
    assert_eq!(cu!(cuMemcpyHtoA_v2(layered, 0, bytes.as_ptr().cast(), 20)), INVALID_HANDLE);
}

#[test]
fn mipmapped_arrays_have_levels_that_end_with_them() {
    cu::use_primary_context();
    let (mut mipmapped, mut level, mut same, mut shown) =
        (null_mut(), null_mut(), null_mut(), CUDA_ARRAY3D_DESCRIPTOR::ZERO);
    assert_eq!(cu!(cuMipmappedArrayCreate(&mut mipmapped, &floats(8, 4), 3)), 0);
    assert_eq!(cu!(cuMipmappedArrayGetLevel(&mut level, mipmapped, 2)), 0);
    assert_eq!(cu!(cuMipmappedArrayGetLevel(&mut same, mipmapped, 2)), 0);
    assert_eq!(level, same);
    assert_eq!(cu!(cuArray3DGetDescriptor_v2(&mut shown, level)), 0);
    assert_eq!(shown.size(), [2, 1, 0]);
    assert_eq!(cu!(cuMipmappedArrayGetLevel(&mut same, mipmapped, 3)), INVALID_VALUE);
    // As an H200 answers; nothing happens to the level.
    assert_eq!(cu!(cuArrayDestroy(level)), 0);
    assert_eq!(cu!(cuArray3DGetDescriptor_v2(&mut shown, level)), 0);
    assert_eq!(cu!(cuMipmappedArrayDestroy(mipmapped)), 0);
    assert_eq!(cu!(cuArray3DGetDescriptor_v2(&mut shown, level)), INVALID_HANDLE);
    let (mut free, mut total) = (0, 0);
    assert_eq!(cu!(cuMemGetInfo_v2(&mut free, &mut total)), 0);
    let huge = described([16_384; 3], FLOAT, 4, 0);
    let mut none = null_mut();
    assert!(total < 16 << 42);
    assert_eq!(cu!(cuArray3DCreate_v2(&mut none, &huge)), 2);
}

#[test]
fn forged_textures_end_the_kernel_and_not_the_process() {
    use crate::output::{in_child, run_child};
    if in_child() {
        let module = load_module();
        let (out, count, forged) = (upload(&[0i32; 4]), 4i32, 0xdead_beef_0000u64);
        assert_eq!(launch(function(module, "fetch"), 1, 4, 0, params![forged, out, count]), 0);
        assert_ne!(cu!(cuCtxSynchronize()), 0);
        return;
    }
    let output = run_child("arrays::forged_textures_end_the_kernel_and_not_the_process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn tiles_are_mapped_and_unmapped_in_order() {
    const SPARSE: u32 = 0x40;
    const PIECE: usize = 2 << 20;
    cu::use_primary_context();
    // CU_MEM_CREATE_USAGE_TILE_POOL
    let (location, usage) = (CUmemLocation { kind: 1, id: 0 }, 1);
    let prop = CUmemAllocationProp { kind: 1, location, usage, ..CUmemAllocationProp::ZERO };
    let mut memory = 0;
    assert_eq!(cu!(cuMemCreate(&mut memory, PIECE, &prop, 0)), 0);
    let array = array(described([128, 256, 0], FLOAT, 1, SPARSE));
    // The upper one of two tiles. CU_MEM_OPERATION_TYPE_MAP, CU_MEM_OPERATION_TYPE_UNMAP
    let upper = CUarrayMapInfo {
        resource: array as u64,
        subresource: [0, 0, 0, 0, 0, 0, 128, 128, 1],
        device_mask: 1,
        ..CUarrayMapInfo::ZERO
    };
    let map = CUarrayMapInfo { operation: 1, memory, ..upper };
    let unmap = CUarrayMapInfo { operation: 2, ..upper };
    for (mut list, expected) in [([map, unmap], 0.0), ([unmap, map], 5.0), ([map, unmap], 0.0)] {
        assert_eq!(cu!(cuMemMapArrayAsync(list.as_mut_ptr(), 2, null_mut())), 0);
        let mut values = vec![5_f32; 128 * 128];
        assert_eq!(plane(array, values.as_mut_ptr(), 128, 128, false), 0);
        // Tiles without memory read as zeros.
        assert_eq!(plane(array, values.as_mut_ptr(), 128, 128, true), 0);
        assert_eq!(values, vec![expected; 128 * 128]);
    }
    assert_eq!(cu!(cuArrayDestroy(array)), 0);
    assert_eq!(cu!(cuMemRelease(memory)), 0);
}
