// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exported functions of NVIDIA's libraries in the guest.

use std::fmt::Write as _;

use anyhow::Result;
use cuda_api_description::libraries::{Description, Export};
use cuda_library_rows::{Answer, Body, Call, Function, Kind, Library, Number, Parameter};

use crate::file::{File, OWN};
use crate::libraries::{constant, module};

/// The rows that the sources are made of.
const ROWS: &str = "protocol/libraries/rows";
/// Names of parameters that are Rust's own words.
const KEYWORDS: [&str; 4] = ["type", "in", "ref", "mod"];

/// A file per library, and the one that names them.
pub fn files(all: &[Description]) -> Result<Vec<File>> {
    let mut files = all.iter().map(file).collect::<Result<Vec<_>>>()?;
    let (mut modules, mut fronts, mut by_hand) = (String::new(), String::new(), String::new());
    for Description { library, exports } in all {
        let (name, constant) = (module(library.name), constant(library.name));
        // Writing to a string does not fail.
        let _ = writeln!(modules, "mod {name};");
        let _ = writeln!(
            fronts,
            "/// NVIDIA's {}.\npub static {constant}: Front = Front::new(&cuda_library_rows::{constant});",
            library.name
        );
        let written = library.functions.iter().zip(exports).filter(|(_, export)| **export == Export::ByHand);
        by_hand.extend(written.map(|(function, _)| format!("fn {}();", function.name)));
    }
    let names = by_hand.replace("fn ", "").replace("();", ",");
    let count = by_hand.matches("fn ").count();
    let code = format!(
        "#![allow(non_snake_case, clippy::too_many_arguments)]\n\n{modules}\nuse crate::Front;\n\n{fronts}\n\
         /// The functions that are written by hand, of all libraries. Without one of them this does not link.\n\
         #[test]\n#[rustfmt::skip]\nfn functions_are_written_by_hand() {{\n    unsafe extern \"C\" {{ {by_hand} }}\n    \
         let all: [unsafe extern \"C\" fn(); {count}] = [{names}];\n    \
         assert!(std::hint::black_box(all).iter().all(|function| *function as usize != 0));\n}}\n"
    );
    files.push(File::new(&path("mod"), OWN, "The libraries and their exported functions.", ROWS, &code)?);
    Ok(files)
}

fn path(name: &str) -> String {
    format!("guest-lib/vendor/src/exports/{name}.rs")
}

fn file(description: &Description) -> Result<File> {
    let Description { library, exports } = description;
    let front = constant(library.name);
    let mut code = format!(
        "#![allow(unused_imports, clippy::missing_safety_doc)]\n\nuse std::ffi::c_char;\n\nuse super::{front};\n\
         use crate::{{Structure, forward, number_in, refuse}};\n"
    );
    for ((index, function), export) in library.functions.iter().enumerate().zip(exports) {
        if function.is_form() {
            continue;
        }
        let name = function.name;
        // Writing to a string does not fail.
        let _ = match (export, &function.body) {
            (Export::ByHand, _) | (_, Body::Custom) => Ok(()),
            (_, Body::Refuse(reason)) => writeln!(
                code,
                "\n/// Not supported: {reason}.\n#[unsafe(no_mangle)]\npub extern \"C\" fn {name}() -> i32 {{ \
                 refuse(&{front}, {index}) }}"
            ),
            (Export::Row, Body::Forward(call)) => {
                let body = |slots: &str, convert: &str| {
                    format!(
                        "// SAFETY: the row describes NVIDIA's function; its contract for these arguments is this function's.\n    \
                         unsafe {{ forward(&{front}, {index}, &[{slots}]){convert} }}"
                    )
                };
                writeln!(code, "\n{}", entry_point(library, name, call, body))
            }
            (Export::Calls { function, arguments }, Body::Forward(call)) => {
                let places = places(library.functions, name).join(", ");
                let more = if arguments.is_empty() { String::new() } else { format!(", {arguments}") };
                let body = |slots: &str, _: &str| {
                    format!(
                        "// SAFETY: the arguments are those of the functions of these rows, as this function's contract says.\n    \
                         unsafe {{ crate::custom::{}::{function}([{places}], &[{slots}]{more}) }}",
                        module(library.name)
                    )
                };
                writeln!(code, "\n{}", entry_point(library, name, call, body))
            }
        };
    }
    let what = format!(
        "The functions of {}. Each has the contract of NVIDIA's function of its name.",
        library.sonames.first().unwrap_or(&"")
    );
    File::new(&path(&module(library.name)), OWN, &what, &format!("{ROWS}/{}.rows", library.name), &code)
}

/// The positions of a function and of its further forms.
fn places(functions: &[Function], name: &str) -> Vec<String> {
    let all = functions.iter().enumerate().filter(|(_, function)| function.symbol() == name);
    all.map(|(place, _)| place.to_string()).collect()
}

/// An exported function. `body` returns its body for the slots of its arguments and the conversion of the result.
fn entry_point(library: &Library, name: &str, call: &Call, body: impl Fn(&str, &str) -> String) -> String {
    let handles = library.handles;
    let (mut parameters, mut slots) = (Vec::new(), Vec::new());
    for (position, parameter) in call.parameters.iter().enumerate() {
        let own = own_name(call.parameters, position);
        let (kind, slot) = match parameter.kind {
            // C has no such parameter.
            Kind::Noted(_) | Kind::Measured(_) => {
                slots.push("0".to_owned());
                continue;
            }
            Kind::Value(number) => (c_type(number).to_owned(), slot(number, &own)),
            Kind::Structure(bytes) => (format!("Structure<{bytes}>"), format!("&raw const {own} as u64")),
            Kind::Handle { kind, .. } | Kind::End(kind) if handles[kind].is_int => {
                ("u32".to_owned(), format!("u64::from({own})"))
            }
            Kind::Handle { kind, .. } | Kind::End(kind) if handles[kind].structure > 0 => {
                ("u64".to_owned(), format!("number_in({own})"))
            }
            _ => ("u64".to_owned(), own.clone()),
        };
        parameters.push(format!("{own}: {kind}"));
        slots.push(slot);
    }
    let (answer, convert) = match call.answer {
        Answer::Status => (" -> i32".to_owned(), " as i32".to_owned()),
        Answer::Number(number) => (format!(" -> {}", c_type(number)), convert(number)),
        Answer::Text => (" -> *const c_char".to_owned(), " as *const c_char".to_owned()),
        Answer::Nothing => (String::new(), ";".to_owned()),
    };
    format!(
        "#[unsafe(no_mangle)]\n#[rustfmt::skip]\npub unsafe extern \"C\" fn {name}({}){answer} {{\n    {}\n}}",
        parameters.join(", "),
        body(&slots.join(", "), &convert)
    )
}

/// The name of a parameter in Rust.
fn own_name(parameters: &[Parameter], position: usize) -> String {
    let name = parameters[position].name;
    if parameters[..position].iter().any(|before| before.name == name) {
        // The imaginary part of a `cuDoubleComplex`.
        return format!("{name}_imaginary");
    }
    if KEYWORDS.contains(&name) { format!("r#{name}") } else { name.to_owned() }
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
        // Passed by value, this is two doubles (`cuda_api_description::libraries`), and no function returns one.
        Number::C64 => "[f64; 2]",
    }
}

fn slot(number: Number, name: &str) -> String {
    match number {
        Number::F32 => format!("u64::from({name}.to_bits())"),
        Number::F64 | Number::C32 => format!("{name}.to_bits()"),
        Number::U64 => name.to_owned(),
        _ => format!("{name} as u64"),
    }
}

fn convert(number: Number) -> String {
    if number == Number::U64 { String::new() } else { format!(" as {}", c_type(number)) }
}

#[cfg(test)]
mod tests {
    use cuda_api_description::libraries::library;

    use super::*;

    fn source(rows: &str) -> String {
        file(&library(&format!("library x 0\n{rows}"), "").expect("valid")).expect("formatted").text
    }

    #[test]
    fn a_note_is_no_parameter() {
        let source = source(
            "handle H\n0 forward g(h: H, n: i32) [sets(\"none\") notes(h.n=n)];\n\
             1 forward f(h: H, x: out f64[m], m: note h.n) [writes];\n",
        );
        assert!(source.contains("fn f(h: u64, x: u64) -> i32"), "{source}");
        assert!(source.contains("forward(&X, 1, &[h, x, 0])"), "{source}");
    }

    #[test]
    fn entry_points_have_the_types_of_c() {
        let text = source(
            "handle H\n0 forward f(h: H, n: i32, x: f32, type: ptr) [writes];\n1 refuse g [none] \"no\";\n2 custom h [none];\n\
             3 forward f@Other(h: H) [writes];\n4 wrap k(h: H) [writes];\n5 forward c(tol: c64) -> u64 [none];\n",
        );
        assert!(text.contains("fn f(h: u64, n: i32, x: f32, r#type: u64) -> i32"), "{text}");
        assert!(text.contains("&[h, n as u64, u64::from(x.to_bits()), r#type]"), "{text}");
        assert!(text.contains("refuse(&X, 1)"), "{text}");
        assert!(text.contains("fn c(tol: f64, tol_imaginary: f64) -> u64"), "{text}");
        assert!(!text.contains("fn h(") && !text.contains("fn k(") && !text.contains("Other"), "{text}");
        let text = source(
            "handle H\nhandle G\n0 wrap f(h: H, n: i32) [writes] as fill(4, true);\n1 forward f@Other(g: G, n: i32) [writes];\n\
             2 wrap g(h: H) [writes] as end();\n",
        );
        assert!(text.contains("crate::custom::x::fill([0, 1], &[h, n as u64], 4, true)"), "{text}");
        assert!(text.contains("crate::custom::x::end([2], &[h])"), "{text}");
        let text = source("handle S struct 64\n0 forward f(s: S) [writes];\n");
        assert!(text.contains("fn f(s: u64) -> i32") && text.contains("&[number_in(s)]"), "{text}");
    }
}
