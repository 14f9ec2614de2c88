// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Video instructions, compared with the results of the PTX manual's pseudocode. `late_forms` compares with the known
//! results of an H200.

use crate::form::{Form, form};
use crate::harness::Device;

const SIGNS: [&str; 8] = [
    "u32.u32.u32",
    "u32.u32.s32",
    "u32.s32.u32",
    "u32.s32.s32",
    "s32.u32.u32",
    "s32.u32.s32",
    "s32.s32.u32",
    "s32.s32.s32",
];

/// The forms that are compared with an H200.
pub(crate) fn forms(list: &mut Vec<Form>) {
    let mut push = |text: String| {
        list.push(form(format!("mov.b32 {{d}}, 0; {text};"), &["b32", "b32", "b32", "b32"]));
    };
    let parts = ["b0", "b1", "b2", "b3", "h0", "h1"];
    let mut turn = 0;
    for name in ["vadd", "vsub", "vabsdiff", "vmin", "vmax"] {
        for signs in SIGNS {
            for sat in ["", ".sat"] {
                turn += 1;
                let part = |step: usize| parts[(turn * 5 + step) % parts.len()];
                let second = ["add", "min", "max"][turn % 3];
                push(format!("{name}.{signs}{sat} {{d}}, {{a}}, {{b}}"));
                push(format!("{name}.{signs}{sat} {{d}}, {{a}}.{}, {{b}}.{}", part(0), part(1)));
                push(format!("{name}.{signs}{sat}.{second} {{d}}, {{a}}.{}, {{b}}, {{c}}", part(2)));
                push(format!("{name}.{signs}{sat} {{d}}.{}, {{a}}, {{b}}, {{c}}", part(3)));
            }
        }
    }
    for name in ["vshl", "vshr"] {
        for signs in ["u32.u32.u32", "u32.s32.u32", "s32.u32.u32", "s32.s32.u32"] {
            for mode in ["clamp", "wrap", "sat.clamp", "sat.wrap"] {
                push(format!("{name}.{signs}.{mode} {{d}}, {{a}}, {{b}}.b0"));
                push(format!("{name}.{signs}.{mode} {{d}}.h1, {{a}}.h1, {{b}}, {{c}}"));
            }
        }
    }
    for signs in ["u32.u32", "u32.s32", "s32.u32", "s32.s32"] {
        for test in ["eq", "ne", "lt", "le", "gt", "ge"] {
            push(format!("vset.{signs}.{test} {{d}}, {{a}}, {{b}}.h0"));
            push(format!("vset.{signs}.{test}.max {{d}}, {{a}}.b1, {{b}}.b2, {{c}}"));
            push(format!("vset2.{signs}.{test} {{d}}.h1, {{a}}, {{b}}.h30, {{c}}"));
            push(format!("vset4.{signs}.{test}.add {{d}}, {{a}}, {{b}}, {{c}}"));
        }
        for more in ["", ".sat", ".shr7", ".sat.shr15"] {
            let result = if signs == "u32.u32" { "u32" } else { "s32" };
            push(format!("vmad.{result}.{signs}{more} {{d}}, {{a}}, {{b}}.h1, {{c}}"));
            push(format!("vmad.{result}.{signs}.po{more} {{d}}, {{a}}.b3, {{b}}, {{c}}"));
            push(format!("vmad.s32.{signs}{more} {{d}}, -{{a}}, {{b}}.h0, {{c}}"));
            push(format!("vmad.s32.{signs}{more} {{d}}, {{a}}, {{b}}, -{{c}}"));
        }
    }
    for name in ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"] {
        for signs in ["u32.u32.u32", "s32.s32.s32", "s32.u32.s32"] {
            for more in ["", ".sat", ".add"] {
                push(format!("{name}2.{signs}{more} {{d}}.h0, {{a}}.h21, {{b}}.h03, {{c}}"));
                push(format!("{name}4.{signs}{more} {{d}}.b310, {{a}}.b7142, {{b}}.b0536, {{c}}"));
            }
        }
    }
}

/// Returns the value of `%r0` after `instruction`, with three operands in `%r1` to `%r3`.
fn compute(instruction: &str, [a, b, c]: [u32; 3]) -> u32 {
    let device = Device::kernel(&format!(
        "mov.b32 %r0, 0x55555555; mov.b32 %r1, {a}; mov.b32 %r2, {b}; mov.b32 %r3, {c};\n{instruction}\n\
         ld.param.u64 %d0, [p0]; st.global.u32 [%d0], %r0;"
    ));
    let result = device.upload(&[0_u32]);
    device.run("k", [1, 1, 1], [1, 1, 1], &[result]).unwrap();
    device.download::<u32>(result, 1)[0]
}

#[track_caller]
fn gives(instruction: &str, operands: [u32; 3], expected: u32) {
    let found = compute(instruction, operands);
    assert_eq!(found, expected, "{instruction} of {operands:x?}: {found:#x} instead of {expected:#x}");
}

#[test]
fn scalar_arithmetic_takes_parts_and_saturates() {
    gives("vadd.u32.u32.u32 %r0, %r1, %r2;", [u32::MAX, 2, 0], 1);
    gives("vadd.u32.u32.u32.sat %r0, %r1, %r2;", [u32::MAX, 2, 0], u32::MAX);
    gives("vadd.s32.s32.s32.sat %r0, %r1, %r2;", [0x7fff_ffff, 1, 0], 0x7fff_ffff);
    // 255 + -1
    gives("vadd.s32.u32.s32 %r0, %r1.b0, %r2.h0;", [0x1234_56ff, 0x7777_ffff, 0], 254);
    gives("vadd.u32.u32.u32 %r0, %r1.b3, %r2.h1;", [0x1200_0000, 0x0034_0000, 0], 0x46);
    gives("vsub.u32.u32.u32.sat %r0, %r1, %r2;", [3, 5, 0], 0);
    gives("vsub.s32.u32.u32 %r0, %r1, %r2;", [3, 5, 0], (-2_i32).cast_unsigned());
    gives("vabsdiff.u32.s32.s32 %r0, %r1, %r2;", [(-3_i32).cast_unsigned(), 4, 0], 7);
    gives("vmin.s32.s32.s32 %r0, %r1, %r2;", [(-3_i32).cast_unsigned(), 4, 0], (-3_i32).cast_unsigned());
    gives("vmax.u32.s32.u32 %r0, %r1.b1, %r2;", [0x8000, 4, 0], 4);
}

#[test]
fn scalar_results_are_added_compared_and_merged() {
    gives("vabsdiff.u32.u32.u32.add %r0, %r1, %r2, %r3;", [10, 3, 100], 107);
    gives("vadd.s32.s32.s32.min %r0, %r1, %r2, %r3;", [10, 3, (-1_i32).cast_unsigned()], u32::MAX);
    gives("vadd.u32.u32.u32.max %r0, %r1, %r2, %r3;", [10, 3, 12], 13);
    gives("vadd.u32.u32.u32 %r0.h1, %r1, %r2, %r3;", [0x1_2340, 5, 0xaaaa_bbbb], 0x2345_bbbb);
    // Saturated to the part that is written: 200 + 100 as a byte.
    gives("vadd.u32.u32.u32.sat %r0.b2, %r1, %r2, %r3;", [200, 100, 0x1122_3344], 0x11ff_3344);
    gives("vadd.s32.s32.s32.sat %r0.b0, %r1, %r2, %r3;", [200, 100, 0x1122_3344], 0x1122_337f);
}

#[test]
fn scalar_shifts_wrap_or_clamp() {
    gives("vshl.u32.u32.u32.clamp %r0, %r1, %r2;", [3, 40, 0], 0);
    gives("vshl.u32.u32.u32.wrap %r0, %r1, %r2;", [3, 40, 0], 0x300);
    gives("vshl.u32.u32.u32.sat.clamp %r0, %r1, %r2;", [0x8000_0000, 1, 0], u32::MAX);
    gives("vshr.s32.s32.u32.clamp %r0, %r1.b0, %r2;", [0xf8, 1, 0], (-4_i32).cast_unsigned());
    gives("vshr.u32.u32.u32.clamp.add %r0, %r1, %r2, %r3;", [0xf8, 4, 1], 16);
    gives("vshr.u32.u32.u32.wrap %r0.b1, %r1, %r2, %r3;", [0xf80, 36, 0], 0xf800);
}

#[test]
fn scalar_comparisons_know_the_signs_of_both() {
    let minus = u32::MAX;
    gives("vset.s32.u32.lt %r0, %r1, %r2;", [minus, 1, 0], 1);
    gives("vset.u32.s32.lt %r0, %r1, %r2;", [1, minus, 0], 0);
    gives("vset.u32.u32.ge %r0, %r1, %r2;", [minus, 1, 0], 1);
    gives("vset.u32.u32.ne.add %r0, %r1.b0, %r2.b1, %r3;", [5, 0x0600, 41], 42);
    gives("vset.u32.u32.eq %r0.h1, %r1, %r2, %r3;", [5, 5, 0x2222_3333], 0x0001_3333);
}

#[test]
fn multiply_and_add_negates_and_scales() {
    gives("vmad.u32.u32.u32 %r0, %r1, %r2, %r3;", [7, 6, 5], 47);
    gives("vmad.s32.s32.u32 %r0, %r1.b0, %r2.h0, %r3;", [0xff, 0x1_0003, 1], (-2_i32).cast_unsigned());
    gives("vmad.u32.u32.u32.po %r0, %r1, %r2, %r3;", [7, 6, 5], 48);
    gives("vmad.s32.u32.u32 %r0, -%r1, %r2, %r3;", [7, 6, 50], 8);
    gives("vmad.s32.u32.u32 %r0, -%r1, -%r2, %r3;", [7, 6, 50], 92);
    gives("vmad.s32.s32.s32 %r0, %r1, %r2, -%r3;", [7, 6, 2], 40);
    gives("vmad.u32.u32.u32.shr7 %r0, %r1, %r2, %r3;", [1 << 20, 1 << 10, 1 << 9], (1 << 23) + 4);
    gives("vmad.u32.u32.u32.sat.shr15 %r0, %r1, %r2, %r3;", [u32::MAX, u32::MAX, 0], u32::MAX);
    gives(
        "vmad.s32.s32.s32.sat %r0, %r1, %r2, %r3;",
        [0x7fff_ffff, (-2_i32).cast_unsigned(), 0],
        0x8000_0000,
    );
}

#[test]
fn small_elements_are_picked_masked_and_counted() {
    gives("vadd2.u32.u32.u32 %r0, %r1, %r2, %r3;", [0x0001_ffff, 0x0002_0001, 0], 0x0003_0000);
    // The halves of `a` exchanged, those of `b` from `a`.
    gives("vsub2.u32.u32.u32 %r0, %r1.h01, %r2.h10, %r3;", [0x0003_0010, 9, 0], 0x000d_fff3);
    gives("vadd2.u32.u32.u32 %r0.h1, %r1, %r2, %r3;", [0x0001_0005, 0x0002_0005, 0xabcd_ef01], 0x0003_ef01);
    gives("vadd4.u32.u32.u32.sat %r0, %r1, %r2, %r3;", [0xff01_0203, 0x0101_0101, 0], 0xff02_0304);
    gives(
        "vadd4.u32.u32.u32 %r0.b20, %r1.b7531, %r2.b0123, %r3;",
        [0x0403_0201, 0x4030_2010, 0x9999_9999],
        0x9922_9906,
    );
    gives("vset4.u32.u32.eq %r0, %r1, %r2, %r3;", [0x0102_0304, 0x0102_ff04, 0], 0x0101_0001);
    gives("vset4.u32.u32.eq.add %r0, %r1, %r2, %r3;", [0x0102_0304, 0x0102_ff04, 10], 13);
    gives("vset2.s32.s32.lt %r0.h0, %r1, %r2, %r3;", [0x0000_ffff, 0, 0x7777_7777], 0x7777_0001);
}

#[test]
fn what_has_no_meaning_is_refused() {
    use cuda_emulator::program::Program;
    for text in [
        "vadd.u32.u32.u32 %r0, %r1.b4, %r2;",
        "vadd.u32.u32.u32 %r0.h1, %r1, %r2;",
        "vadd.u32.u32.u32.add %r0.h1, %r1, %r2, %r3;",
        "vadd.u32.u32.u32 %r0, -%r1, %r2;",
        "vadd4.u32.u32.u32 %r0, %r1.b8888, %r2, %r3;",
        "vadd4.u32.u32.u32 %r0, %r1.b12, %r2, %r3;",
        "vadd2.u32.u32.u32 %r0.h2, %r1, %r2, %r3;",
        "vmad.s32.s32.s32 %r0, -%r1, %r2, -%r3;",
        "vmad.u32.u32.u32.po %r0, %r1, -%r2, %r3;",
        "vset.u32.u32.nan %r0, %r1, %r2;",
    ] {
        assert!(Program::load(&crate::harness::kernel(text)).is_err(), "{text}");
    }
}
