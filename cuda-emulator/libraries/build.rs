// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Makes a function that answers `not_supported` for each row that no file here implements.

use std::path::{Path, PathBuf};
use std::{env, fs};

use cuda_library_rows::generate::{stubs, words};
use cuda_library_rows::libraries;

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
        let source = stubs(library, &|name| names.contains(name));
        fs::write(out.join(format!("{}.rs", library.name)), source).expect("OUT_DIR is writable");
    }
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
