// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device runtime's functions for groups of a grid (cudaCG…), and `mma.m8n8k4`.

use crate::harness::{Device, WARP};

const GROUPS: &str = "
.version 8.0
.target sm_70
.address_size 64
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 a);
.extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 a, .param .b32 b);
.extern .func (.param .b32 r) cudaCGGetSize(.param .b64 a, .param .b64 b, .param .b64 c);
.extern .func (.param .b32 r) cudaCGGetRank(.param .b64 a, .param .b64 b, .param .b64 c);
.visible .entry k(.param .u64 count, .param .u64 out)
{
    .reg .pred %p<2>; .reg .b32 %r<20>; .reg .b64 %d<20>;
    .local .align 4 .b8 words[16];
    ld.param.u64 %d0, [count];
    ld.param.u64 %d1, [out];
    { .param .b32 a; .param .b64 r; st.param.b32 [a], 1;
      call.uni (r), cudaCGGetIntrinsicHandle, (a); ld.param.b64 %d2, [r]; }
    mov.u64 %d3, words; cvta.local.u64 %d3, %d3;
    add.u64 %d4, %d3, 4; add.u64 %d5, %d3, 8; add.u64 %d6, %d3, 12;
    { .param .b64 a; .param .b64 b; .param .b64 c; .param .b32 r;
      st.param.b64 [a], %d3; st.param.b64 [b], %d4; st.param.b64 [c], %d2;
      call.uni (r), cudaCGGetSize, (a, b, c); ld.param.b32 %r10, [r]; }
    { .param .b64 a; .param .b64 b; .param .b64 c; .param .b32 r;
      st.param.b64 [a], %d5; st.param.b64 [b], %d6; st.param.b64 [c], %d2;
      call.uni (r), cudaCGGetRank, (a, b, c); ld.param.b32 %r11, [r]; }
    // Three rounds: all threads count, meet, and look.
    mov.u32 %r0, 0; mov.u32 %r1, 0;
ROUND:
    red.global.add.u32 [%d0], 1;
    { .param .b64 a; .param .b32 b; .param .b32 r; st.param.b64 [a], %d2; st.param.b32 [b], 0;
      call.uni (r), cudaCGSynchronize, (a, b); ld.param.b32 %r2, [r]; }
    ld.volatile.global.u32 %r3, [%d0];
    mad.lo.u32 %r1, %r1, 1000, %r3;
    { .param .b64 a; .param .b32 b; .param .b32 r; st.param.b64 [a], %d2; st.param.b32 [b], 0;
      call.uni (r), cudaCGSynchronize, (a, b); ld.param.b32 %r4, [r]; }
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %p0, %r0, 3;
    @%p0 bra ROUND;
    ld.local.u32 %r5, [words]; ld.local.u32 %r6, [words+4]; ld.local.u32 %r7, [words+8];
    ld.local.u32 %r8, [words+12];
    mov.u32 %r12, %ctaid.x; mov.u32 %r13, %ntid.x; mov.u32 %r14, %tid.x;
    mad.lo.u32 %r12, %r12, %r13, %r14;
    mul.wide.u32 %d7, %r12, 32; add.u64 %d7, %d1, %d7;
    st.global.v4.u32 [%d7], {%r1, %r5, %r6, %r7};
    st.global.v4.u32 [%d7+16], {%r8, %r2, %r10, %r11};
    ret;
}
";

#[test]
fn a_grid_meets_by_the_device_runtime() {
    let mut device = Device::new(GROUPS);
    device.cooperative = true;
    let (blocks, threads) = (5_u32, 48_u32);
    let all = blocks * threads;
    let count = device.upload(&[0_u32]);
    let out = device.upload(&vec![u32::MAX; (all * 8) as usize]);
    device.run("k", [blocks, 1, 1], [threads, 1, 1], &[count, out]).unwrap();
    let rounds = (all * 1000 + 2 * all) * 1000 + 3 * all;
    for (rank, found) in device.download::<u32>(out, (all * 8) as usize).chunks(8).enumerate() {
        assert_eq!(found, [rounds, all, 1, rank as u32, 0, 0, 0, 0], "thread {rank}");
    }
}

#[test]
fn there_is_no_group_of_a_grid_without_a_cooperative_launch() {
    let device = Device::new(GROUPS);
    let count = device.upload(&[0_u32]);
    let out = device.upload(&[7_u32; 8]);
    device.run("k", [1, 1, 1], [1, 1, 1], &[count, out]).unwrap();
    // cudaErrorInvalidValue, three times.
    assert_eq!(device.download::<u32>(out, 8)[5..], [1, 1, 1]);
}

#[test]
fn multimem_is_a_fault_when_it_is_executed() {
    let device = Device::kernel(
        "ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; setp.ne.u64 %p0, %d1, 0; mov.u32 %r0, 1;\n\
         @%p0 multimem.st.weak.global.u32 [%d0], %r0; @%p0 multimem.red.relaxed.sys.global.add.f32 [%d0], %f0;\n\
         @%p0 multimem.ld_reduce.weak.global.add.u32 %r0, [%d0]; st.global.u32 [%d0], %r0;",
    );
    let out = device.upload(&[0_u32]);
    device.run("k", [1, 1, 1], [1, 1, 1], &[out, 0]).unwrap();
    assert_eq!(device.download::<u32>(out, 1), [1]);
    let fault = device.run("k", [1, 1, 1], [1, 1, 1], &[out, 1]).unwrap_err();
    assert!(fault.to_string().contains("multimem"), "{fault}");
}

/// f16 of a small integer.
fn half(value: i32) -> u32 {
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return 0;
    }
    let exponent = magnitude.ilog2();
    let fraction = (magnitude << (10 - exponent)) & 0x3ff;
    (u32::from(value < 0) << 15) | ((exponent + 15) << 10) | fraction
}

/// Returns the position of element `index` of the accumulators by the manual.
fn accumulator(lane: usize, index: usize, wide: bool) -> (usize, usize) {
    let upper = if lane < 16 { 0 } else { 4 };
    if wide {
        ((lane & 1) + (index & 2) + upper, (index & 4) + (lane & 2) + (index & 1))
    } else {
        (lane % 4 + upper, index)
    }
}

#[test]
fn four_pairs_of_small_matrices_are_multiplied() {
    let element = |matrix: usize, quad: usize, row: usize, column: usize| {
        ((matrix * 5 + quad * 3 + row * 7 + column * 2 + row * column) % 9) as i32 - 4
    };
    for (a_layout, b_layout) in [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")] {
        for (d_type, c_type) in [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")] {
            if (d_type, c_type) == ("f16", "f32") {
                continue;
            }
            let mut words = vec![0_u32; 32 * 16];
            for lane in 0..32 {
                let (quad, upper) = (lane % 16 / 4, if lane < 16 { 0 } else { 4 });
                let own = &mut words[lane * 16..][..16];
                for index in 0..4 {
                    let at =
                        if a_layout == "row" { (lane % 4 + upper, index) } else { (index + upper, lane % 4) };
                    own[index / 2] |= half(element(0, quad, at.0, at.1)) << (16 * (index % 2));
                    let at =
                        if b_layout == "row" { (lane % 4, index + upper) } else { (index, lane % 4 + upper) };
                    own[2 + index / 2] |= half(element(1, quad, at.0, at.1)) << (16 * (index % 2));
                }
                for index in 0..8 {
                    let (row, column) = accumulator(lane, index, c_type == "f32");
                    let value = element(2, quad, row, column);
                    if c_type == "f32" {
                        own[4 + index] = (value as f32).to_bits();
                    } else {
                        own[4 + index / 2] |= half(value) << (16 * (index % 2));
                    }
                }
            }
            let list = |first: usize, kind: &str| {
                let count = if kind == "f32" { 8 } else { 4 };
                let names: Vec<String> = (first..first + count).map(|n| format!("%r{n}")).collect();
                format!("{{{}}}", names.join(", "))
            };
            let device = Device::kernel(&format!(
                "mov.u32 %r30, %tid.x; mul.wide.u32 %d1, %r30, 64; ld.param.u64 %d0, [p0]; add.u64 %d0, %d0, %d1;\n\
                 ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%d0]; ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d0+16];\n\
                 ld.global.v4.u32 {{%r8, %r9, %r10, %r11}}, [%d0+32];\n\
                 mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{d_type}.f16.f16.{c_type} {}, {{%r0, %r1}}, {{%r2, %r3}}, {};\n\
                 st.global.v4.u32 [%d0], {{%r12, %r13, %r14, %r15}}; st.global.v4.u32 [%d0+16], {{%r16, %r17, %r18, %r19}};",
                list(12, d_type),
                list(4, c_type),
            ));
            let data = device.upload(&words);
            device.run("k", WARP.0, WARP.1, &[data]).unwrap();
            let found = device.download::<u32>(data, words.len());
            for lane in 0..32 {
                let quad = lane % 16 / 4;
                for index in 0..8 {
                    let (row, column) = accumulator(lane, index, d_type == "f32");
                    let products = (0..4).map(|k| element(0, quad, row, k) * element(1, quad, k, column));
                    let expected = products.sum::<i32>() + element(2, quad, row, column);
                    let (word, bits) = if d_type == "f32" {
                        (found[lane * 16 + index], (expected as f32).to_bits())
                    } else {
                        (found[lane * 16 + index / 2] >> (16 * (index % 2)) & 0xffff, half(expected))
                    };
                    assert_eq!(
                        word, bits,
                        "{a_layout} {b_layout} {d_type} {c_type} lane {lane} element {index}"
                    );
                }
            }
        }
    }
}
