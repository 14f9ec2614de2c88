// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lanes that part and meet, blocks of all shapes, and faults between them: what translated code must get right.
//! `translated` runs these tests with it and without.

use crate::harness::Device;

/// Runs `k` over one block with one output word per thread.
fn words(device: &Device, block: [u32; 3], params: &[u64]) -> Vec<u32> {
    let count = block.iter().product::<u32>() as usize;
    let out = device.upload(&vec![0_u32; count]);
    let mut all = vec![out];
    all.extend(params);
    device.run("k", [1, 1, 1], block, &all).unwrap();
    device.download(out, count)
}

/// `%d0` becomes the address of this thread's output word, `%r0` its number.
const HEAD: &str =
    "ld.param.u64 %d0, [p0]; mov.u32 %r30, %tid.z; mov.u32 %r31, %ntid.y; mov.u32 %r32, %tid.y;
    mad.lo.u32 %r30, %r30, %r31, %r32; mov.u32 %r31, %ntid.x; mov.u32 %r32, %tid.x;
    mad.lo.u32 %r0, %r30, %r31, %r32; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;";

#[test]
fn loops_of_different_length_with_an_if_inside() {
    let device = Device::kernel(&format!(
        "{HEAD} rem.u32 %r1, %r0, 7; mov.u32 %r2, 0; mov.u32 %r3, 100;
         again: setp.ge.u32 %p0, %r2, %r1; @%p0 bra out;
         and.b32 %r4, %r2, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra even;
         add.u32 %r3, %r3, %r0; mov.u32 %r5, 3; bra both;
         even: sub.u32 %r3, %r3, 1; mov.u32 %r5, 5;
         both: add.u32 %r3, %r3, %r5; add.u32 %r2, %r2, 1; bra again;
         out: st.global.u32 [%d0], %r3;"
    ));
    for threads in [32, 70, 1] {
        let expected = |thread: u32| {
            (0..thread % 7).fold(100_u32, |sum, round| {
                if round % 2 == 0 { sum.wrapping_sub(1) + 5 } else { sum + thread + 3 }
            })
        };
        let found = words(&device, [threads, 1, 1], &[]);
        assert_eq!(found, (0..threads).map(expected).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_uniform_on_each_way_is_not_so_behind() {
    let device = Device::kernel(&format!(
        "{HEAD} mov.u32 %r1, 7; mov.u64 %d2, 1; setp.lt.u32 %p0, %r0, 10; setp.lt.u32 %p2, %r0, 5;
         @%p0 bra small; mov.u32 %r1, 9; mov.u64 %d2, 2; setp.lt.u32 %p2, %r1, 100; bra meet;
         small: @%p2 bra meet; add.u32 %r1, %r1, 20;
         meet: cvt.u32.u64 %r2, %d2; mad.lo.u32 %r1, %r1, 10, %r2; selp.u32 %r3, 1000, 0, %p2;
         add.u32 %r1, %r1, %r3; st.global.u32 [%d0], %r1;"
    ));
    let expected = |thread: u32| match thread {
        0..5 => 1071,
        5..10 => 271,
        _ => 1092,
    };
    assert_eq!(words(&device, [64, 1, 1], &[]), (0..64).map(expected).collect::<Vec<_>>());
}

#[test]
fn blocks_of_all_shapes() {
    let device = Device::kernel(&format!(
        "{HEAD} mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %laneid;
         mul.lo.u32 %r1, %r1, 3; mad.lo.u32 %r1, %r2, 100, %r1; mad.lo.u32 %r1, %r3, 10000, %r1;
         mad.lo.u32 %r1, %r4, 1000000, %r1; shl.b32 %r5, %r2, %r3; add.u32 %r1, %r1, %r5;
         st.global.u32 [%d0], %r1;"
    ));
    for block in [[16, 16, 1], [8, 8, 2], [32, 3, 1], [5, 7, 1], [48, 2, 1], [100, 1, 1], [4, 2, 9]] {
        let found = words(&device, block, &[]);
        for (thread, value) in (0..).zip(found) {
            let (x, y, z) = (thread % block[0], thread / block[0] % block[1], thread / block[0] / block[1]);
            let lane = thread % 32;
            assert_eq!(
                value,
                x * 3 + y * 100 + z * 10_000 + lane * 1_000_000 + (y << z),
                "{block:?} {thread}"
            );
        }
    }
}

#[test]
fn indices_that_wrap_around() {
    let device = Device::kernel(&format!(
        "{HEAD} add.u32 %r1, %r0, 0x7ffffff0; mul.wide.s32 %d2, %r1, 4; shr.u64 %d2, %d2, 32;
         cvt.u32.u64 %r2, %d2; st.global.u32 [%d0], %r2;"
    ));
    let expected = |thread: u32| {
        let index = i64::from(thread.wrapping_add(0x7fff_fff0).cast_signed());
        ((index * 4) >> 32) as u32
    };
    assert_eq!(words(&device, [64, 1, 1], &[]), (0..64).map(expected).collect::<Vec<_>>());
}

#[test]
fn barriers_in_a_loop_with_lanes_that_left() {
    let device = Device::kernel(&format!(
        "{HEAD} .shared .b32 s[128]; setp.ge.u32 %p0, %r0, 90; @%p0 exit;
         mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 4, %r1; mov.u32 %r2, 0; mov.u32 %r3, %r0;
         again: st.shared.u32 [%r1], %r3; bar.sync 0; add.u32 %r4, %r0, 1; setp.eq.u32 %p1, %r4, 90;
         @%p1 mov.u32 %r4, 0; mov.u32 %r5, s; mad.lo.u32 %r5, %r4, 4, %r5; ld.shared.u32 %r6, [%r5];
         bar.sync 0; add.u32 %r3, %r3, %r6; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 5; @%p2 bra again;
         st.global.u32 [%d0], %r3;"
    ));
    let mut values: Vec<u32> = (0..90).collect();
    for _ in 0..5 {
        values = (0..90).map(|thread| values[thread] + values[(thread + 1) % 90]).collect();
    }
    values.resize(100, 0);
    assert_eq!(words(&device, [100, 1, 1], &[]), values);
}

#[test]
fn a_warp_that_runs_over_the_end_of_an_allocation() {
    let device = Device::kernel(&format!("{HEAD} st.global.u32 [%d0], %r0; ld.global.u32 %r1, [%d0];"));
    let out = device.upload(&[7_u32; 40]);
    let fault = device.run("k", [1, 1, 1], [64, 1, 1], &[out]).unwrap_err();
    assert_eq!(fault.thread, [40, 0, 0]);
    assert!(fault.message.starts_with("illegal global memory write of 4 bytes"), "{}", fault.message);
    let found: Vec<u32> = device.download(out, 40);
    assert!(found[..32].iter().zip(0..).all(|(value, thread)| *value == thread));
    // Lanes after a condition stay inside.
    let device = Device::kernel(&format!(
        "{HEAD} setp.ge.u32 %p0, %r0, 40; @%p0 bra out; st.global.u32 [%d0], %r0; out:"
    ));
    let out = device.upload(&[7_u32; 40]);
    device.run("k", [1, 1, 1], [64, 1, 1], &[out]).unwrap();
    assert_eq!(device.download::<u32>(out, 40), (0..40).collect::<Vec<_>>());
}

#[test]
fn misaligned_warps_and_shared_memory_that_ends() {
    let device = Device::kernel(&format!("{HEAD} add.u64 %d0, %d0, 2; ld.global.u32 %r1, [%d0];"));
    let out = device.upload(&[0_u32; 80]);
    let fault = device.run("k", [1, 1, 1], [32, 1, 1], &[out]).unwrap_err();
    assert!(fault.message.starts_with("misaligned read of 4 bytes"), "{}", fault.message);
    let device = Device::kernel(&format!(
        "{HEAD} .shared .b32 s[20]; mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 4, %r1; st.shared.u32 [%r1], %r0;"
    ));
    let fault = device.run("k", [1, 1, 1], [32, 1, 1], &[out]).unwrap_err();
    assert_eq!(fault.thread, [20, 0, 0]);
    assert!(fault.message.starts_with("illegal shared memory write of 4 bytes"), "{}", fault.message);
}
