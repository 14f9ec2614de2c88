// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Generates the exported functions of each library from its rows. The function of a `custom` row is in `src/custom` or
//! `descriptors`; a missing one is an error.

use std::path::PathBuf;
use std::{env, fs};

use cuda_library_rows::generate::{entry_points, words};
use cuda_library_rows::libraries;

const CUSTOM: [&str; 2] = ["src/custom", "descriptors/src"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    CUSTOM.iter().for_each(|folder| println!("cargo::rerun-if-changed={folder}"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let files = CUSTOM.iter().flat_map(|folder| fs::read_dir(folder).expect("the folder exists").flatten());
    let sources: String = files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
    let names = words(&sources);
    for library in libraries() {
        let front = format!("&crate::fronts::{}", library.name.to_uppercase());
        let file = out.join(format!("{}.rs", library.name));
        let source = entry_points(library, &front, &|name| names.contains(name));
        fs::write(&file, source).expect("OUT_DIR is writable");
    }
}
