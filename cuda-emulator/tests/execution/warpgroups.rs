// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `wgmma`: how warps of a warpgroup meet, faults, and the forms that exist. `tests/cuda/warpgroup_products.cpp` has all
//! types and orders of elements.

use cuda_emulator::launch::FaultKind;
use cuda_emulator::program::Program;

use crate::harness::Device;

/// Multiplies 64 by 16 elements of f16 by 16 by 8. Then the first warp overwrites B.
const KERNEL: &str = "
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 image, .param .u64 out, .param .u64 first, .param .u64 second)
{
    .reg .pred %p<3>; .reg .b32 %r<10>; .reg .b64 %d<10>; .reg .f32 %f<4>;
    .shared .align 1024 .b8 room[8192];
    ld.param.u64 %d0, [image]; ld.param.u64 %d1, [out]; ld.param.u64 %d2, [first]; ld.param.u64 %d3, [second];
    mov.u32 %r0, %tid.x; mov.u32 %r1, room; shl.b32 %r2, %r0, 4;
COPY:
    cvt.u64.u32 %d4, %r2; add.u64 %d4, %d4, %d0; add.u32 %r3, %r1, %r2;
    ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d4]; st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};
    mov.u32 %r8, %ntid.x; shl.b32 %r8, %r8, 4; add.u32 %r2, %r2, %r8;
    setp.lt.u32 %p0, %r2, 8192; @%p0 bra COPY;
    fence.proxy.async; bar.sync 0;
    // The second warpgroup has the second A.
    shr.u32 %r9, %r0, 7; mul.wide.u32 %d5, %r9, 128; add.u64 %d2, %d2, %d5;
    shr.u32 %r9, %r1, 4; cvt.u64.u32 %d5, %r9; add.u64 %d2, %d2, %d5; add.u64 %d3, %d3, %d5;
    mov.f32 %f0, 0f3f800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
    setp.eq.u32 %p1, %r0, %r0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d2, %d3, %p1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    setp.lt.u32 %p2, %r0, 16; shl.b32 %r3, %r0, 4; add.u32 %r3, %r3, %r1; mov.u32 %r4, 0x7e007e00;
    @%p2 st.shared.v4.u32 [%r3+4096], {%r4, %r4, %r4, %r4};
    mul.wide.u32 %d6, %r0, 16; add.u64 %d6, %d6, %d1;
    st.global.v4.f32 [%d6], {%f0, %f1, %f2, %f3};
    ret;
}
";

/// 0 to 4 in f16.
const NUMBERS: [u16; 5] = [0, 0x3c00, 0x4000, 0x4200, 0x4400];
/// A matrix at `start`: 128 bytes to the other half of K, 256 to the next eight rows.
const fn descriptor(start: u64) -> u64 {
    start >> 4 | 128 >> 4 << 16 | 256 >> 4 << 32
}

fn a(row: usize, k: usize) -> usize {
    (row * 7 + k * 3) % 5
}

fn b(column: usize, k: usize) -> usize {
    (column * 2 + k) % 5
}

/// Two matrices A and one B, as the descriptors say.
fn image() -> Vec<u16> {
    let mut image = vec![0; 4096];
    let place = |row: usize, k: usize| row / 8 * 128 + k / 8 * 64 + row % 8 * 8 + k % 8;
    for k in 0..16 {
        (0..128).for_each(|row| image[place(row, k)] = NUMBERS[a(row, k)]);
        (0..8).for_each(|column| image[2048 + place(column, k)] = NUMBERS[b(column, k)]);
    }
    image
}

#[test]
fn a_warp_waits_until_the_others_have_read_the_matrices() {
    let device = Device::new(KERNEL);
    let image = device.upload(&image());
    for threads in [128, 256] {
        let out = device.upload(&vec![0.0_f32; 4 * threads]);
        let parameters = [image, out, descriptor(0), descriptor(4096)];
        device.run("k", [1, 1, 1], [threads as u32, 1, 1], &parameters).unwrap();
        for (thread, found) in device.download::<f32>(out, 4 * threads).chunks(4).enumerate() {
            let expected: [f32; 4] = std::array::from_fn(|index| {
                let row = thread / 32 * 16 + thread % 32 / 4 + 8 * (index / 2);
                let column = thread % 4 * 2 + index % 2;
                1.0 + (0..16).map(|k| (a(row, k) * b(column, k)) as f32).sum::<f32>()
            });
            assert_eq!(found, expected, "thread {thread} of {threads}");
        }
    }
}

#[test]
fn wrong_descriptors_are_faults() {
    let device = Device::new(KERNEL);
    let (image, out) = (device.upload(&image()), device.upload(&[0.0_f32; 512]));
    for (first, second, kind) in [
        (descriptor(7168), descriptor(4096), FaultKind::IllegalAddress),
        (descriptor(0), descriptor(0x3_0000), FaultKind::IllegalAddress),
        // Swizzled, with a base offset.
        (descriptor(0), descriptor(4096) | 1 << 62 | 1 << 49, FaultKind::IllegalInstruction),
    ] {
        let fault = device.run("k", [1, 1, 1], [128, 1, 1], &[image, out, first, second]).unwrap_err();
        assert_eq!(fault.kind, kind, "{fault:?}");
    }
    // Three of the four warps.
    let parameters = [image, out, descriptor(0), descriptor(4096)];
    let fault = device.run("k", [1, 1, 1], [96, 1, 1], &parameters).unwrap_err();
    assert_eq!(fault.kind, FaultKind::LaunchFailed);
}

/// Returns whether a product of this form is accepted, with `registers` registers of D.
fn accepts(form: &str, registers: usize, more: &str) -> bool {
    let names: Vec<String> = (0..registers).map(|number| format!("%s{number}")).collect();
    let body = format!(
        ".reg .b32 %s<128>; wgmma.mma_async.sync.aligned.{form} {{{}}}, %d0, %d1, %p0{more};",
        names.join(", ")
    );
    Program::load(&crate::harness::kernel(&body)).is_ok()
}

/// ptxas accepts the same numbers.
#[test]
fn products_have_certain_numbers_of_columns() {
    for (kinds, depth, per_column, more) in [
        ("f32.f16.f16", 16, 2, ", 1, -1, 0, 1"),
        ("f16.f16.f16", 16, 4, ", 1, 1, 1, 0"),
        ("f32.bf16.bf16", 16, 2, ", 1, 1, 0, 0"),
        ("f32.tf32.tf32", 8, 2, ", 1, 1"),
        ("f32.e4m3.e5m2", 32, 2, ", 1, 1"),
        ("f16.e5m2.e5m2", 32, 4, ", -1, 1"),
        ("s32.s8.u8", 32, 2, ""),
        ("satfinite.s32.u8.u8", 32, 2, ""),
        ("s32.b1.b1.and.popc", 256, 2, ""),
    ] {
        let accepted: Vec<usize> = (0..=272)
            .step_by(4)
            .filter(|columns| accepts(&format!("m64n{columns}k{depth}.{kinds}"), columns / per_column, more))
            .collect();
        let step = if kinds.contains("s32") { 16 } else { 8 };
        let expected: Vec<usize> =
            (8..=256).step_by(8).filter(|columns| *columns <= 32 || *columns % step == 0).collect();
        assert_eq!(accepted, expected, "{kinds}");
    }
}

#[test]
fn products_that_do_not_exist_are_refused() {
    for (form, registers, more) in [
        ("m64n8k8.f32.f16.f16", 4, ", 1, 1, 0, 0"),
        ("m32n8k16.f32.f16.f16", 4, ", 1, 1, 0, 0"),
        ("m64n8k16.f16.bf16.bf16", 2, ", 1, 1, 0, 0"),
        ("m64n8k16.f32.f16.bf16", 4, ", 1, 1, 0, 0"),
        ("m64n8k16.f32.f16.f16", 3, ", 1, 1, 0, 0"),
        ("m64n8k16.f32.f16.f16", 4, ", 2, 1, 0, 0"),
        ("m64n8k16.f32.f16.f16", 4, ", 1, 1, 0, -1"),
        ("m64n8k16.f32.f16.f16", 4, ", 1, 1, 0"),
        ("m64n8k16.f32.f16.f16", 4, ", 1, 1, 0, %r0"),
        ("m64n8k8.f32.tf32.tf32", 4, ", 1, 1, 0, 0"),
        ("m64n8k32.s32.s8.s8", 4, ", 1, 1"),
        ("m64n8k32.s32.s8.e4m3", 4, ""),
        ("m64n8k64.s32.s4.s4", 4, ""),
        ("m64n8k256.s32.b1.b1", 4, ""),
        ("m64n8k256.s32.b1.b1.xor.popc", 4, ""),
        ("sp.m64n8k32.f32.f16.f16", 4, ", 1, 1, 0, 0"),
    ] {
        assert!(!accepts(form, registers, more), "{form}{more}");
    }
}
