// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One kernel for each form of each arithmetic instruction, on edge values and random ones. The results of an H200
//! are stored as hashes in `tests/data/h200.txt`; `write_cases` writes the files for computing them again.

use std::fmt::Write;

use crate::form::{Form, class, form, hash, plain, run, write_files};

const INTEGERS: [&str; 6] = ["u16", "s16", "u32", "s32", "u64", "s64"];

fn integer_forms(list: &mut Vec<Form>) {
    for kind in INTEGERS {
        for name in ["add", "sub", "mul.lo", "mul.hi", "min", "max"] {
            list.push(plain(&format!("{name}.{kind}"), &[kind; 3]));
        }
        // Division by zero is left open by the manual: the divisor is made odd.
        let bits = kind[1..].parse::<u32>().unwrap();
        for name in ["div", "rem"] {
            list.push(form(
                format!("or.b{bits} {{b}}, {{b}}, 1; {name}.{kind} {{d}}, {{a}}, {{b}};"),
                &[kind; 3],
            ));
        }
        for name in ["mad.lo", "mad.hi", "sad"] {
            list.push(plain(&format!("{name}.{kind}"), &[kind; 4]));
        }
        if kind.starts_with('s') {
            list.push(plain(&format!("abs.{kind}"), &[kind; 2]));
            list.push(plain(&format!("neg.{kind}"), &[kind; 2]));
        }
        list.push(plain(&format!("shr.{kind}"), &[kind, kind, "u32"]));
        for operator in ["eq", "ne", "lt", "le", "gt", "ge"] {
            list.push(plain(&format!("setp.{operator}.{kind}"), &["pred", kind, kind]));
        }
    }
    for (kind, wide) in [("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")] {
        list.push(plain(&format!("mul.wide.{kind}"), &[wide, kind, kind]));
        list.push(plain(&format!("mad.wide.{kind}"), &[wide, kind, kind, wide]));
    }
    for name in ["add.sat.s32", "sub.sat.s32", "mul24.lo.s32", "mul24.hi.s32", "mul24.lo.u32", "mul24.hi.u32"]
    {
        list.push(plain(name, &["s32"; 3]));
    }
    for name in ["mad.hi.sat.s32", "mad24.lo.s32", "mad24.hi.s32", "mad24.lo.u32", "mad24.hi.sat.s32"] {
        list.push(plain(name, &["s32"; 4]));
    }
    for (a, b) in [("u32", "u32"), ("u32", "s32"), ("s32", "u32"), ("s32", "s32")] {
        for name in ["dp4a", "dp2a.lo", "dp2a.hi"] {
            list.push(plain(&format!("{name}.{a}.{b}"), &["u32"; 4]));
        }
    }
    for name in
        ["add.u16x2", "add.s16x2", "min.u16x2", "max.s16x2", "min.s16x2", "max.relu.s16x2", "min.relu.s32"]
    {
        list.push(plain(name, &["u32"; 3]));
    }
    for kind in ["u32", "u64"] {
        list.push(form(
            format!("add.cc.{kind} {{d}}, {{a}}, {{b}}; addc.{kind} {{d}}, {{d}}, {{c}};"),
            &[kind; 4],
        ));
        list.push(form(format!("sub.cc.{kind} {{d}}, {{a}}, {{b}}; subc.cc.{kind} {{d}}, {{d}}, {{c}}; subc.{kind} {{d}}, {{d}}, 0;"), &[kind; 4]));
        list.push(form(format!("mad.lo.cc.{kind} {{d}}, {{a}}, {{b}}, {{c}}; madc.hi.cc.{kind} {{d}}, {{a}}, {{b}}, {{d}}; addc.{kind} {{d}}, {{d}}, {{c}};"), &[kind; 4]));
    }
}

fn bit_forms(list: &mut Vec<Form>) {
    for kind in ["b16", "b32", "b64"] {
        for name in ["and", "or", "xor"] {
            list.push(plain(&format!("{name}.{kind}"), &[kind; 3]));
        }
        list.push(plain(&format!("not.{kind}"), &[kind; 2]));
        list.push(plain(&format!("cnot.{kind}"), &[kind; 2]));
        list.push(plain(&format!("shl.{kind}"), &[kind, kind, "u32"]));
        list.push(plain(&format!("selp.{kind}"), &[kind, kind, kind, "pred"]));
        list.push(plain(&format!("slct.{kind}.s32"), &[kind, kind, kind, "s32"]));
        list.push(plain(&format!("slct.{kind}.f32"), &[kind, kind, kind, "f32"]));
    }
    for (name, kind) in [("popc.b32", "b32"), ("popc.b64", "b64"), ("clz.b32", "b32"), ("clz.b64", "b64")] {
        list.push(plain(name, &["u32", kind]));
    }
    list.push(plain("brev.b32", &["b32"; 2]));
    list.push(plain("brev.b64", &["b64"; 2]));
    for kind in ["u32", "s32", "u64", "s64"] {
        list.push(plain(&format!("bfind.{kind}"), &["u32", kind]));
        list.push(plain(&format!("bfind.shiftamt.{kind}"), &["u32", kind]));
        list.push(plain(&format!("bfe.{kind}"), &[kind, kind, "u32", "u32"]));
    }
    list.push(form("bfi.b32 {d}, {a}, {b}, {c}, 7;", &["b32", "b32", "b32", "u32"]));
    list.push(form("bfi.b32 {d}, {a}, {b}, 5, {c};", &["b32", "b32", "b32", "u32"]));
    list.push(form("bfi.b64 {d}, {a}, {b}, {c}, 40;", &["b64", "b64", "b64", "u32"]));
    for mode in ["l.clamp", "l.wrap", "r.clamp", "r.wrap"] {
        list.push(plain(&format!("shf.{mode}.b32"), &["b32", "b32", "b32", "u32"]));
    }
    for mode in ["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"] {
        list.push(plain(&format!("prmt.b32{mode}"), &["b32"; 4]));
    }
    for table in [0x80, 0x96, 0xe8, 0x1b, 0xca, 0xfe] {
        list.push(form(format!("lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};"), &["b32"; 4]));
    }
    for mode in ["clamp", "wrap"] {
        list.push(plain(&format!("szext.{mode}.u32"), &["u32"; 3]));
        list.push(plain(&format!("szext.{mode}.s32"), &["s32", "s32", "u32"]));
        list.push(plain(&format!("bmsk.{mode}.b32"), &["b32", "u32", "u32"]));
    }
    list.push(form(
        "and.b32 {b}, {b}, 31; rem.s32 {c}, {c}, 9; fns.b32 {d}, {a}, {b}, {c};",
        &["b32", "b32", "b32", "s32"],
    ));
    for parts in [("b32", "b16", 2), ("b64", "b32", 2)] {
        let (whole, part, _) = parts;
        list.push(form(format!("mov.{whole} {{d}}, {{{{a}}, {{b}}}};"), &[whole, part, part]));
    }
    list.push(form(
        "{.reg .b16 w, x, y, z; mov.b64 {w, x, y, z}, {a}; mov.b64 {d}, {z, w, x, y};}",
        &["b64", "b64"],
    ));
}

fn float_forms(list: &mut Vec<Form>) {
    for mode in ["rn", "rz", "rm", "rp"] {
        for ftz in ["", ".ftz"] {
            for sat in ["", ".sat"] {
                for name in ["add", "sub", "mul"] {
                    list.push(plain(&format!("{name}.{mode}{ftz}{sat}.f32"), &["f32"; 3]));
                }
                list.push(plain(&format!("fma.{mode}{ftz}{sat}.f32"), &["f32"; 4]));
            }
            list.push(plain(&format!("div.{mode}{ftz}.f32"), &["f32"; 3]));
            list.push(plain(&format!("sqrt.{mode}{ftz}.f32"), &["f32"; 2]));
            list.push(plain(&format!("rcp.{mode}{ftz}.f32"), &["f32"; 2]));
        }
        for name in ["add", "sub", "mul", "div"] {
            list.push(plain(&format!("{name}.{mode}.f64"), &["f64"; 3]));
        }
        list.push(plain(&format!("fma.{mode}.f64"), &["f64"; 4]));
        list.push(plain(&format!("sqrt.{mode}.f64"), &["f64"; 2]));
        list.push(plain(&format!("rcp.{mode}.f64"), &["f64"; 2]));
    }
    for name in ["min", "max"] {
        for options in ["", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs"] {
            list.push(plain(&format!("{name}{options}.f32"), &["f32"; 3]));
        }
        list.push(plain(&format!("{name}.f64"), &["f64"; 3]));
    }
    for name in ["abs.f32", "abs.ftz.f32", "neg.f32", "neg.ftz.f32"] {
        list.push(plain(name, &["f32"; 2]));
    }
    list.push(plain("abs.f64", &["f64"; 2]));
    list.push(plain("neg.f64", &["f64"; 2]));
    list.push(plain("copysign.f32", &["f32"; 3]));
    list.push(plain("copysign.f64", &["f64"; 3]));
    for class in ["finite", "infinite", "number", "notanumber", "normal", "subnormal"] {
        list.push(plain(&format!("testp.{class}.f32"), &["pred", "f32"]));
        list.push(plain(&format!("testp.{class}.f64"), &["pred", "f64"]));
    }
    let operators =
        ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];
    for operator in operators {
        for kind in ["f32", "ftz.f32", "f64", "f16", "ftz.f16", "bf16"] {
            let class = kind.rsplit('.').next().unwrap();
            list.push(plain(&format!("setp.{operator}.{kind}"), &["pred", class, class]));
        }
        list.push(plain(&format!("set.{operator}.u32.f32"), &["u32", "f32", "f32"]));
        list.push(plain(&format!("set.{operator}.and.f32.f32"), &["f32", "f32", "f32", "pred"]));
    }
    list.push(form(
        "{.reg .pred p, q; setp.lt.xor.s32 p|q, {a}, {b}, {c}; xor.pred p, p, q; and.pred {d}, p, !q;}",
        &["pred", "s32", "s32", "pred"],
    ));
}

fn half_forms(list: &mut Vec<Form>) {
    for kind in ["f16", "f16x2", "bf16", "bf16x2"] {
        let class = [kind; 4];
        let brain = kind.starts_with('b');
        let options: &[&str] = if brain { &[""] } else { &["", ".ftz", ".sat", ".ftz.sat"] };
        for option in options {
            for name in ["add", "sub", "mul"] {
                list.push(plain(
                    &format!("{name}{}{option}.{kind}", if brain { ".rn" } else { "" }),
                    &class[..3],
                ));
            }
            list.push(plain(&format!("fma.rn{option}.{kind}"), &class));
        }
        list.push(plain(&format!("fma.rn.relu.{kind}"), &class));
        for name in ["min", "max"] {
            for option in ["", ".NaN"] {
                list.push(plain(&format!("{name}{option}.{kind}"), &class[..3]));
            }
        }
        list.push(plain(&format!("neg.{kind}"), &class[..2]));
        list.push(plain(&format!("abs.{kind}"), &class[..2]));
    }
}

fn conversion_forms(list: &mut Vec<Form>) {
    let all = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"];
    for from in all {
        for to in all {
            if from != to {
                list.push(plain(&format!("cvt.{to}.{from}"), &[to, from]));
            }
            // `.sat` is allowed where it can do something.
            let bits = |kind: &str| kind[1..].parse::<u32>().unwrap();
            let fits = match (&from[..1], &to[..1]) {
                ("s", "u") => false,
                ("u", "s") => bits(from) < bits(to),
                _ => bits(from) <= bits(to),
            };
            if !fits {
                list.push(plain(&format!("cvt.sat.{to}.{from}"), &[to, from]));
            }
        }
        for to in ["f32", "f64", "f16"] {
            for mode in ["rn", "rz", "rm", "rp"] {
                list.push(plain(&format!("cvt.{mode}.{to}.{from}"), &[to, from]));
            }
        }
        for float in ["f32", "f64", "f16"] {
            for mode in ["rni", "rzi", "rmi", "rpi"] {
                list.push(plain(&format!("cvt.{mode}.{from}.{float}"), &[from, float]));
            }
        }
        list.push(plain(&format!("cvt.rzi.ftz.{from}.f32"), &[from, "f32"]));
    }
    for mode in ["rni", "rzi", "rmi", "rpi"] {
        for kind in ["f32", "f64", "f16"] {
            list.push(plain(&format!("cvt.{mode}.{kind}.{kind}"), &[kind, kind]));
        }
        list.push(plain(&format!("cvt.{mode}.ftz.sat.f32.f32"), &["f32", "f32"]));
    }
    for mode in ["rn", "rz", "rm", "rp"] {
        list.push(plain(&format!("cvt.{mode}.f32.f64"), &["f32", "f64"]));
        list.push(plain(&format!("cvt.{mode}.ftz.sat.f32.f64"), &["f32", "f64"]));
        list.push(plain(&format!("cvt.{mode}.f16.f32"), &["f16", "f32"]));
        list.push(plain(&format!("cvt.{mode}.f16.f64"), &["f16", "f64"]));
    }
    for (opcode, to, from) in [
        ("cvt.f64.f32", "f64", "f32"),
        ("cvt.ftz.f64.f32", "f64", "f32"),
        ("cvt.f32.f16", "f32", "f16"),
        ("cvt.f64.f16", "f64", "f16"),
        ("cvt.f32.bf16", "f32", "bf16"),
        ("cvt.rn.bf16.f32", "bf16", "f32"),
        ("cvt.rz.bf16.f32", "bf16", "f32"),
        ("cvt.rn.relu.f16.f32", "f16", "f32"),
        ("cvt.rn.relu.bf16.f32", "bf16", "f32"),
        ("cvt.rn.sat.f16.f32", "f16", "f32"),
        ("cvt.sat.f32.f32", "f32", "f32"),
        ("cvt.ftz.f32.f32", "f32", "f32"),
        ("cvt.ftz.sat.f32.f32", "f32", "f32"),
        ("cvt.sat.f64.f64", "f64", "f64"),
    ] {
        list.push(plain(opcode, &[to, from]));
    }
    for kind in ["f16x2", "bf16x2"] {
        for option in ["rn", "rz", "rn.relu", "rz.relu"] {
            list.push(plain(&format!("cvt.{option}.{kind}.f32"), &[kind, "f32", "f32"]));
        }
    }
    list.push(plain("cvt.pack.sat.u16.s32", &["u32", "s32", "s32"]));
    list.push(plain("cvt.pack.sat.s16.s32", &["u32", "s32", "s32"]));
    list.push(plain("cvt.pack.sat.u8.s32.b32", &["u32", "s32", "s32", "b32"]));
    list.push(plain("cvt.pack.sat.s8.s32.b32", &["u32", "s32", "s32", "b32"]));
}

fn lane_forms(list: &mut Vec<Form>) {
    for mode in ["up", "down", "bfly", "idx"] {
        for clamp in ["0", "31", "0x1c07", "0x101f", "0x1800"] {
            list.push(form(
                format!("{{.reg .pred p; shfl.sync.{mode}.b32 {{d}}|p, {{a}}, {{b}}, {clamp}, -1; @p add.u32 {{d}}, {{d}}, 1;}}"),
                &["b32", "b32", "b32"],
            ));
        }
    }
    for mode in ["all", "any", "uni"] {
        list.push(plain(&format!("vote.sync.{mode}.pred"), &["pred", "pred"]));
        list.last_mut().unwrap().text = format!("vote.sync.{mode}.pred {{d}}, {{a}}, -1;");
    }
    list.push(form("vote.sync.ballot.b32 {d}, {a}, -1;", &["b32", "pred"]));
    list.push(form("and.b32 {a}, {a}, 3; match.any.sync.b32 {d}, {a}, -1;", &["b32", "b32"]));
    list.push(form(
        "and.b64 {a}, {a}, 1; {.reg .pred p; match.all.sync.b64 {d}|p, {a}, -1; @p add.u32 {d}, {d}, 1;}",
        &["b32", "b64"],
    ));
    for kind in
        ["add.u32", "min.u32", "max.u32", "add.s32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32"]
    {
        list.push(form(format!("redux.sync.{kind} {{d}}, {{a}}, -1;"), &["b32", "b32"]));
    }
}

/// Every form whose result is exact.
pub fn forms() -> Vec<Form> {
    let mut list = Vec::new();
    integer_forms(&mut list);
    bit_forms(&mut list);
    float_forms(&mut list);
    half_forms(&mut list);
    conversion_forms(&mut list);
    lane_forms(&mut list);
    list
}

/// The module: kernel `k0`, `k1`, … for the forms in order; parameters: three inputs and the output.
pub fn module(forms: &[Form]) -> String {
    let mut text = String::from(".version 8.8\n.target sm_90\n.address_size 64\n");
    for (index, form) in forms.iter().enumerate() {
        let _ = write!(
            text,
            "// {}\n.visible .entry k{index}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)\n{{\n\
             .reg .b32 %i<4>; .reg .b64 %at<6>; .reg .pred %t<4>;\n\
             mov.u32 %i0, %ctaid.x; mov.u32 %i1, %ntid.x; mov.u32 %i2, %tid.x; mad.lo.u32 %i0, %i0, %i1, %i2;\n\
             mul.wide.u32 %at0, %i0, 8;\n",
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
            let _ = writeln!(text, "ld.param.u64 %at1, [p{operand}]; add.u64 %at1, %at1, %at0;");
            let _ = if bytes == 0 {
                writeln!(
                    text,
                    "ld.global.u32 %i3, [%at1]; and.b32 %i3, %i3, 1; setp.ne.u32 %{operand}, %i3, 0;"
                )
            } else {
                writeln!(text, "ld.global.b{} %{operand}, [%at1];", bytes * 8)
            };
        }
        let (_, bytes, _) = class(form.kinds[0]);
        let store = match bytes {
            0 => "selp.u32 %i3, 1, 0, %d; st.global.u32 [%at2], %i3;".to_owned(),
            // All of the register: the extension counts too.
            1 => "st.global.b16 [%at2], %d;".to_owned(),
            bytes => format!("st.global.b{} [%at2], %d;", bytes * 8),
        };
        let _ =
            writeln!(text, "{body}\nld.param.u64 %at2, [pd]; add.u64 %at2, %at2, %at0;\n{store}\nret;\n}}");
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
fn all_forms_agree_with_an_h200() {
    let forms = forms();
    let known = include_str!("../data/h200.txt").lines().filter(|line| !line.starts_with('#'));
    let known: Vec<(&str, &str)> = known.filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(known.len(), forms.len(), "the forms have changed: make h200.txt anew");
    let mut wrong = Vec::new();
    for ((form, results), (wanted, text)) in forms.iter().zip(run(&module(&forms), &forms)).zip(known) {
        assert_eq!(form.text, text, "the forms have changed: make h200.txt anew");
        if format!("{:016x}", hash(&results)) != wanted {
            wrong.push(text);
        }
    }
    assert!(wrong.is_empty(), "{} of {} forms differ: {wrong:#?}", wrong.len(), forms.len());
}

#[test]
fn the_handlers_for_older_cpus_agree_too() {
    let myself = std::env::current_exe().unwrap();
    let status = std::process::Command::new(myself)
        .args(["forms::all_forms_agree_with_an_h200", "--exact"])
        .env("CUDA_EMULATOR_JIT", "base")
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
}
