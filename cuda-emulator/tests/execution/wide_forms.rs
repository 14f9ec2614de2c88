// SPDX-License-Identifier: Apache-2.0 OR MIT
//! As `forms`, for what needs more than three operands: matrices, atomics, shared memory, clusters.

use std::fmt::Write;

use crate::form::{Form, class, form, hash, known, plain, run, write_files};
use crate::matrices;

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
    matrices::row_forms(&mut list);
    matrices::matrix_forms(&mut list);
    matrices::wmma_forms(&mut list);
    cluster_forms(&mut list);
    matrices::open_forms(&mut list);
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

#[test]
#[ignore = "makes files for another machine"]
fn write_cases() {
    let forms = forms();
    write_files(&module(&forms), &forms);
}

#[test]
fn wide_forms_agree_with_an_h200() {
    let forms = forms();
    let known = known(include_str!("../data/h200-wide.txt"));
    let mut wrong = Vec::new();
    for (form, results) in forms.iter().zip(run(&module(&forms), &forms)) {
        let wanted = known.get(form.digest().as_str()).expect("a new form: make h200-wide.txt anew");
        if format!("{:016x}", hash(&results)) != *wanted {
            wrong.push(&form.text);
        }
    }
    assert!(wrong.is_empty(), "{} of {} forms differ: {wrong:#?}", wrong.len(), forms.len());
}
