// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sources that are generated from the rows, for build scripts.

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::{Answer, Body, Call, Kind, Library, Number};

/// Returns Rust source of the guest's entry points of a library: one exported function per row, except rows for which
/// `is_written` is true. The functions call `crate::forward` and `crate::refuse` of the including crate; `front` is an
/// expression for the library there.
pub fn entry_points(library: &Library, front: &str, is_written: &dyn Fn(&str) -> bool) -> String {
    let mut source = String::new();
    for (index, function) in library.functions.iter().enumerate().filter(|(_, function)| !function.is_form())
    {
        let name = &function.name;
        // Writing to a string does not fail.
        let _ = match &function.body {
            Body::Custom | Body::Forward(_) if is_written(name) => Ok(()),
            Body::Custom | Body::Refuse(_) => writeln!(
                source,
                "/// Not served.\n#[unsafe(no_mangle)]\npub extern \"C\" fn {name}() -> i32 {{ \
                 crate::refuse({front}, {index}) }}"
            ),
            Body::Forward(call) => writeln!(source, "{}", entry_point(library, index, call, front)),
        };
    }
    source
}

/// Returns the words of Rust source, except those in comments and strings. They include the name of each hand-written
/// function, even if a macro generates it.
pub fn words(source: &str) -> HashSet<&str> {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = code.flat_map(|line| line.split('"').step_by(2));
    code.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

/// Returns Rust source of a library without its functions. Functions for which `is_written` is false return
/// `not_supported`; those that do not return a status are left out.
pub fn stubs(library: &Library, is_written: &dyn Fn(&str) -> bool) -> String {
    let exported = library.functions.iter().filter(|function| !function.is_form());
    let missing = exported.filter(|function| match &function.body {
        Body::Forward(call) => call.answer == Answer::Status && !is_written(&function.name),
        _ => !is_written(&function.name),
    });
    let stub = |function: &crate::Function| {
        format!(
            "/// Not supported.\n#[unsafe(no_mangle)]\npub extern \"C\" fn {}() -> i32 {{ {} }}\n",
            function.name, library.statuses.not_supported
        )
    };
    missing.map(stub).collect()
}

fn entry_point(library: &Library, index: usize, call: &Call, front: &str) -> String {
    let (name, handles) = (&library.functions[index].name, &library.handles);
    let (mut parameters, mut slots) = (String::new(), String::new());
    for (position, parameter) in call.parameters.iter().enumerate() {
        let (kind, slot) = match parameter.kind {
            // C has no such parameter.
            Kind::Noted(_) | Kind::Measured(_) => {
                slots.push_str("0, ");
                continue;
            }
            Kind::Value(number) => (c_type(number).to_owned(), slot(number, position)),
            Kind::Structure(bytes) => {
                (format!("crate::Structure<{bytes}>"), format!("&raw const a{position} as u64"))
            }
            Kind::Handle { kind, .. } | Kind::End(kind) if handles[kind].is_int => {
                ("u32".to_owned(), format!("u64::from(a{position})"))
            }
            Kind::Handle { kind, .. } | Kind::End(kind) if handles[kind].structure > 0 => {
                ("u64".to_owned(), format!("crate::number_in(a{position})"))
            }
            _ => ("u64".to_owned(), format!("a{position}")),
        };
        let _ = write!(parameters, "a{position}: {kind}, ");
        let _ = write!(slots, "{slot}, ");
    }
    let (answer, convert) = match call.answer {
        Answer::Status => ("i32", " as i32"),
        Answer::Number(number) => (c_type(number), convert(number)),
        Answer::Text => ("*const std::ffi::c_char", " as *const std::ffi::c_char"),
        Answer::Nothing => ("()", ""),
    };
    let call = format!("unsafe {{ crate::forward({front}, {index}, &[{slots}]) }}");
    let body = match convert {
        _ if answer == "()" => format!("{call};"),
        "" => call,
        convert => format!("({call}){convert}"),
    };
    let answer = if answer == "()" { String::new() } else { format!(" -> {answer}") };
    format!(
        "/// As NVIDIA's.\n///\n/// # Safety\n///\n/// As NVIDIA's.\n#[unsafe(no_mangle)]\n\
         pub unsafe extern \"C\" fn {name}({parameters}){answer} {{\n\
         \x20   // SAFETY: the row describes NVIDIA's function; its contract for these arguments is this function's.\n\
         \x20   {body}\n}}"
    )
}

fn c_type(number: Number) -> &'static str {
    match number {
        Number::I8 => "i8",
        Number::U8 => "u8",
        Number::I16 => "i16",
        Number::U16 => "u16",
        Number::I32 => "i32",
        Number::U32 => "u32",
        Number::I64 => "i64",
        Number::U64 => "u64",
        Number::F32 => "f32",
        // A cuComplex fills one vector register, as a double does.
        Number::F64 | Number::C32 => "f64",
        // Passed by value, this is two doubles (`parse`), and no function returns one.
        Number::C64 => "[f64; 2]",
    }
}

fn slot(number: Number, position: usize) -> String {
    match number {
        Number::F32 => format!("u64::from(a{position}.to_bits())"),
        Number::F64 | Number::C32 => format!("a{position}.to_bits()"),
        _ => format!("a{position} as u64"),
    }
}

fn convert(number: Number) -> &'static str {
    match number {
        Number::I8 => " as i8",
        Number::U8 => " as u8",
        Number::I16 => " as i16",
        Number::U16 => " as u16",
        Number::I32 => " as i32",
        Number::U32 => " as u32",
        Number::I64 => " as i64",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::library;

    #[test]
    fn words_are_those_of_code() {
        let words =
            words("make! { cublasOne cublasTwo } // cublasThree\nlet x = \"cublasFour\"; cublasFive();");
        assert!(["cublasOne", "cublasTwo", "cublasFive"].iter().all(|name| words.contains(name)));
        assert!(!["cublasThree", "cublasFour"].iter().any(|name| words.contains(name)));
    }

    #[test]
    fn a_stub_answers_a_status_only() {
        let rows = "status success=0 not_supported=15\nf(n: i32)\nname(n: i32) -> string\ng(n: i32)\nf@Other(n: i32)\n";
        let source = stubs(&library("x", rows, "").expect("valid"), &|name| name == "g");
        assert!(source.contains("fn f() -> i32 { 15 }"), "{source}");
        assert!(!source.contains("fn name(") && !source.contains("fn g("), "{source}");
        assert_eq!(source.matches("fn ").count(), 1, "{source}");
    }

    #[test]
    fn a_note_is_no_parameter() {
        let rows = "handle H\ng(h: H, n: i32) notes(h.n=n)\nf(h: H, x: out f64[m], m: note h.n)\n";
        let source = entry_points(&library("x", rows, "").expect("valid"), "&X", &|_| false);
        assert!(source.contains("fn f(a0: u64, a1: u64, ) -> i32"), "{source}");
        assert!(source.contains("&[a0, a1, 0, ]"), "{source}");
    }

    #[test]
    fn entry_points_have_the_types_of_c() {
        let rows = "handle H\nf(h: H, n: i32, x: f32, p: ptr)\ng refuse \"no\"\nh custom\nf@Other(h: H)\n";
        let source = entry_points(&library("x", rows, "").expect("valid"), "&X", &|name| name == "h");
        assert!(source.contains("fn f(a0: u64, a1: i32, a2: f32, a3: u64, ) -> i32"), "{source}");
        assert!(source.contains("&[a0, a1 as u64, u64::from(a2.to_bits()), a3, ]"), "{source}");
        assert!(source.contains("fn g() -> i32 { crate::refuse(&X, 1) }"), "{source}");
        assert!(!source.contains("fn h(") && !source.contains("Other"), "{source}");
        let source =
            entry_points(&library("x", "handle S struct 64\nf(s: S)\n", "").expect("valid"), "&X", &|_| {
                false
            });
        assert!(
            source.contains("fn f(a0: u64, ) -> i32") && source.contains("&[crate::number_in(a0), ]"),
            "{source}"
        );
    }
}
