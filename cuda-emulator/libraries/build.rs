// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Generates, from the rows of NVIDIA's libraries and from `names.txt`, which has the functions that are written here:
//!
//! * the forms of functions with 64-bit sizes from those with 32-bit sizes,
//! * a function that returns `not_supported` for each row without one (see the crate `cuda-absent-names`),
//! * for the tests, how the arguments of the functions here cross.

use std::collections::HashSet;
use std::fmt::Write as _;

use cuda_absent_names::build::{Binding, define, read, write};
use cuda_library_rows::{Answer, Body, Call, Function, Kind, Library, Number, libraries};

/// The functions that are written in this crate, and those of cuBLASLt's descriptors, which the guest's library has, too. One that is
/// missing here is defined twice, which the linker refuses. One too many does not compile in the tests.
const NAMES: &str = "names.txt";

fn main() {
    let written = read(NAMES);
    let names: HashSet<&str> = written.lines().collect();
    let (mut forms, mut absent, mut answers) = (String::new(), Vec::new(), String::from("&[\n"));
    for library in libraries() {
        let (long, long_names) = long_forms(library, &|name| names.contains(name));
        forms += &long;
        absent.extend(missing(library, &|name| names.contains(name) || long_names.contains(name)));
        writeln!(answers, "    ({}, {}),", absent.len(), library.statuses.not_supported)
            .expect("writing to a string");
    }
    define("cuda_emulator_library_absent", Binding::Global, absent);
    write("answers.rs", &(answers + "]\n"));
    write("long_forms.rs", &forms);
    write("signatures.rs", &signatures(&names));
}

/// Returns the functions of a library that are missing: they return `not_supported`. Those that do not return a status are left out.
fn missing(library: &Library, is_written: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    let exported = library.functions.iter().filter(|function| !function.is_form());
    let missing = exported.filter(|function| match &function.body {
        Body::Forward(call) => call.answer == Answer::Status && !is_written(function.name),
        _ => !is_written(function.name),
    });
    missing.map(|function| function.name).collect()
}

/// Returns Rust source that compares each function which is written here with its row. The compiler compares the numbers of
/// parameters, and `compare` (`src/signatures.rs`) the rest.
fn signatures(names: &HashSet<&str>) -> String {
    let functions =
        libraries().flat_map(|library| library.functions.iter().map(move |function| (library, function)));
    let calls = functions.filter_map(|(library, function)| match &function.body {
        // The worker creates an object by its own calls.
        Body::Forward(call) if !call.facts.makes && names.contains(function.name) => {
            Some((library, function.name, *call))
        }
        _ => None,
    });
    let mut lines = String::new();
    let mut count = 0;
    for (library, name, call) in calls {
        count += 1;
        let parameters = classes(library, call);
        let places = "_, ".repeat(parameters.len());
        let answer = match call.answer {
            Answer::Status => "g4".to_owned(),
            Answer::Number(number) => number_class(number),
            Answer::Text => "g8".to_owned(),
            Answer::Nothing => "g0".to_owned(),
        };
        let expected = format!("{} -> {answer}", parameters.join(" "));
        let _ = writeln!(
            lines,
            "    compare(\"{name}\", {name} as unsafe extern \"C\" fn({places}) -> _, \"{expected}\", wrong);"
        );
    }
    format!("pub fn all(wrong: &mut Vec<String>) -> usize {{\n{lines}    {count}\n}}\n")
}

/// Returns how each parameter crosses: in a general register (`g`), in a vector register (`v`) or in memory (`m`),
/// and its bytes.
fn classes(library: &Library, call: &Call) -> Vec<String> {
    let mut classes: Vec<String> = Vec::new();
    for (index, parameter) in call.parameters.iter().enumerate() {
        let class = match &parameter.kind {
            // C has no parameter for notes and measures, nor for results of the library.
            Kind::Noted(_) | Kind::Measured(_) => continue,
            _ if call.facts.finds == Some(index) => continue,
            Kind::Value(number) => number_class(*number),
            Kind::Structure(bytes) => format!("m{bytes}"),
            Kind::Handle { kind, .. } | Kind::End(kind) if library.handles[*kind].is_int => "g4".to_owned(),
            _ => "g8".to_owned(),
        };
        let is_half =
            index.checked_sub(1).is_some_and(|before| call.parameters[before].name == parameter.name);
        match classes.last_mut() {
            // A `cuDoubleComplex` is two doubles of the same name.
            Some(whole) if is_half => *whole += &format!(" {class}"),
            _ => classes.push(class),
        }
    }
    classes
}

fn number_class(number: Number) -> String {
    let register = if matches!(number, Number::F32 | Number::F64 | Number::C32) { 'v' } else { 'g' };
    format!("{register}{}", number.bytes())
}

/// Returns a function for each row `NAME_64` of which only NAME is written, and their names. A size of more than 31
/// bits is not supported.
fn long_forms(library: &Library, is_written: &dyn Fn(&str) -> bool) -> (String, HashSet<String>) {
    let (mut source, mut names) = (String::new(), HashSet::new());
    for long in library.functions.iter().filter(|long| !is_written(long.name)) {
        let Some(short) = long.name.strip_suffix("_64").filter(|name| is_written(name)) else { continue };
        let Some(short) = library.functions.iter().find(|function| function.name == short) else { continue };
        if let Some(form) = long_form(long, short, library.statuses.not_supported) {
            source.push_str(&form);
            names.insert(long.name.to_owned());
        }
    }
    (source, names)
}

/// `None`: the functions differ in more than the width of numbers.
fn long_form(long: &Function, short: &Function, not_supported: i32) -> Option<String> {
    let call = |function: &Function| -> Option<Vec<Kind>> {
        let Body::Forward(call) = &function.body else { return None };
        Some(call.parameters.iter().map(|parameter| parameter.kind.clone()).collect())
    };
    let (long_kinds, short_kinds) = (call(long)?, call(short)?);
    if long_kinds.len() != short_kinds.len() {
        return None;
    }
    let (mut wide, mut narrow, mut arguments) = (String::new(), String::new(), String::new());
    for (position, kinds) in long_kinds.iter().zip(&short_kinds).enumerate() {
        let (of_long, of_short, argument) = match kinds {
            (Kind::Value(Number::I64), Kind::Value(Number::I32)) => {
                let narrowed = format!(
                    "match i32::try_from(a{position}) {{ Ok(value) => value, Err(_) => return {not_supported} }}"
                );
                ("i64", "i32", narrowed)
            }
            (Kind::Value(Number::I32), Kind::Value(Number::I32)) => ("i32", "i32", format!("a{position}")),
            (Kind::Value(Number::I64), Kind::Value(Number::I64)) => ("i64", "i64", format!("a{position}")),
            (Kind::Value(_), _) | (_, Kind::Value(_)) => return None,
            (long, short) if long == short => ("usize", "usize", format!("a{position}")),
            _ => return None,
        };
        // Writing to a string does not fail.
        let _ = write!(wide, "a{position}: {of_long}, ");
        let _ = write!(narrow, "a{position}: {of_short}, ");
        let _ = write!(arguments, "{argument}, ");
    }
    let (long, short) = (&long.name, &short.name);
    Some(format!(
        "/// The form with sizes of 64 bits.\n#[unsafe(no_mangle)]\npub extern \"C\" fn {long}({wide}) -> i32 {{\n\
         \x20   unsafe extern \"C\" {{ fn {short}({narrow}) -> i32; }}\n\
         \x20   // SAFETY: this crate has the function, with the parameters of its row.\n\
         \x20   unsafe {{ {short}({arguments}) }}\n}}\n"
    ))
}
