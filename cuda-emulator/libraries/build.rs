// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Makes the forms of functions with sizes of 64 bits from those with sizes of 32 bits, and a function that answers
//! `not_supported` for each row that no file here implements.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use cuda_library_rows::generate::{stubs, words};
use cuda_library_rows::{Body, Call, Function, Kind, Library, Number, libraries};

/// The descriptors of cuBLASLt, which the guest's library has, too.
const SHARED: &str = "../../guest-lib/vendor/descriptors/src";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed={SHARED}");
    let mut written = String::new();
    read(Path::new("src"), &mut written);
    read(Path::new(SHARED), &mut written);
    let names = words(&written);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for library in libraries() {
        let (long, long_names) = long_forms(library, &|name| names.contains(name));
        let source = long + &stubs(library, &|name| names.contains(name) || long_names.contains(name));
        fs::write(out.join(format!("{}.rs", library.name)), source).expect("OUT_DIR is writable");
    }
}

/// A function for each row `NAME_64` of which only NAME is written, and their names. A size of more than 31 bits is not
/// supported.
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
        let Body::Forward(Call { parameters, .. }) = &function.body else { return None };
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
fn read(folder: &Path, text: &mut String) {
    for file in fs::read_dir(folder).expect("the folder exists").flatten() {
        let path = file.path();
        if path.is_dir() {
            read(&path, text);
        } else if let Ok(source) = fs::read_to_string(&path) {
            text.push_str(&source);
        }
    }
}
