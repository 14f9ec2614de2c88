// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers of 16 bits and halves in kernels as compilers generate them. `translated` runs this with translated
//! code, too, and the results computed here in Rust apply to both.

use crate::harness::Device;

const BEGIN: &str = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0;\n\
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2];\n";
const BLOCKS: u32 = 16;
const THREADS: u32 = 96;
const COUNT: usize = (BLOCKS * THREADS) as usize;

fn numbers() -> Vec<u16> {
    (0..COUNT as u32).map(|index| (index.wrapping_mul(40503) ^ index >> 3) as u16).collect()
}

fn run(body: &str, inputs: [&[u16]; 2], results: usize) -> Vec<u16> {
    let device = Device::kernel(&format!("{BEGIN}{body}"));
    let [a, b] = inputs.map(|values| device.upload(values));
    let out = device.upload(&vec![0_u16; results]);
    // Twice: hot code is translated in the second launch.
    for _ in 0..2 {
        device.run("k", [BLOCKS, 1, 1], [THREADS, 1, 1], &[a, b, out]).unwrap();
    }
    device.download(out, results)
}

const AT: &str = "mul.wide.u32 %d3, %r0, 2; add.u64 %d4, %d0, %d3; add.u64 %d5, %d1, %d3; add.u64 %d6, %d2, %d3;\n\
    ld.global.u16 %h0, [%d4]; ld.global.u16 %h1, [%d5];\n";

#[test]
fn arithmetic_of_16_bits_wraps() {
    let a = numbers();
    let b: Vec<u16> = a.iter().rev().copied().collect();
    let results = run(
        &format!(
            "{AT} add.s16 %h2, %h0, %h1; sub.s16 %h3, %h2, 77; mul.lo.s16 %h4, %h3, %h1; min.s16 %h5, %h4, %h0;\n\
             max.u16 %h6, %h5, %h1; shl.b16 %h7, %h6, 3; shr.s16 %h8, %h7, 2; shr.u16 %h9, %h8, 1; not.b16 %h10, %h9;\n\
             xor.b16 %h11, %h10, %h4; abs.s16 %h12, %h11; neg.s16 %h13, %h12; mad.lo.u16 %h14, %h13, %h0, %h1;\n\
             setp.lt.s16 %p0, %h14, %h0; setp.gt.u16 %p1, %h14, 4096; selp.b16 %h15, %h14, %h3, %p0; @%p1 add.s16 %h15, %h15, 5;\n\
             st.global.u16 [%d6], %h15;"
        ),
        [&a, &b],
        COUNT,
    );
    for index in 0..COUNT {
        let (x, y) = (a[index], b[index]);
        let h3 = x.wrapping_add(y).wrapping_sub(77);
        let h4 = h3.wrapping_mul(y);
        let h5 = (h4 as i16).min(x as i16) as u16;
        let h7 = h5.max(y) << 3;
        let h9 = (((h7 as i16) >> 2) as u16) >> 1;
        let h11 = !h9 ^ h4;
        let h13 = (h11 as i16).wrapping_abs().wrapping_neg() as u16;
        let h14 = h13.wrapping_mul(x).wrapping_add(y);
        let mut expected = if (h14 as i16) < x as i16 { h14 } else { h3 };
        if h14 > 4096 {
            expected = expected.wrapping_add(5);
        }
        assert_eq!(results[index], expected, "element {index}: {x:#x}, {y:#x}");
    }
}

#[test]
fn parts_are_extended_and_joined() {
    let a = numbers();
    let b: Vec<u16> = a.iter().map(|value| value.rotate_left(5) ^ 0x1234).collect();
    let results = run(
        &format!(
            "{AT} cvt.s32.s16 %r3, %h0; cvt.u32.u16 %r4, %h1; mad.lo.s32 %r5, %r3, 3, %r4; cvt.u16.u32 %h2, %r5;\n\
             cvt.s64.s16 %d7, %h2; add.s64 %d7, %d7, 100000; cvt.u16.u64 %h3, %d7; mov.b32 %r6, {{%h3, %h1}};\n\
             mov.b32 {{%h4, %h5}}, %r6; cvt.u16.u8 %h6, %h4; cvt.s16.s8 %h7, %h5; add.s16 %h8, %h6, %h7;\n\
             shf.l.wrap.b32 %r7, %r6, %r5, 7; lop3.b32 %r8, %r7, %r6, %r5, 0xe8; cvt.u16.u32 %h9, %r8; shr.u32 %r9, %r8, 16;\n\
             cvt.u16.u32 %h10, %r9; xor.b16 %h8, %h8, %h9; xor.b16 %h8, %h8, %h10; st.global.u16 [%d6], %h8;"
        ),
        [&a, &b],
        COUNT,
    );
    for index in 0..COUNT {
        let (x, y) = (a[index], b[index]);
        let r5 = (i32::from(x as i16) * 3).wrapping_add(i32::from(y)) as u32;
        let h3 = (i64::from(r5 as u16 as i16) + 100_000) as u16;
        let r6 = u32::from(h3) | u32::from(y) << 16;
        let h8 = u16::from(h3 as u8).wrapping_add(y as u8 as i8 as u16);
        let r7 = ((u64::from(r5) << 32 | u64::from(r6)) << 7 >> 32) as u32;
        // The majority.
        let r8 = r7 & r6 | r7 & r5 | r6 & r5;
        let expected = h8 ^ r8 as u16 ^ (r8 >> 16) as u16;
        assert_eq!(results[index], expected, "element {index}");
    }
}

#[test]
fn bytes_and_vectors_of_16_bits_are_loaded_and_stored() {
    let a = numbers();
    let results = run(
        // Each thread: four bytes with sign, reversed; and in a loop two elements that all threads share.
        "mul.wide.u32 %d3, %r0, 4; rem.u32 %r3, %r0, 700; mul.wide.u32 %d7, %r3, 4; add.u64 %d4, %d0, %d7;\n\
         ld.global.s8 %h0, [%d4]; ld.global.u8 %h1, [%d4+1]; ld.global.v2.u16 {%h2, %h3}, [%d4]; mov.u32 %r4, 0; mov.b16 %h5, 0;\n\
         LOOP: mul.wide.u32 %d8, %r4, 2; add.u64 %d8, %d1, %d8; ld.global.u16 %h4, [%d8]; add.s16 %h5, %h5, %h4; add.u32 %r4, %r4, 1;\n\
         setp.lt.u32 %p0, %r4, 6; @%p0 bra LOOP;\n\
         add.s16 %h0, %h0, %h5; sub.s16 %h1, %h1, %h0; xor.b16 %h2, %h2, %h3; add.u64 %d6, %d2, %d3;\n\
         and.b32 %r5, %r0, 3; setp.eq.u32 %p1, %r5, 1; @%p1 bra ODD; st.global.v2.u16 [%d6], {%h1, %h2}; bra END;\n\
         ODD: st.global.u8 [%d6], %h1; st.global.u8 [%d6+1], %h2; st.global.u16 [%d6+2], %h0; END:",
        [&a, &a],
        2 * COUNT,
    );
    let sum = a[..6].iter().fold(0_u16, |sum, value| sum.wrapping_add(*value));
    for index in 0..COUNT {
        let at = index % 700 * 2;
        let bytes = a[at].to_le_bytes();
        let h0 = (bytes[0] as i8 as u16).wrapping_add(sum);
        let h1 = u16::from(bytes[1]).wrapping_sub(h0);
        let h2 = a[at] ^ a[at + 1];
        let expected = if index % 4 == 1 { [h1 & 0xff | h2 << 8, h0] } else { [h1, h2] };
        assert_eq!(results[2 * index..][..2], expected, "element {index}");
    }
}

/// Every f16 through f32 and back is itself, every sum of two is rounded once.
#[test]
fn halves_are_converted_and_rounded_once() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let device = Device::kernel(&format!(
        "{BEGIN}{AT} cvt.f32.f16 %f0, %h0; cvt.rn.f16.f32 %h2, %f0; st.global.u16 [%d6], %h2;"
    ));
    let (a, out) = (device.upload(&all), device.upload(&all));
    for _ in 0..2 {
        device.run("k", [256, 1, 1], [256, 1, 1], &[a, a, out]).unwrap();
    }
    for (value, found) in all.iter().zip(device.download::<u16>(out, all.len())) {
        let expected = if value & 0x7fff > 0x7c00 { 0x7fff } else { *value };
        assert_eq!(found, expected, "{value:#x}");
    }
}

/// Halves as doubles; NaN as NaN.
fn double(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits & 0x8000 != 0 { -magnitude } else { magnitude }
}

/// Returns whether `found` is the f16 next to the exact `value`, which a double holds.
fn is_nearest(found: u16, value: f64) -> bool {
    if value.is_nan() {
        return found == 0x7fff;
    }
    let distance = |bits: u16| {
        // Infinity counts as the number that would follow.
        let number = if bits & 0x7fff == 0x7c00 { 65536_f64.copysign(double(bits)) } else { double(bits) };
        (number - value.clamp(-65536.0, 65536.0)).abs()
    };
    let (up, down) = (found.wrapping_add(1), found.wrapping_sub(1));
    let in_range = |bits: u16| bits & 0x7fff <= 0x7c00;
    let own = distance(found);
    let fine = |other: u16| {
        !in_range(other)
            || own < distance(other)
            || (own == distance(other) && found & 1 == 0)
            || other == 0x7fff
    };
    let signs = value == 0.0 || (found & 0x8000 != 0) == (value < 0.0);
    in_range(found) && signs && fine(up) && (found & 0x7fff == 0 || fine(down))
}

#[test]
fn arithmetic_on_halves_is_exact_until_the_end() {
    let mut state = 1_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as u16
    };
    let (mut a, mut b): (Vec<u16>, Vec<u16>) = (0..COUNT).map(|_| (random(), random())).unzip();
    // Exponents near each other, where rounding happens.
    for index in 0..COUNT / 2 {
        a[index] = a[index] & 0x83ff | 0x3c00;
        b[index] = b[index] & 0x87ff | 0x3800;
    }
    for (instruction, exact) in [
        ("add.f16 %h2, %h0, %h1", (|x, y| x + y) as fn(f64, f64) -> f64),
        ("sub.f16 %h2, %h0, %h1", |x, y| x - y),
        ("mul.f16 %h2, %h0, %h1", |x, y| x * y),
        ("fma.rn.f16 %h2, %h0, %h1, %h0", |x, y| x.mul_add(y, x)),
        ("fma.rn.f16 %h2, %h0, %h0, %h1", |x, y| x.mul_add(x, y)),
        (
            "mov.b32 %r3, {%h0, %h1}; mov.b32 %r4, {%h1, %h0}; fma.rn.f16x2 %r5, %r3, %r4, %r3; mov.b32 {%h2, %h3}, %r5",
            |x, y| x.mul_add(y, x),
        ),
        ("neg.f16 %h2, %h0; add.f16 %h2, %h2, %h1", |x, y| y - x),
    ] {
        let results = run(&format!("{AT} {instruction}; st.global.u16 [%d6], %h2;"), [&a, &b], COUNT);
        for index in 0..COUNT {
            let value = exact(double(a[index]), double(b[index]));
            assert!(
                is_nearest(results[index], value),
                "{instruction} of {:#x}, {:#x}: {:#x} for {value:e}",
                a[index],
                b[index],
                results[index]
            );
        }
    }
}
