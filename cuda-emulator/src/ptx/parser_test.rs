// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::ast::{Base, Immediate, Initializer, Operand, Statement};
use super::parse;
use crate::code::program::Program;
use crate::symbols::Reference;

const HEAD: &str = ".version 9.0\n.target sm_90a, debug\n.address_size 64\n";

fn body(text: &str) -> Vec<Operand<'_>> {
    // Leaked so that the tree can outlive this function; tests only.
    let text = Box::leak(format!("{HEAD}.entry k() {{ {text} }}").into_boxed_str());
    let module = parse(text).unwrap();
    let statement = module.functions.into_iter().next().unwrap().body.unwrap().remove(0);
    match statement {
        Statement::Instruction(instruction) => instruction.operands,
        other => panic!("{other:?}"),
    }
}

#[test]
fn operands_of_every_shape() {
    assert_eq!(
        body(
            "x.y %r1, !%p1, %p1|%p2, {%a, 3}, [%rd1+-8], [sym+4], [12], sym+8, sym[1+2], -5, 0f3F800000, -1.5;"
        ),
        [
            Operand::Name("%r1"),
            Operand::Not("%p1"),
            Operand::Pair("%p1", "%p2"),
            Operand::Vector(vec![Operand::Name("%a"), Operand::Immediate(Immediate::Int(3))]),
            Operand::Address { base: Base::Name("%rd1"), offset: -8 },
            Operand::Address { base: Base::Name("sym"), offset: 4 },
            Operand::Address { base: Base::Absolute, offset: 12 },
            Operand::Offset("sym", 8),
            Operand::Element("sym", 3),
            Operand::Immediate(Immediate::Int(-5_i64 as u64)),
            Operand::Immediate(Immediate::F32(0x3f80_0000)),
            Operand::Immediate(Immediate::F64((-1.5_f64).to_bits())),
        ]
    );
    assert_eq!(
        body("x (1 + 2 * 3) << 4 | 0xF, 017, 0b101U;"),
        [
            Operand::Immediate(Immediate::Int(0x7f)),
            Operand::Immediate(Immediate::Int(15)),
            Operand::Immediate(Immediate::Int(5)),
        ]
    );
}

#[test]
fn module_head_and_variables() {
    let text = format!(
        "{HEAD}.visible .global .align 8 .b8 a[2][3] = {{{{1, 2}}, {{0xFF00(b)}}}};\n\
         .global .attribute(.managed) .u64 b = generic(a)+4;\n.extern .shared .align 16 .b8 s[];\n\
         .entry k(.param .u64 .ptr .global .align 16 k_0, .param .align 4 .b8 k_1[12]) .maxntid 64, 2, 1 {{ ret; }}"
    );
    let module = parse(&text).unwrap();
    assert_eq!((module.version, module.target), (90, 90));
    assert_eq!(module.variables[0].bytes(), Some(6));
    assert!(module.variables[1].managed);
    assert!(matches!(
        module.variables[1].initializer,
        Some(Initializer::Address { name: "a", addend: 4, mask: None })
    ));
    assert_eq!(module.variables[2].bytes(), Some(0));
    let kernel = &module.functions[0];
    assert_eq!(kernel.max_threads, Some(128));
    assert_eq!(kernel.signature.params[1].bytes(), Some(12));
    assert_eq!(kernel.signature.params[1].align, 4);
}

#[test]
fn errors_name_the_line() {
    let cases = [
        ("", "no `.version`"),
        (".version 9.0\n.entry k() {", "line 2: a statement expected"),
        (".version 9.0\n\n@", "line 3: a directive expected"),
        (".version 9.0\n.foo", "line 2: unsupported directive `.foo`"),
        (".version 9.0\n/* x", "line 2: comment without end"),
        (".version 9.0\n.global .align 3 .b8 x;", "line 2: alignment 3"),
        (".version 9.0\n.global .u32 x = 1/0;", "line 2: division by zero"),
        (".version 9.0 \u{e9}", "line 1: unexpected byte"),
    ];
    for (text, message) in cases {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(message), "{error} should contain {message}");
    }
    let deep = format!("{HEAD}.global .u32 x = {};", "(".repeat(100_000));
    assert!(parse(&deep).unwrap_err().message.contains("nested"));
}

#[test]
fn references_are_global_and_single() {
    let text = format!("{HEAD}.visible .global .texref a, b;\n.extern .global .surfref c;");
    let module = parse(&text).unwrap();
    let kinds: Vec<_> = module.variables.iter().map(|variable| variable.reference).collect();
    assert_eq!(kinds, [Some(Reference::Texture), Some(Reference::Texture), Some(Reference::Surface)]);
    assert_eq!(module.variables[0].bytes(), Some(8));
    for refused in [
        ".const .texref a;",
        ".shared .surfref a;",
        ".global .samplerref a;",
        ".global .texref a[4];",
        ".global .texref a = { normalized_coords = 1 };",
        ".entry k(.param .texref a) { ret; }",
    ] {
        assert!(parse(&format!("{HEAD}{refused}")).is_err(), "{refused}");
    }
}

#[test]
fn instructions_take_references_of_their_kind() {
    let load = |name: &str, instruction: &str| {
        let body = format!(".reg .b32 %r<5>; .reg .f32 %f<5>; {instruction} ret;");
        let text = format!("{HEAD}.global .{name} a;\n.global .u64 v;\n.visible .entry k() {{ {body} }}");
        Program::load(&text).is_ok()
    };
    let fetch = "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [a, {%r1}];";
    let store = "sust.b.1d.b32.trap [a, {%r1}], {%r2};";
    assert!(load("texref", fetch) && load("surfref", store));
    assert!(load("texref", "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [a, %r1];"), "without braces");
    assert!(!load("surfref", fetch) && !load("texref", store));
    assert!(!load("texref", "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [v, {%r1}];"));
    assert!(load("texref", "txq.width.b32 %r1, [a];") && !load("texref", "suq.width.b32 %r1, [a];"));
}
