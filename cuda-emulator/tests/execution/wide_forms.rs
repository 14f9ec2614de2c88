// SPDX-License-Identifier: Apache-2.0 OR MIT
//! As `forms`, for what needs more than three operands: matrices, atomics, shared memory, clusters. Values in matrices are
//! small integers: their sums are exact in whatever order they are taken.

use std::fmt::Write;

use crate::forms::{COUNT, class, hash, inputs};
use crate::harness::Device;

/// PTX with `{d}`, `{a}`, `{b}`, `{c}` for its operands, their types (`d` first), and whether it runs in clusters of two.
pub struct Form {
    pub text: String,
    pub kinds: Vec<&'static str>,
    pub cluster: bool,
}

fn form(text: impl Into<String>, kinds: &[&'static str]) -> Form {
    Form { text: text.into(), kinds: kinds.to_vec(), cluster: false }
}

fn plain(opcode: &str, kinds: &[&'static str]) -> Form {
    let operands = ["{d}", "{a}", "{b}", "{c}"][..kinds.len()].join(", ");
    form(format!("{opcode} {operands};"), kinds)
}

fn half_forms(list: &mut Vec<Form>) {
    for kind in ["f16", "f16x2", "bf16", "bf16x2"] {
        let brain = kind.starts_with('b');
        let options: &[&str] = if brain {
            &[".xorsign.abs", ".NaN.xorsign.abs"]
        } else {
            &[".xorsign.abs", ".NaN.xorsign.abs", ".ftz", ".ftz.NaN", ".ftz.xorsign.abs"]
        };
        for name in ["min", "max"] {
            for option in options {
                list.push(plain(&format!("{name}{option}.{kind}"), &[kind; 3]));
            }
        }
        if !brain {
            list.push(plain(&format!("fma.rn.ftz.relu.{kind}"), &[kind; 4]));
        }
    }
    for (kind, other) in [("f16x2", "f16x2"), ("bf16x2", "bf16x2")] {
        for operator in ["lt", "geu", "nan"] {
            list.push(plain(&format!("set.{operator}.{kind}.{other}"), &[kind, other, other]));
            list.push(form(
                format!("setp.{operator}.{kind} %p0|%p1, {{a}}, {{b}}; selp.u32 %t0, 1, 0, %p0; selp.u32 %t1, 2, 0, %p1; or.b32 {{d}}, %t0, %t1;"),
                &["u32", other, other],
            ));
        }
    }
    for to in ["u16", "f16", "u32"] {
        list.push(plain(&format!("set.le.{to}.f16"), &[to, "f16", "f16"]));
    }
    for to in ["u16", "bf16", "u32"] {
        list.push(plain(&format!("set.le.{to}.bf16"), &[to, "bf16", "bf16"]));
    }
}

fn conversion_forms(list: &mut Vec<Form>) {
    for mode in ["rna", "rna.satfinite", "rn", "rz", "rn.relu", "rz.relu"] {
        list.push(plain(&format!("cvt.{mode}.tf32.f32"), &["b32", "f32"]));
    }
    for tiny in ["e4m3x2", "e5m2x2"] {
        for relu in ["", ".relu"] {
            list.push(plain(&format!("cvt.rn.satfinite{relu}.{tiny}.f32"), &["b16", "f32", "f32"]));
            list.push(plain(&format!("cvt.rn.satfinite{relu}.{tiny}.f16x2"), &["b16", "f16x2"]));
            list.push(plain(&format!("cvt.rn{relu}.f16x2.{tiny}"), &["b32", "b16"]));
        }
    }
    for mode in ["rn.satfinite", "rz.satfinite", "rn.satfinite.relu"] {
        for kind in ["f16x2", "bf16x2"] {
            list.push(plain(&format!("cvt.{mode}.{kind}.f32"), &["b32", "f32", "f32"]));
        }
        for kind in ["f16", "bf16"] {
            list.push(plain(&format!("cvt.{mode}.{kind}.f32"), &["b16", "f32"]));
        }
    }
    for field in ["u4", "s4", "u2", "s2"] {
        list.push(plain(&format!("cvt.pack.sat.{field}.s32.b32"), &["b32", "s32", "s32", "b32"]));
    }
    for (opcode, to, from) in [
        ("cvt.rn.bf16.f16", "bf16", "f16"),
        ("cvt.rn.f16.bf16", "f16", "bf16"),
        ("cvt.rn.bf16.s32", "bf16", "s32"),
        ("cvt.rz.bf16.u64", "bf16", "u64"),
        ("cvt.rn.bf16.f64", "bf16", "f64"),
        ("cvt.f64.bf16", "f64", "bf16"),
        ("cvt.rzi.s32.bf16", "s32", "bf16"),
        ("cvt.rni.bf16.bf16", "bf16", "bf16"),
    ] {
        list.push(plain(opcode, &[to, from]));
    }
}

fn bit_forms(list: &mut Vec<Form>) {
    for operation in ["or", "and"] {
        list.push(form(
            format!("setp.lt.s32 %p1, {{b}}, 0; lop3.{operation}.b32 {{d}}|%p0, {{a}}, {{b}}, {{c}}, 0x28, %p1; @%p0 add.u32 {{d}}, {{d}}, 1;"),
            &["b32", "b32", "b32", "b32"],
        ));
    }
    list.push(form("mov.b32 {%x0, %x1, %x2, %x3}, {a}; mov.b32 {d}, {%x2, %x0, %x3, %x1};", &["b32", "b32"]));
    list.push(form("mov.b16 {%x0, %x1}, {a}; mov.b16 {d}, {%x1, %x0};", &["b16", "b16"]));
    list.push(form(
        "mov.b128 %w0, {{a}, {b}}; mov.b128 {%q0, %q1}, %w0; shr.u64 %q0, %q0, 1; xor.b64 {d}, %q0, %q1;",
        &["b64", "b64", "b64"],
    ));
    for name in ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vavrg"] {
        for lanes in [2, 4] {
            for types in ["u32.u32.u32", "s32.s32.s32", "s32.u32.s32"] {
                for option in ["", ".sat", ".add"] {
                    let full = format!("{name}{lanes}.{types}{option} {{d}}, {{a}}, {{b}}, {{c}};");
                    list.push(form(full, &["b32", "b32", "b32", "b32"]));
                }
            }
        }
    }
    list.push(form("elect.sync {d}|%p0, -1; @%p0 add.u32 {d}, {d}, 7;", &["b32", "b32"]));
    for (operation, kind) in [("popc", "u32"), ("and", "pred"), ("or", "pred")] {
        let text = if kind == "u32" {
            "setp.lt.s32 %p1, {a}, 0; bar.red.popc.u32 {d}, 1, 256, %p1;".to_owned()
        } else {
            format!("setp.lt.s32 %p1, {{a}}, -5; bar.red.{operation}.pred {{d}}, 1, %p1;")
        };
        list.push(form(text, &[kind, "s32"]));
    }
}

/// The memory word starts as `{a}`, the result is the old one and the new one.
fn atomic_forms(list: &mut Vec<Form>) {
    for (kind, bits) in [("f16", 16), ("bf16", 16), ("f16x2", 32), ("bf16x2", 32)] {
        for operation in ["add", "min", "max"] {
            // Scalars know only add.
            if bits == 16 && operation != "add" {
                continue;
            }
            if operation == "add" {
                list.push(form(
                    format!("st.global.b{bits} [%at2], {{a}}; atom.global.add.noftz.{kind} {{d}}, [%at2], {{b}}; ld.global.b{bits} {{d}}, [%at2];"),
                    &[kind, kind, kind],
                ));
            }
            let text = format!(
                "st.global.b{bits} [%at2], {{a}}; st.global.b{bits} [%at2+4], {{b}}; red.global.{operation}.noftz.v2.{kind} [%at2], {{{{b}}, {{a}}}}; ld.global.b{bits} {{d}}, [%at2];"
            );
            if bits == 32 {
                list.push(form(text, &[kind, kind, kind]));
            }
        }
        if bits == 16 {
            for operation in ["add", "min", "max"] {
                list.push(form(
                    format!("st.global.v2.b16 [%at2], {{{{a}}, {{b}}}}; st.global.v2.b16 [%at2+4], {{{{b}}, {{a}}}}; atom.global.{operation}.noftz.v4.{kind} {{%h0, %h1, %h2, %h3}}, [%at2], {{{{b}}, {{a}}, {{a}}, {{b}}}}; ld.global.v4.b16 {{%h4, %h5, %h6, %h7}}, [%at2]; mov.b64 %q0, {{%h0, %h1, %h2, %h3}}; mov.b64 %q1, {{%h4, %h5, %h6, %h7}}; shl.b64 %q0, %q0, 1; xor.b64 {{d}}, %q0, %q1;"),
                    &["b64", kind, kind],
                ));
            }
        }
    }
    for space in ["global", "shared"] {
        let at = if space == "global" { "%at2" } else { "%sa" };
        list.push(form(
            format!("st.{space}.f32 [{at}], {{a}}; atom.{space}.add.f32 %f0, [{at}], {{b}}; ld.{space}.f32 {{d}}, [{at}];"),
            &["f32", "f32", "f32"],
        ));
        list.push(form(
            format!("st.{space}.f64 [{at}], {{a}}; red.{space}.add.f64 [{at}], {{b}}; ld.{space}.f64 {{d}}, [{at}];"),
            &["f64", "f64", "f64"],
        ));
        for (operation, kind) in [
            ("add", "u32"),
            ("add", "s32"),
            ("add", "u64"),
            ("min", "s32"),
            ("max", "s32"),
            ("min", "u32"),
            ("max", "u32"),
            ("min", "s64"),
            ("max", "s64"),
            ("min", "u64"),
            ("max", "u64"),
            ("and", "b32"),
            ("or", "b32"),
            ("xor", "b32"),
            ("and", "b64"),
            ("or", "b64"),
            ("xor", "b64"),
            ("exch", "b32"),
            ("exch", "b64"),
            ("inc", "u32"),
            ("dec", "u32"),
        ] {
            let bits = &kind[1..];
            list.push(form(
                format!("st.{space}.b{bits} [{at}], {{a}}; atom.{space}.{operation}.{kind} {{d}}, [{at}], {{b}}; ld.{space}.b{bits} {{a}}, [{at}]; shl.b{bits} {{d}}, {{d}}, 1; xor.b{bits} {{d}}, {{d}}, {{a}};"),
                &[kind, kind, kind],
            ));
        }
        for kind in ["b16", "b32", "b64"] {
            list.push(form(
                format!("and.{kind} {{a}}, {{a}}, 3; and.{kind} {{b}}, {{b}}, 3; st.{space}.{kind} [{at}], {{a}}; atom.{space}.cas.{kind} {{d}}, [{at}], {{b}}, {{c}}; ld.{space}.{kind} {{a}}, [{at}]; shl.{kind} {{d}}, {{d}}, 1; xor.{kind} {{d}}, {{d}}, {{a}};"),
                &[kind, kind, kind, kind],
            ));
        }
    }
    list.push(form(
        "st.global.v2.f32 [%at2], {{a}, {b}}; atom.global.add.v2.f32 {%f0, %f1}, [%at2], {{b}, {b}}; ld.global.b64 {d}, [%at2];",
        &["b64", "f32", "f32"],
    ));
    list.push(form(
        "and.b64 {a}, {a}, 1; mov.b128 %w0, {{a}, {a}}; st.shared.v2.b64 [%sa], {{a}, {a}}; and.b64 {b}, {b}, 1; mov.b128 %w1, {{b}, {b}}; mov.b128 %w2, {{c}, {b}}; atom.shared.cas.b128 %w0, [%sa], %w1, %w2; atom.shared.exch.b128 %w3, [%sa], %w1; mov.b128 {%q0, %q1}, %w0; mov.b128 {%q2, %q3}, %w3; add.u64 %q0, %q0, %q1; shl.b64 %q2, %q2, 1; add.u64 %q2, %q2, %q3; mad.lo.u64 {d}, %q2, 5, %q0;",
        &["b64", "b64", "b64", "b64"],
    ));
}

/// Rows of 16 bytes in the warp's part of shared memory, one a lane.
const ROWS: &str = "st.shared.v4.b32 [%sl], {{a}, {b}, {c}, %i0}; bar.warp.sync -1;";

fn row_forms(list: &mut Vec<Form>) {
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

fn matrix_forms(list: &mut Vec<Form>) {
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

/// Loads, multiplies and stores by way of shared memory; the layout of the fragments does not show.
fn wmma_forms(list: &mut Vec<Form>) {
    let letters = |element: &str| if element == "f64" { 'g' } else { 't' };
    for (shape, element, sum, counts) in [
        ("m16n16k16", "f16", "f32", [8, 8, 8]),
        ("m32n8k16", "f16", "f32", [8, 8, 8]),
        ("m8n32k16", "f16", "f16", [8, 8, 4]),
        ("m16n16k16", "f16", "f16", [8, 8, 4]),
        ("m16n16k16", "bf16", "f32", [4, 4, 8]),
        ("m32n8k16", "bf16", "f32", [8, 2, 8]),
        ("m8n32k16", "bf16", "f32", [2, 8, 8]),
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
            // What is stored takes up to 1 KiB for f32; f16 and f64 less.
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

fn cluster_forms(list: &mut Vec<Form>) {
    let mut add = |text: &str| {
        list.push(Form { text: text.to_owned(), kinds: vec!["b32", "b32", "b32"], cluster: true });
    };
    let sync = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;";
    add(&format!(
        "st.shared.b32 [%sa], {{a}}; {sync} mov.u32 %t0, %cluster_ctarank; xor.b32 %t1, %t0, 1; mapa.shared::cluster.u32 %t2, %sa, %t1; ld.shared::cluster.b32 {{d}}, [%t2]; mad.lo.u32 {{d}}, {{d}}, 2, %t0; {sync}"
    ));
    add(&format!(
        "st.shared.b32 [%sa], {{a}}; {sync} mov.u32 %t0, %cluster_ctarank; xor.b32 %t1, %t0, 1; cvt.u64.u32 %q0, %sa; cvta.shared.u64 %q0, %q0; mapa.u64 %q1, %q0, %t1; atom.add.u32 %t3, [%q1], {{b}}; getctarank.u64 %t4, %q1; {sync} ld.shared.b32 {{d}}, [%sa]; mad.lo.u32 {{d}}, {{d}}, 3, %t4; isspacep.shared::cta %p0, %q1; isspacep.shared::cluster %p1, %q1; @%p0 add.u32 {{d}}, {{d}}, 100; @%p1 add.u32 {{d}}, {{d}}, 1000; isspacep.shared::cta %p0, %q0; isspacep.shared::cluster %p1, %q0; @%p0 add.u32 {{d}}, {{d}}, 10; @%p1 add.u32 {{d}}, {{d}}, 20;"
    ));
    add(&format!(
        "mov.u32 %t0, %cluster_ctaid.x; mov.u32 %t1, %cluster_nctaid.x; mov.u32 %t2, %clusterid.x; mov.u32 %t3, %nclusterid.x; mov.u32 %t4, %cluster_nctarank; mad.lo.u32 %t0, %t0, 10, %t1; mad.lo.u32 %t0, %t0, 10, %t2; mad.lo.u32 %t0, %t0, 10, %t3; mad.lo.u32 {{d}}, %t0, 10, %t4; {sync}"
    ));
    // Every thread stores into the other block, whose barrier counts the bytes.
    add(&format!(
        "mov.u32 %t9, sm; add.u32 %t9, %t9, 16384; mov.u32 %t8, %tid.x; setp.eq.u32 %p0, %t8, 0; @%p0 mbarrier.init.shared::cta.b64 [%t9], 1; @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%t9], 1024; fence.mbarrier_init.release.cluster; {sync} mov.u32 %t0, %cluster_ctarank; xor.b32 %t1, %t0, 1; mapa.shared::cluster.u32 %t2, %sa, %t1; mapa.shared::cluster.u32 %t3, %t9, %t1; st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%t2], {{a}}, [%t3]; WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%t9], 0; @!%p1 bra WAIT; ld.shared.b32 {{d}}, [%sa]; {sync}"
    ));
    // One thread copies a row of inputs from global memory.
    add(&format!(
        "mov.u32 %t9, sm; mov.u32 %t7, %t9; add.u32 %t9, %t9, 16384; mov.u32 %t8, %tid.x; setp.eq.u32 %p0, %t8, 0; @%p0 mbarrier.init.shared::cta.b64 [%t9], 1; fence.mbarrier_init.release.cluster; fence.proxy.async; {sync} ld.param.u64 %q0, [pa]; @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%t9], 2048; @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%t7], [%q0], 2048, [%t9]; WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%t9], 0; @!%p1 bra WAIT; mad.lo.u32 %t7, %t8, 8, %t7; ld.shared.b32 {{d}}, [%t7]; {sync}"
    ));
    add(&format!(
        "mov.u32 %t9, sm; mov.u32 %t7, %t9; add.u32 %t9, %t9, 16384; mov.u32 %t8, %tid.x; setp.eq.u32 %p0, %t8, 0; @%p0 mbarrier.init.shared::cta.b64 [%t9], 1; fence.mbarrier_init.release.cluster; fence.proxy.async; @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%t9], 2048; {sync} ld.param.u64 %q0, [pa]; mov.u32 %t0, %cluster_ctarank; setp.eq.u32 %p2, %t0, 0; and.pred %p2, %p2, %p0; mov.b16 %h0, 3; @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%t7], [%q0], 2048, [%t9], %h0; WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%t9], 0; @!%p1 bra WAIT; mad.lo.u32 %t7, %t8, 8, %t7; ld.shared.b32 {{d}}, [%t7]; {sync}"
    ));
}

/// Every form whose result is exact.
pub fn forms() -> Vec<Form> {
    let mut list = Vec::new();
    half_forms(&mut list);
    conversion_forms(&mut list);
    bit_forms(&mut list);
    atomic_forms(&mut list);
    row_forms(&mut list);
    matrix_forms(&mut list);
    wmma_forms(&mut list);
    cluster_forms(&mut list);
    list
}

/// Forms whose results hardware rounds in its own way: only for looking at.
pub fn rounded() -> Vec<Form> {
    let mut list = Vec::new();
    for kind in ["f16", "f16x2", "bf16", "bf16x2"] {
        list.push(plain(&format!("tanh.approx.{kind}"), &[kind, kind]));
        let ftz = if kind.starts_with('b') { ".ftz" } else { "" };
        list.push(plain(&format!("ex2.approx{ftz}.{kind}"), &[kind, kind]));
    }
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
    // Which element of a wmma fragment is where.
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
    list
}

/// The module: kernel `k0`, `k1`, … for the forms in order; parameters: three inputs and the output.
pub fn module(forms: &[Form]) -> String {
    let mut text = String::from(".version 8.8\n.target sm_90\n.address_size 64\n");
    for (index, form) in forms.iter().enumerate() {
        let cluster = if form.cluster { ".reqnctapercluster 2\n" } else { "" };
        let _ = write!(
            text,
            "// {}\n.visible .entry k{index}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)\n{cluster}{{\n\
             .shared .align 128 .b8 sm[16512];\n\
             .reg .b32 %i<4>; .reg .b64 %at<6>; .reg .pred %u<4>; .reg .b32 %t<32>; .reg .b16 %h<16>; .reg .b8 %x<4>;\n\
             .reg .f32 %f<4>; .reg .f64 %g<32>; .reg .b64 %q<4>; .reg .b128 %w<4>; .reg .pred %p<4>;\n\
             .reg .b32 %sa; .reg .b32 %sw; .reg .b32 %sl; .reg .b32 %lane;\n\
             mov.u32 %i0, %ctaid.x; mov.u32 %i1, %ntid.x; mov.u32 %i2, %tid.x; mad.lo.u32 %i0, %i0, %i1, %i2;\n\
             mul.wide.u32 %at0, %i0, 8; ld.param.u64 %at2, [pd]; add.u64 %at2, %at2, %at0;\n\
             mov.u32 %sa, sm; mov.u32 %sw, sm; mov.u32 %lane, %laneid;\n\
             shr.u32 %i1, %i2, 5; mad.lo.u32 %sw, %i1, 2048, %sw; mad.lo.u32 %sl, %lane, 16, %sw;\n\
             mad.lo.u32 %sa, %i2, 64, %sa;\n",
            form.text
        );
        let mut body = form.text.clone();
        for (operand, kind) in ["d", "a", "b", "c"].iter().zip(&form.kinds) {
            let (register, bytes, _) = class(kind);
            let _ = writeln!(text, ".reg .{register} %{operand};");
            body = body.replace(&format!("{{{operand}}}"), &format!("%{operand}"));
            if *operand == "d" {
                continue;
            }
            let _ = writeln!(
                text,
                "ld.param.u64 %at1, [p{operand}]; add.u64 %at1, %at1, %at0; ld.global.b{} %{operand}, [%at1];",
                bytes * 8
            );
        }
        let (_, bytes, _) = class(form.kinds[0]);
        let store = match bytes {
            0 => "selp.u32 %i3, 1, 0, %d; st.global.u32 [%at2], %i3;".to_owned(),
            bytes => format!("st.global.b{} [%at2], %d;", bytes * 8),
        };
        let clear = "mov.b64 %at3, 0; st.global.b64 [%at2], %at3;";
        let _ = writeln!(text, "{body}\n{clear}\n{store}\nret;\n}}");
    }
    text
}

/// The results of all forms on the emulator.
pub fn run(forms: &[Form]) -> Vec<Vec<u64>> {
    let device = Device::new(&module(forms));
    let arrays: Vec<u64> = (0..15).map(|index| device.upload(&inputs(index / 3, index % 3))).collect();
    let out = device.upload(&[0_u64; COUNT]);
    let mut results = Vec::new();
    for (index, form) in forms.iter().enumerate() {
        let params = parameters(form).map(|index| arrays[index]);
        let grid = [COUNT as u32 / 256, 1, 1];
        let all = [params[0], params[1], params[2], out];
        device
            .run(&format!("k{index}"), grid, [256, 1, 1], &all)
            .unwrap_or_else(|fault| panic!("{}: {fault}", form.text));
        results.push(device.download::<u64>(out, COUNT));
    }
    results
}

/// Which input arrays a form gets.
fn parameters(form: &Form) -> [usize; 3] {
    let mut indices = [0, 1, 2];
    for (which, kind) in form.kinds.iter().skip(1).enumerate() {
        indices[which] = class(kind).2 * 3 + which;
    }
    indices
}

/// Writes module, inputs and the list of kernels for a machine with a GPU to `$FORMS_DIR`.
#[test]
#[ignore = "makes files for another machine"]
fn write_cases() {
    let dir = std::path::PathBuf::from(std::env::var_os("FORMS_DIR").expect("FORMS_DIR"));
    let mut forms = forms();
    let exact = forms.len();
    forms.extend(rounded());
    std::fs::write(dir.join("forms.ptx"), module(&forms)).unwrap();
    let all: Vec<u8> = (0..15)
        .flat_map(|index| inputs(index / 3, index % 3))
        .flat_map(|value| value.to_le_bytes())
        .collect();
    std::fs::write(dir.join("inputs.bin"), all).unwrap();
    let list: String = forms.iter().map(parameters).map(|[a, b, c]| format!("{a} {b} {c}\n")).collect();
    std::fs::write(dir.join("list.txt"), list).unwrap();
    std::fs::write(dir.join("exact.txt"), exact.to_string()).unwrap();
    let results: Vec<u8> = run(&forms).into_iter().flatten().flat_map(u64::to_le_bytes).collect();
    std::fs::write(dir.join("emulated.bin"), results).unwrap();
}

#[test]
fn every_form_runs() {
    let forms = forms();
    let results = run(&forms);
    assert_eq!(results.len(), forms.len());
    assert_ne!(hash(&results[0]), hash(&results[1]));
}
