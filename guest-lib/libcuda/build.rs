// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Makes, from the lists in `protocol/names`: a weak function for every name of the driver API (a call that
//! this library does not have answers `CUDA_ERROR_NOT_SUPPORTED`), and the table of results.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

const NAMES: &str = "../../protocol/names/libcuda.txt";
const RESULTS: &str = "../../protocol/names/results.txt";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    unsupported_calls(&read(NAMES), &out);
    results(&read(RESULTS), &out);
}

fn read(path: &str) -> String {
    println!("cargo::rerun-if-changed={path}");
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path} is needed to build libcuda: {error}"))
}

/// Each is its own small C function, and weak: the linker prefers the real one where there is one.
fn unsupported_calls(names: &str, out: &Path) {
    let mut source = String::from("extern int virtio_cuda_unsupported(const char *name);\n");
    for name in names.lines().filter(|line| !line.is_empty()) {
        writeln!(
            source,
            "__attribute__((weak)) int {name}(void) {{ return virtio_cuda_unsupported(\"{name}\"); }}"
        )
        .expect("writing to a string");
    }
    let file = out.join("unsupported.c");
    fs::write(&file, source).expect("OUT_DIR is writable");
    cc::Build::new().file(file).pic(true).cargo_warnings(false).compile("virtio_cuda_unsupported");
}

/// `number NAME description` becomes an entry `(number, c"NAME", c"description")`.
fn results(table: &str, out: &Path) {
    let mut source = String::from("&[\n");
    for line in table.lines().filter(|line| !line.is_empty()) {
        let mut parts = line.splitn(3, ' ');
        let (Some(number), Some(name), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
            panic!("{RESULTS}: not `number NAME description`: {line}");
        };
        writeln!(source, "    ({number}, c\"{name}\", c{text:?}),").expect("writing to a string");
    }
    source.push_str("]\n");
    fs::write(out.join("results.rs"), source).expect("OUT_DIR is writable");
}
