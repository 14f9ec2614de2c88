// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Generates the forms of functions with 64-bit sizes from those with 32-bit sizes, and a function that returns
//! `not_supported` for each row that no file here implements. For the tests it records how the arguments of all
//! others cross.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use cuda_library_rows::generate::{stubs, words};
use cuda_library_rows::{Answer, Body, Call, Function, Kind, Library, Number, libraries};

/// The descriptors of cuBLASLt, which the guest's library has, too.
const SHARED: &str = "../../guest-lib/vendor/descriptors/src";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed={SHARED}");
    let mut files = Vec::new();
    read(Path::new("src"), &mut files);
    read(Path::new(SHARED), &mut files);
    let written: String = files.iter().map(|(_, text)| text.as_str()).collect();
    let names = words(&written);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for library in libraries() {
        let (long, long_names) = long_forms(library, &|name| names.contains(name));
        let source = long + &stubs(library, &|name| names.contains(name) || long_names.contains(name));
        fs::write(out.join(format!("{}.rs", library.name)), source).expect("OUT_DIR is writable");
    }
    fs::write(out.join("signatures.rs"), signatures(&files)).expect("OUT_DIR is writable");
}

/// Rust source that compares each function which a file here implements with its row. The compiler compares the numbers of
/// parameters, and `compare` (`src/signatures.rs`) the rest.
fn signatures(files: &[(PathBuf, String)]) -> String {
    let calls: Vec<(&Library, &str, &Call)> = libraries()
        .flat_map(|library| library.functions.iter().map(move |function| (library, function)))
        .filter(|(_, function)| !function.is_form())
        .filter_map(|(library, function)| match &function.body {
            // The worker creates an object by its own calls.
            Body::Forward(call) if !call.facts.makes => Some((library, function.name.as_str(), &**call)),
            _ => None,
        })
        .collect();
    let (mut modules, mut lines, mut found) = (String::new(), String::new(), HashSet::new());
    for (path, text) in files {
        let is_test =
            path.file_stem().is_some_and(|name| name == "tests" || name.to_string_lossy().ends_with("_test"));
        let names = words(text);
        let here: HashSet<&str> =
            calls.iter().map(|(_, name, _)| *name).filter(|name| !is_test && names.contains(name)).collect();
        if !here.is_empty() {
            // Writing to a string does not fail.
            let _ = writeln!(modules, "    #[allow(unused_imports)]\n    use {}::*;", module(path));
            found.extend(here);
        }
    }
    for (library, name, call) in calls.iter().filter(|(_, name, _)| found.contains(name)) {
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
    format!("pub fn all(wrong: &mut Vec<String>) -> usize {{\n{modules}{lines}    {}\n}}\n", found.len())
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

/// The module of a file.
fn module(path: &Path) -> String {
    let Ok(inside) = path.strip_prefix("src") else { return "cublaslt_descriptors".to_owned() };
    let parts = inside.with_extension("");
    let parts = parts.iter().map(|part| part.to_string_lossy());
    let parts: Vec<_> = parts.filter(|part| part != "mod" && part != "lib").collect();
    ["crate".into()].into_iter().chain(parts).collect::<Vec<_>>().join("::")
}

/// Returns a function for each row `NAME_64` of which only NAME is written, and their names. A size of more than 31
/// bits is not supported.
fn long_forms(library: &Library, is_written: &dyn Fn(&str) -> bool) -> (String, HashSet<String>) {
    let (mut source, mut names) = (String::new(), HashSet::new());
    for long in library.functions.iter().filter(|long| !is_written(&long.name)) {
        let Some(short) = long.name.strip_suffix("_64").filter(|name| is_written(name)) else { continue };
        let Some(short) = library.functions.iter().find(|function| function.name == short) else { continue };
        if let Some(form) = long_form(long, short, library.statuses.not_supported) {
            source.push_str(&form);
            names.insert(long.name.clone());
        }
    }
    (source, names)
}

/// `None`: the functions differ in more than the width of numbers.
fn long_form(long: &Function, short: &Function, not_supported: i32) -> Option<String> {
    let call = |function: &Function| -> Option<Vec<Kind>> {
        let Body::Forward(call) = &function.body else { return None };
        let Call { parameters, .. } = &**call;
        Some(parameters.iter().map(|parameter| parameter.kind.clone()).collect())
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

/// Appends all sources below a folder.
fn read(folder: &Path, files: &mut Vec<(PathBuf, String)>) {
    for file in fs::read_dir(folder).expect("the folder exists").flatten() {
        let path = file.path();
        if path.is_dir() {
            read(&path, files);
        } else if let Ok(source) = fs::read_to_string(&path) {
            files.push((path, source));
        }
    }
}
