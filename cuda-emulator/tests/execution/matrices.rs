// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The forms of `wide_forms` that work on matrices. Values are small integers: their sums are exact in whatever order they
//! are taken.

use std::fmt::Write;

use crate::form::{Form, form};

/// Rows of 16 bytes in the warp's part of shared memory, one per lane.
const ROWS: &str = "st.shared.v4.b32 [%sl], {{a}, {b}, {c}, %i0}; bar.warp.sync -1;";

pub(crate) fn row_forms(list: &mut Vec<Form>) {
    let kinds = ["b32", "b32", "b32", "b32"];
    for trans in ["", ".trans"] {
        for (count, registers) in [(1, "{%t0}"), (2, "{%t0, %t1}"), (4, "{%t0, %t1, %t2, %t3}")] {
            list.push(form(
                format!("mov.b32 %t0, 0; mov.b32 %t1, 0; mov.b32 %t2, 0; mov.b32 %t3, 0; {ROWS} ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {registers}, [%sl]; mad.lo.u32 %t1, %t1, 3, %t0; mad.lo.u32 %t2, %t2, 5, %t1; mad.lo.u32 {{d}}, %t3, 7, %t2;"),
                &kinds,
            ));
            let sources = ["{{a}}", "{{a}, {b}}", "{{a}, {b}, {c}, {a}}"]
                [[1, 2, 4].iter().position(|n| *n == count).unwrap()];
            list.push(form(
                format!("{ROWS} stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%sl], {sources}; bar.warp.sync -1; ld.shared.v4.b32 {{%t0, %t1, %t2, %t3}}, [%sl]; mad.lo.u32 %t1, %t1, 3, %t0; mad.lo.u32 %t2, %t2, 5, %t1; mad.lo.u32 {{d}}, %t3, 7, %t2;"),
                &kinds,
            ));
        }
    }
    list.push(form("movmatrix.sync.aligned.m8n8.trans.b16 {d}, {a};", &["b32", "b32"]));
}

/// Small integers in `%t0`… as elements of type `element`: `count` registers, made from the bits of `source`.
fn fragment(element: &str, count: usize, source: &str, first: usize) -> String {
    let mut text = String::new();
    let bits = match element {
        "f16" | "bf16" => 16,
        "tf32" | "f32" | "s32" => 32,
        "e4m3" | "e5m2" | "s8" | "u8" => 8,
        "f64" => 64,
        _ => 4,
    };
    for register in 0..count {
        let target = first + register;
        let shift = (register * 5) % 28;
        let _ = match (element, bits) {
            ("f16" | "bf16", _) => write!(
                text,
                "bfe.s32 %i1, {source}, {shift}, 4; bfe.s32 %i2, {source}, {}, 3; cvt.rn.{element}.s32 %h0, %i1; cvt.rn.{element}.s32 %h1, %i2; mov.b32 %t{target}, {{%h0, %h1}};",
                shift + 1
            ),
            ("tf32" | "f32", _) => {
                write!(text, "bfe.s32 %i1, {source}, {shift}, 4; cvt.rn.f32.s32 %t{target}, %i1;")
            }
            ("f64", _) => write!(text, "bfe.s32 %i1, {source}, {shift}, 4; cvt.rn.f64.s32 %g{target}, %i1;"),
            // 1.0 in e4m3 is 0x38 and in e5m2 0x3c: signs and powers of two.
            ("e4m3", _) => write!(
                text,
                "shf.l.wrap.b32 %t{target}, {source}, {source}, {shift}; and.b32 %t{target}, %t{target}, 0x88888888; or.b32 %t{target}, %t{target}, 0x30303030;"
            ),
            ("e5m2", _) => write!(
                text,
                "shf.l.wrap.b32 %t{target}, {source}, {source}, {shift}; and.b32 %t{target}, %t{target}, 0x84848484; or.b32 %t{target}, %t{target}, 0x38383838;"
            ),
            _ => write!(text, "shf.l.wrap.b32 %t{target}, {source}, {source}, {shift};"),
        };
    }
    text
}

fn registers(letter: char, first: usize, count: usize) -> String {
    let names: Vec<String> = (first..first + count).map(|index| format!("%{letter}{index}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// `%t24`… mixed into one result.
fn mix(letter: char, first: usize, count: usize) -> String {
    let mut text = String::from("mov.b32 {d}, 0;");
    for index in first..first + count {
        if letter == 'g' {
            let _ = write!(text, "cvt.rzi.s32.f64 %t0, %g{index}; mad.lo.u32 {{d}}, {{d}}, 31, %t0;");
        } else {
            let _ = write!(text, "mad.lo.u32 {{d}}, {{d}}, 31, %{letter}{index};");
        }
    }
    text
}

fn multiply(opcode: &str, elements: [&str; 4], counts: [usize; 4]) -> Form {
    let [d, a, b, c] = elements;
    let [in_a, in_b, in_c, in_d] = counts;
    let letter = if d == "f64" { 'g' } else { 't' };
    let mut text = fragment(a, in_a, "{a}", 0);
    text += &fragment(b, in_b, "{b}", 8);
    text += &fragment(c, in_c, "{c}", 16);
    let _ = write!(
        text,
        "{opcode} {}, {}, {}, {};",
        registers(letter, 24, in_d),
        registers(letter, 0, in_a),
        registers(letter, 8, in_b),
        registers(letter, 16, in_c)
    );
    text += &mix(letter, 24, in_d);
    form(text, &["b32", "b32", "b32", "b32"])
}

pub(crate) fn matrix_forms(list: &mut Vec<Form>) {
    for (shape, element, counts) in [
        ("m16n8k8", "f16", [2, 1, 4, 4]),
        ("m16n8k16", "f16", [4, 2, 4, 4]),
        ("m16n8k8", "bf16", [2, 1, 4, 4]),
        ("m16n8k16", "bf16", [4, 2, 4, 4]),
        ("m16n8k4", "tf32", [2, 1, 4, 4]),
        ("m16n8k8", "tf32", [4, 2, 4, 4]),
        ("m16n8k32", "e4m3", [4, 2, 4, 4]),
        ("m16n8k32", "e5m2", [4, 2, 4, 4]),
    ] {
        list.push(multiply(
            &format!("mma.sync.aligned.{shape}.row.col.f32.{element}.{element}.f32"),
            ["f32", element, element, "f32"],
            counts,
        ));
    }
    for (shape, counts) in [("m16n8k8", [2, 1, 2, 2]), ("m16n8k16", [4, 2, 2, 2])] {
        let opcode = format!("mma.sync.aligned.{shape}.row.col.f16.f16.f16.f16");
        list.push(multiply(&opcode, ["f16", "f16", "f16", "f16"], counts));
    }
    for (shape, counts) in [
        ("m8n8k4", [1, 1, 2, 2]),
        ("m16n8k4", [2, 1, 4, 4]),
        ("m16n8k8", [4, 2, 4, 4]),
        ("m16n8k16", [8, 4, 4, 4]),
    ] {
        let opcode = format!("mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64");
        list.push(multiply(&opcode, ["f64"; 4], counts));
    }
    for (shape, bits, counts) in [
        ("m8n8k16", 8, [1, 1, 2, 2]),
        ("m16n8k16", 8, [2, 1, 4, 4]),
        ("m16n8k32", 8, [4, 2, 4, 4]),
        ("m8n8k32", 4, [1, 1, 2, 2]),
        ("m16n8k32", 4, [2, 1, 4, 4]),
        ("m16n8k64", 4, [4, 2, 4, 4]),
    ] {
        for (a, b) in [("s", "s"), ("u", "s"), ("s", "u"), ("u", "u")] {
            for satfinite in ["", ".satfinite"] {
                let opcode =
                    format!("mma.sync.aligned.{shape}.row.col{satfinite}.s32.{a}{bits}.{b}{bits}.s32");
                list.push(multiply(&opcode, ["s32", "u8", "u8", "s32"], counts));
            }
        }
    }
    for (shape, counts) in
        [("m8n8k128", [1, 1, 2, 2]), ("m16n8k128", [2, 1, 4, 4]), ("m16n8k256", [4, 2, 4, 4])]
    {
        for operation in ["xor", "and"] {
            let opcode = format!("mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}.popc");
            list.push(multiply(&opcode, ["s32", "u8", "u8", "s32"], counts));
        }
    }
}

/// `mma.m8n8k4` of f16.
pub(crate) fn quad_forms(list: &mut Vec<Form>) {
    for layouts in ["row.row", "row.col", "col.row", "col.col"] {
        for (d, c, in_c, in_d) in [("f32", "f32", 8, 8), ("f16", "f16", 4, 4), ("f32", "f16", 4, 8)] {
            let opcode = format!("mma.sync.aligned.m8n8k4.{layouts}.{d}.f16.f16.{c}");
            list.push(multiply(&opcode, [d, "f16", "f16", c], [2, 2, in_c, in_d]));
        }
    }
}

/// Loads, multiplies and stores through shared memory, so that the layout of the fragments does not matter. Matrices
/// of at most 512 bytes, which is the size that the lanes write.
pub(crate) fn wmma_forms(list: &mut Vec<Form>) {
    let letters = |element: &str| if element == "f64" { 'g' } else { 't' };
    for (shape, element, sum, counts) in [
        ("m16n16k16", "f16", "f32", [8, 8, 8]),
        ("m16n16k16", "f16", "f16", [8, 8, 4]),
        ("m16n16k16", "bf16", "f32", [4, 4, 8]),
        ("m16n16k8", "tf32", "f32", [4, 4, 8]),
        ("m16n16k16", "s8", "s32", [2, 2, 8]),
        ("m32n8k16", "u8", "s32", [4, 1, 8]),
        ("m8n32k16", "s8", "s32", [1, 4, 8]),
        ("m8n8k4", "f64", "f64", [1, 1, 2]),
    ] {
        for (first, second) in [("row", "col"), ("col", "row")] {
            let size: Vec<usize> = shape[1..].split(['n', 'k']).map(|part| part.parse().unwrap()).collect();
            let (m, n, k) = (size[0], size[1], size[2]);
            // The warp's 2 KiB: 32 lanes write 64 bytes each.
            let mut text = String::new();
            let source_letter = letters(element);
            for (slot, source) in [(0, "{a}"), (1, "{b}")] {
                text += &fragment(element, 4, source, 0);
                for part in 0..4 {
                    let (letter, kind, bytes) =
                        if element == "f64" { ('g', "b64", 8) } else { ('t', "b32", 4) };
                    let at = slot * 1024 + part * bytes;
                    let lane = if element == "f64" { 32 } else { 16 };
                    let _ = write!(
                        text,
                        "mad.lo.u32 %i1, %lane, {lane}, %sw; st.shared.{kind} [%i1+{at}], %{letter}{part};"
                    );
                }
            }
            let (in_a, in_b, in_c) = (counts[0], counts[1], counts[2]);
            let (lda, ldb) = (if first == "row" { k } else { m }, if second == "row" { n } else { k });
            let _ = write!(
                text,
                "bar.warp.sync -1; wmma.load.a.sync.aligned.{first}.{shape}.shared.{element} {}, [%sw], {lda}; wmma.load.b.sync.aligned.{second}.{shape}.shared.{element} {}, [%sw+1024], {ldb};",
                registers(source_letter, 0, in_a),
                registers(source_letter, 8, in_b),
            );
            let zero = if sum == "f64" { "mov.b64" } else { "mov.b32" };
            for index in 16..16 + in_c {
                let letter = letters(sum);
                let _ = write!(text, "{zero} %{letter}{index}, 0;");
            }
            let types = match element {
                "f16" => format!("{sum}.{sum}"),
                "f64" => "f64.f64.f64.f64".to_owned(),
                _ => format!("{sum}.{element}.{element}.{sum}"),
            };
            let rn = if element == "f64" { ".rn" } else { "" };
            let bytes = match sum {
                "f16" => 2,
                "f64" => 8,
                _ => 4,
            };
            let ldc = n;
            // The result takes up to 1 KiB for f32; f16 and f64 take less.
            let _ = write!(
                text,
                "wmma.mma.sync.aligned.{first}.{second}.{shape}.{types}{rn} {}, {}, {}, {}; bar.warp.sync -1; wmma.store.d.sync.aligned.row.{shape}.shared.{sum} [%sw], {}, {ldc}; bar.warp.sync -1;",
                registers(letters(sum), 24, in_c),
                registers(source_letter, 0, in_a),
                registers(source_letter, 8, in_b),
                registers(letters(sum), 16, in_c),
                registers(letters(sum), 24, in_c),
            );
            let words = m * n * bytes / 4 / 32;
            text += "mov.b32 {d}, 0;";
            for word in 0..words {
                let _ = write!(
                    text,
                    "mad.lo.u32 %i1, %lane, 4, %sw; ld.shared.b32 %t0, [%i1+{}]; mad.lo.u32 {{d}}, {{d}}, 31, %t0;",
                    word * 128
                );
            }
            list.push(form(text, &["b32", "b32", "b32"]));
        }
    }
}

/// Sums that are rounded, and which element of a wmma fragment is where: left open by the manual, the same as on an H200.
pub(crate) fn open_forms(list: &mut Vec<Form>) {
    for (shape, a, b) in [("m16n8k8", 2, 1), ("m16n8k16", 4, 2)] {
        for element in ["f16", "bf16"] {
            // Numbers near one, of all signs.
            let (mask, one) =
                if element == "f16" { ("0x87ff87ff", "0x38003800") } else { ("0x80ff80ff", "0x3f003f00") };
            let mut text = String::new();
            for index in 0..a {
                let _ = write!(
                    text,
                    "shf.l.wrap.b32 %t{index}, {{a}}, {{a}}, {}; and.b32 %t{index}, %t{index}, {mask}; or.b32 %t{index}, %t{index}, {one};",
                    index * 7
                );
            }
            for index in 8..8 + b {
                let _ = write!(
                    text,
                    "shf.l.wrap.b32 %t{index}, {{b}}, {{b}}, {}; and.b32 %t{index}, %t{index}, {mask}; or.b32 %t{index}, %t{index}, {one};",
                    index * 7 % 32
                );
            }
            for index in 16..20 {
                let _ = write!(
                    text,
                    "shf.l.wrap.b32 %t{index}, {{c}}, {{c}}, {}; and.b32 %t{index}, %t{index}, 0x80ffffff; or.b32 %t{index}, %t{index}, 0x3f000000;",
                    index % 16 * 7
                );
            }
            let _ = write!(
                text,
                "mma.sync.aligned.{shape}.row.col.f32.{element}.{element}.f32 {}, {}, {}, {}; mov.b64 {{d}}, {{%t24, %t26}};",
                registers('t', 24, 4),
                registers('t', 0, a),
                registers('t', 8, b),
                registers('t', 16, 4)
            );
            list.push(form(text, &["b64", "b32", "b32", "b32"]));
        }
    }
    // The positions of the elements of a wmma fragment.
    for (matrix, shape, element, count) in [
        ("a", "m16n16k16", "f16", 8),
        ("b", "m16n16k16", "f16", 8),
        ("a", "m16n16k16", "bf16", 4),
        ("b", "m16n16k16", "bf16", 4),
        ("a", "m16n16k8", "tf32", 4),
        ("b", "m16n16k8", "tf32", 4),
        ("c", "m16n16k16", "f32", 8),
        ("c", "m16n16k16", "f16", 4),
        ("a", "m32n8k16", "f16", 8),
        ("b", "m8n32k16", "f16", 8),
        ("a", "m16n16k16", "s8", 2),
        ("b", "m16n16k16", "s8", 2),
        ("c", "m32n8k16", "f32", 8),
        ("c", "m8n32k16", "f32", 8),
    ] {
        for layout in ["row", "col"] {
            for register in [0, count - 1] {
                let names = registers('t', 0, count);
                let mut text = String::new();
                for part in 0..16 {
                    let _ = write!(
                        text,
                        "mad.lo.u32 %i1, %lane, 64, %sw; mad.lo.u32 %i2, %lane, 16, {part}; mad.lo.u32 %i2, %i2, 131074, 65536; st.shared.b32 [%i1+{}], %i2;",
                        part * 4
                    );
                }
                let _ = write!(
                    text,
                    "bar.warp.sync -1; wmma.load.{matrix}.sync.aligned.{layout}.{shape}.shared.{element} {names}, [%sw]; mov.b32 {{d}}, %t{register};"
                );
                list.push(form(text, &["b32", "b32"]));
            }
        }
    }
}
