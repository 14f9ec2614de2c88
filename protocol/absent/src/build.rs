// SPDX-License-Identifier: Apache-2.0 OR MIT

//! For build scripts: the functions in assembly, and tables of refusals.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

/// Where the arguments of a call are put for the function that answers it, and the jump to it. `{answer}` stands for its name.
const X86_64: &str = "\
to_answer:
    .cfi_startproc
    subq $56, %rsp
    .cfi_adjust_cfa_offset 56
    movq %rdi, (%rsp)
    movq %rsi, 8(%rsp)
    movq %rdx, 16(%rsp)
    movq %rcx, 24(%rsp)
    movq %r8, 32(%rsp)
    movq %r9, 40(%rsp)
    movl %eax, %edi
    movq %rsp, %rsi
    call {answer}@PLT
    addq $56, %rsp
    .cfi_adjust_cfa_offset -56
    ret
    .cfi_endproc
";
const AARCH64: &str = "\
to_answer:
    .cfi_startproc
    stp x29, x30, [sp, #-64]!
    .cfi_def_cfa_offset 64
    .cfi_offset 29, -64
    .cfi_offset 30, -56
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    mov w0, w16
    add x1, sp, #16
    bl {answer}
    ldp x29, x30, [sp], #64
    .cfi_def_cfa_offset 0
    .cfi_restore 29
    .cfi_restore 30
    ret
    .cfi_endproc
";

/// How the functions are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// A function of the same name in the library's sources wins. The names are all those of the library.
    Weak,
    /// The linker refuses a function of the same name. The names are those without a function.
    Global,
}

/// Defines a function for each name. It calls the function `answer` of the library, which is
/// `extern "C" fn(position: u32, arguments: &Arguments) -> i32`, and returns its result. `position` is that of the name in `names`.
///
/// # Panics
///
/// If the assembler fails, or if the target's processor is not known.
pub fn define<'a>(answer: &str, binding: Binding, names: impl IntoIterator<Item = &'a str>) {
    let binding = if binding == Binding::Weak { "weak" } else { "globl" };
    let (common, start) = match variable("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => (X86_64, "movl $#, %eax\n    jmp to_answer"),
        // A position has at most 16 bits.
        "aarch64" => (AARCH64, "mov w16, ##\n    b to_answer"),
        other => panic!("no instructions known for {other:?}: add them here"),
    };
    let mut assembly = format!(".text\n.p2align 4\n{}", common.replace("{answer}", answer));
    for (position, name) in names.into_iter().enumerate() {
        assert!(position < 1 << 16, "too many names");
        let start = match start.split_once("##") {
            Some((before, after)) => format!("{before}#{position}{after}"),
            None => start.replace('#', &position.to_string()),
        };
        writeln!(assembly, ".{binding} {name}\n.type {name}, %function\n{name}:\n    {start}")
            .expect("writing to a string");
    }
    assembly.push_str(".section .note.GNU-stack,\"\",%progbits\n");
    let file = PathBuf::from(variable("OUT_DIR")).join("absent.S");
    fs::write(&file, assembly).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    cc::Build::new().file(&file).compile(&format!("{answer}_names"));
}

/// Returns Rust source of a slice with a [`Refusal`](crate::Refusal) for each name, which the text `refused` of
/// `protocol/names/refused.txt` describes. All others answer `CUDA_ERROR_NOT_SUPPORTED`.
///
/// # Panics
///
/// If a line of `refused` is none.
pub fn refusals<'a>(names: impl IntoIterator<Item = &'a str>, refused: &str) -> String {
    let known: BTreeMap<&str, &str> = refused.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut source = String::from("&[\n");
    for name in names {
        let (checks, code) = match known.get(name) {
            Some(rule) => rule.rsplit_once(' ').unwrap_or(("", rule)),
            None => ("", "801"),
        };
        let checks: Option<Vec<String>> = checks.split_whitespace().map(check).collect();
        let checks = checks.unwrap_or_else(|| panic!("refused.txt: {name}")).join(", ");
        writeln!(source, "    Refusal {{ name: {name:?}, checks: &[{checks}], code: {code} }},")
            .expect("writing to a string");
    }
    source + "]\n"
}

/// Returns a check of `refused.txt` as a value of [`Check`](crate::Check).
fn check(rule: &str) -> Option<String> {
    for (sign, kind) in [('!', "NotNull"), ('?', "Device"), ('~', "NotZero")] {
        if let Some((argument, code)) = rule.split_once(sign) {
            return Some(format!("Check::{kind}({argument}, {code})"));
        }
    }
    if let Some((argument, rest)) = rule.split_once('&') {
        let (mask, code) = rest.split_once(':')?;
        return Some(format!("Check::Bits({argument}, {mask}, {code})"));
    }
    let (argument, rest) = rule.split_once('=')?;
    let (values, code) = rest.split_once(':')?;
    Some(format!("Check::OneOf({argument}, &[{values}], {code})"))
}

/// Reads a file, and lets Cargo run the script again when it changes.
///
/// # Panics
///
/// If the file cannot be read.
pub fn read(path: &str) -> String {
    println!("cargo::rerun-if-changed={path}");
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

/// Writes a file of the folder for generated sources.
///
/// # Panics
///
/// If the file cannot be written.
pub fn write(name: &str, text: &str) {
    let path = PathBuf::from(variable("OUT_DIR")).join(name);
    fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

/// Returns a variable that Cargo sets for build scripts.
///
/// # Panics
///
/// Outside of a build script.
pub fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("cargo sets {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_become_refusals() {
        let refused = "cuOne 0!1 1?101 2&0x3:4 3=1,2:5 801\ncuTwo 4~7 100\ncuThree 200\n";
        let source = refusals(["cuOne", "cuTwo", "cuThree", "cuFour"], refused);
        let expected = "&[\n    Refusal { name: \"cuOne\", checks: &[Check::NotNull(0, 1), Check::Device(1, 101), \
                        Check::Bits(2, 0x3, 4), Check::OneOf(3, &[1,2], 5)], code: 801 },\n    \
                        Refusal { name: \"cuTwo\", checks: &[Check::NotZero(4, 7)], code: 100 },\n    \
                        Refusal { name: \"cuThree\", checks: &[], code: 200 },\n    \
                        Refusal { name: \"cuFour\", checks: &[], code: 801 },\n]\n";
        assert_eq!(source, expected);
    }
}
